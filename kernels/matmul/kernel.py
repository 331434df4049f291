"""autokernel
family  = "matmul"
backend = "triton"

[tune]
BLOCK_M    = { values = [16, 32, 64, 128, 256], default = 128, tier = 1 }
BLOCK_N    = { values = [32, 64, 128, 256],     default = 128, tier = 1 }
BLOCK_K    = { values = [16, 32, 64, 128],      default = 64,  tier = 1 }
GROUP      = { values = [1, 4, 8, 16],          default = 8,   tier = 2 }   # rows of tiles that are walked side by side, so that the cache holds what they share
NUM_WARPS  = { values = [2, 4, 8, 16],          default = 8,   tier = 1 }
EVICT      = { values = [0, 1],                 default = 0,   tier = 2 }   # a tile of the weight is not read again soon
NUM_STAGES = { values = [2, 3, 4, 5],           default = 3,   tier = 3 }
SPLIT      = { values = [1, 2, 4, 8, 16],       default = 1,   tier = 4 }   # programs that share the products of a tile
NUM_CTAS   = { values = [1, 2],                 default = 1,   tier = 5 }   # a cluster of blocks to a tile
TMA        = { values = [0, 1, 2],              default = 0,   tier = 5 }   # tiles are fetched by the copy engine, by persistent programs, with tensor maps of the kernel's (1) or the host's (2)
SPECIALISE = { values = [0, 1],                 default = 0,   tier = 5 }   # some warps fetch, others multiply: 4 to a group of those on Hopper
require = ["BLOCK_M * BLOCK_N <= 32768", "(BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(T) * NUM_STAGES <= shared_per_block",
           "BLOCK_M * BLOCK_N >= 1024 * NUM_WARPS / 4", "TMA == 1 || SPECIALISE == 0", "SPECIALISE == 0 || NUM_WARPS == 4 || compute_capability >= 100", "TMA == 0 || SPLIT == 1", "sizeof(T) == 2 || BLOCK_M * BLOCK_N <= 16384",
           "compute_capability >= 90 || TMA == 0 && NUM_CTAS == 1"]

[scratch.parts]                               # sums of the parts of a split product
dtype = "float32"
shape = ["SPLIT > 1 ? SPLIT * M * N : 1"]

[tensormap.left]
tensor = "x"
box    = ["BLOCK_M", "BLOCK_K"]
[tensormap.right]
tensor = "weight"
box    = ["BLOCK_N", "BLOCK_K"]

# Tiles by the copy engine: rows must begin at multiples of 16 bytes.
[[variant]]
when = '''TMA == 2 && aligned && x.stride(1) == 1 && weight.stride(1) == 1 && x.stride(0) * sizeof(T) % 16 == 0 && weight.stride(0) * sizeof(T) % 16 == 0
  && x.stride(0) > 0 && weight.stride(0) > 0 && K >= BLOCK_K && M > 0 && N > 0'''
[[variant.launch]]
kernel     = "matmul_mapped"
grid       = ["min(cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), sm_count)"]
args       = ["left", "right", "bias", "residual", "out", "M", "N", "K", "bias.stride(0)", "residual.stride(0)", "residual.stride(1)",
              "out.stride(0)", "out.stride(1)"]
[[variant]]
when = '''TMA == 1 && aligned && x.stride(1) == 1 && weight.stride(1) == 1 && x.stride(0) * sizeof(T) % 16 == 0 && weight.stride(0) * sizeof(T) % 16 == 0
  && K >= BLOCK_K && M > 0 && N > 0'''
[[variant.launch]]
kernel     = "matmul_fetched"
grid       = ["min(cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), sm_count)"]
args       = ["x", "weight", "bias", "residual", "out", "M", "N", "K", "x.stride(0)", "weight.stride(0)", "bias.stride(0)", "residual.stride(0)",
              "residual.stride(1)", "out.stride(0)", "out.stride(1)"]

# Few tiles of long products: several programs to a tile.
[[variant]]
when = "SPLIT > 1 && K >= SPLIT * BLOCK_K"
[[variant.launch]]
kernel     = "matmul_tiles"
constexprs = { EVEN = "M % BLOCK_M == 0 && N % BLOCK_N == 0 && K % (SPLIT * BLOCK_K) == 0", PARTS = "1" }
grid       = ["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)", "SPLIT"]
args       = ["x", "weight", "bias", "residual", "out", "parts", "M", "N", "K", "align(cdiv(K, SPLIT), BLOCK_K)", "x.stride(0)", "x.stride(1)",
              "weight.stride(0)", "weight.stride(1)", "bias.stride(0)", "residual.stride(0)", "residual.stride(1)", "out.stride(0)", "out.stride(1)"]
[[variant.launch]]
kernel     = "matmul_join"
constexprs = { NUM_WARPS = "4" }
grid       = ["cdiv(M * N, 1024)"]
args       = ["parts", "bias", "residual", "out", "M", "N", "bias.stride(0)", "residual.stride(0)", "residual.stride(1)", "out.stride(0)", "out.stride(1)"]

[[launch]]
kernel     = "matmul_tiles"
constexprs = { EVEN = "M % BLOCK_M == 0 && N % BLOCK_N == 0 && K % BLOCK_K == 0", PARTS = "0" }
grid       = ["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)", "1"]
args       = ["x", "weight", "bias", "residual", "out", "parts", "M", "N", "K", "max(1, K)", "x.stride(0)", "x.stride(1)",
              "weight.stride(0)", "weight.stride(1)", "bias.stride(0)", "residual.stride(0)", "residual.stride(1)", "out.stride(0)", "out.stride(1)"]

# Many tiles on tensor cores: large ones, for a byte that is fetched has to feed many products.
[[prior]]
when = "sizeof(T) == 2 && compute_capability >= 90 && cdiv(M, 128) * cdiv(N, 256) >= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 64, NUM_WARPS = 8, NUM_STAGES = 3, TMA = 1 }
[[prior]]
when = "sizeof(T) == 2 && compute_capability >= 90 && cdiv(M, 128) * cdiv(N, 256) >= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 64, NUM_WARPS = 8, NUM_STAGES = 4, TMA = 2 }
[[prior]]
when = "sizeof(T) == 2 && compute_capability >= 90 && cdiv(M, 128) * cdiv(N, 128) >= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 64, NUM_WARPS = 4, NUM_STAGES = 4, TMA = 1, SPECIALISE = 1 }
[[prior]]
when = "sizeof(T) == 2 && cdiv(M, 128) * cdiv(N, 256) >= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 64, NUM_WARPS = 8, NUM_STAGES = 3 }
# Few rows: the time is that of reading the weight once. Narrow tiles give each multiprocessor several, deep stages keep their loads in flight.
[[prior]]
when = "sizeof(T) == 2 && M <= 16 && cdiv(N, 64) >= 2 * sm_count"
set  = { BLOCK_M = 16, BLOCK_N = 64, BLOCK_K = 128, NUM_WARPS = 4, NUM_STAGES = 4, GROUP = 1, EVICT = 1 }
[[prior]]
when = "sizeof(T) == 2 && M <= 16 && cdiv(N, 64) < 2 * sm_count"
set  = { BLOCK_M = 16, BLOCK_N = 64, BLOCK_K = 128, NUM_WARPS = 4, NUM_STAGES = 4, GROUP = 1, EVICT = 1, SPLIT = 4 }
[[prior]]
when = "sizeof(T) == 2 && M <= 16"
set  = { BLOCK_M = 16, BLOCK_N = 32, BLOCK_K = 128, NUM_WARPS = 2, NUM_STAGES = 5, GROUP = 1, EVICT = 1 }
[[prior]]
when = "sizeof(T) == 2 && M > 16 && M <= 64 && cdiv(N, 64) >= sm_count"
set  = { BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 128, NUM_WARPS = 4, NUM_STAGES = 4, GROUP = 1, EVICT = 1 }
[[prior]]
when = "sizeof(T) == 2 && M > 16 && M <= 64 && cdiv(N, 64) < sm_count"
set  = { BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 128, NUM_WARPS = 4, NUM_STAGES = 4, GROUP = 1, EVICT = 1, SPLIT = 4 }
# Few columns: the same of x.
[[prior]]
when = "sizeof(T) == 2 && N <= 64 && M > 64"
set  = { BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 128, NUM_WARPS = 4, NUM_STAGES = 4, GROUP = 1 }
[[prior]]
when = "sizeof(T) == 2 && N <= 64 && M > 64 && cdiv(M, 64) < sm_count"
set  = { BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 128, NUM_WARPS = 4, NUM_STAGES = 4, GROUP = 1, SPLIT = 4 }
# Fewer tiles than multiprocessors: smaller ones, then parts of them.
[[prior]]
when = "sizeof(T) == 2 && M > 64 && N > 64 && cdiv(M, 128) * cdiv(N, 128) < sm_count"
set  = { BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 64, NUM_WARPS = 4, NUM_STAGES = 4 }
[[prior]]
when = "sizeof(T) == 2 && M > 64 && N > 64 && cdiv(M, 128) * cdiv(N, 128) * 2 <= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 64, NUM_WARPS = 8, NUM_STAGES = 3, SPLIT = 4 }
# Without tensor cores the operands of a step are held in registers: shallow steps.
[[prior]]
when = "sizeof(T) == 4 && M > 64 && N > 64"
set  = { BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 16, NUM_WARPS = 4, NUM_STAGES = 3 }
[[prior]]
when = "sizeof(T) == 4 && cdiv(M, 128) * cdiv(N, 128) >= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 16, NUM_WARPS = 8, NUM_STAGES = 3 }
[[prior]]
when = "sizeof(T) == 4 && M <= 64"
set  = { BLOCK_M = 16, BLOCK_N = 64, BLOCK_K = 32, NUM_WARPS = 4, NUM_STAGES = 4, GROUP = 1, EVICT = 1, SPLIT = 4 }

[[recipe]]
name = "enough tiles"
tier = 1
when = "cdiv(M, 128) * cdiv(N, 128) < sm_count"
gain = "up to the number of idle multiprocessors"
text = "Fewer tiles than multiprocessors: smaller ones, or SPLIT with K long."
[[recipe]]
name = "the copy engine"
tier = 5
when = "M >= 1024 && N >= 1024"
gain = "1.2x"
text = "TMA = 1 or 2 with 128x256x64 tiles, 8 warps and 3 to 4 stages: loads cost no registers, and persistent programs hide the ends of tiles."
"""
import triton
import triton.language as tl


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """1 GELU (erf), 2 GELU (tanh), 3 ReLU, 4 SiLU, 5 squared ReLU."""
    if ACTIVATION == 1:
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == 2:  # (1 + tanh u) / 2 = 1 / (1 + exp(-2u))
        return x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == 3:
        return tl.where(x < 0.0, 0.0, x)
    elif ACTIVATION == 4:
        return x / (1.0 + tl.exp(-x))
    elif ACTIVATION == 5:
        positive = tl.where(x < 0.0, 0.0, x)
        return positive * positive
    else:
        return x


@triton.jit
def tile_of(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Tiles in groups of GROUP rows, column by column within each."""
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    group = program // (GROUP * columns)
    first = group * GROUP
    height = tl.minimum(rows - first, GROUP)
    within = program % (GROUP * columns)
    return first + within % height, within // height


@triton.jit
def store_tile(total, bias, residual, out, rows, columns, M, N, bias_step, residual_row, residual_column, out_row, out_column,
               HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr):
    there = (rows < M) & (columns < N)
    if HAS_BIAS:
        total += tl.load(bias + columns * bias_step, mask=columns < N, other=0.0).to(tl.float32)
    result = activate(total, ACTIVATION)
    if HAS_RESIDUAL:
        result += tl.load(residual + rows * residual_row + columns * residual_column, mask=there, other=0.0).to(tl.float32)
    tl.store(out + rows * out_row + columns * out_column, result.to(out.dtype.element_ty), mask=there)


@triton.jit
def matmul_tiles(x, weight, bias, residual, out, parts, M, N, K, span, x_row, x_column, weight_row, weight_column, bias_step, residual_row,
                 residual_column, out_row, out_column, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
                 BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EVICT: tl.constexpr, EVEN: tl.constexpr,
                 PARTS: tl.constexpr):
    """A tile of out, or of the part of program_id(1), `span` products of each sum."""
    ONCE: tl.constexpr = "evict_first" if EVICT else ""
    tile_row, tile_column = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    rows = tile_row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    begin = tl.program_id(1) * span
    end = tl.minimum(begin + span, K)
    depth = tl.arange(0, BLOCK_K)
    left = x + rows[:, None] * x_row + (begin + depth).to(tl.int64)[None, :] * x_column
    right = weight + columns[None, :] * weight_row + (begin + depth).to(tl.int64)[:, None] * weight_column
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for at in tl.range(begin, end, BLOCK_K):
        if EVEN:
            a = tl.load(left)
            b = tl.load(right, eviction_policy=ONCE)
        else:
            a = tl.load(left, mask=(rows[:, None] < M) & (at + depth[None, :] < end), other=0.0)
            b = tl.load(right, mask=(columns[None, :] < N) & (at + depth[:, None] < end), other=0.0, eviction_policy=ONCE)
        total = tl.dot(a, b, total, input_precision="ieee")
        left += BLOCK_K * x_column
        right += BLOCK_K * weight_column
    if PARTS:
        place = (tl.program_id(1).to(tl.int64) * M + rows[:, None]) * N + columns[None, :]
        tl.store(parts + place, total, mask=(rows[:, None] < M) & (columns[None, :] < N))
    else:
        store_tile(total, bias, residual, out, rows[:, None], columns[None, :], M, N, bias_step, residual_row, residual_column, out_row, out_column,
                   HAS_BIAS, HAS_RESIDUAL, ACTIVATION)


@triton.jit
def matmul_join(parts, bias, residual, out, M, N, bias_step, residual_row, residual_column, out_row, out_column, HAS_BIAS: tl.constexpr,
                HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, SPLIT: tl.constexpr):
    """Adds the parts up in order."""
    size = tl.full((), 1, tl.int64) * M * N
    places = tl.program_id(0).to(tl.int64) * 1024 + tl.arange(0, 1024)
    total = tl.zeros((1024,), tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * size + places, mask=places < size, other=0.0)
    rows = tl.where(places < size, places // N, M)
    store_tile(total, bias, residual, out, rows, places % N, M, N, bias_step, residual_row, residual_column, out_row, out_column, HAS_BIAS,
               HAS_RESIDUAL, ACTIVATION)


@triton.jit
def multiply_tiles(left, right, bias, residual, out, M, N, K, bias_step, residual_row, residual_column, out_row, out_column, HAS_BIAS: tl.constexpr,
                   HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   GROUP: tl.constexpr, SPECIALISE: tl.constexpr):
    """Persistent programs; the copy engine writes zeros where a tile reaches beyond its matrix."""
    FLAT: tl.constexpr = SPECIALISE == 0  # loops are made one, or specialised
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT, warp_specialize=SPECIALISE):
        tile_row, tile_column = tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for at in tl.range(0, K, BLOCK_K):
            a = left.load([tile_row * BLOCK_M, at])
            b = right.load([tile_column * BLOCK_N, at])
            total = tl.dot(a, b.T, total, input_precision="ieee")
        rows = tile_row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile_column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
        store_tile(total, bias, residual, out, rows[:, None], columns[None, :], M, N, bias_step, residual_row, residual_column, out_row, out_column,
                   HAS_BIAS, HAS_RESIDUAL, ACTIVATION)


@triton.jit
def matmul_fetched(x, weight, bias, residual, out, M, N, K, x_row, weight_row, bias_step, residual_row, residual_column, out_row, out_column,
                   HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                   BLOCK_K: tl.constexpr, GROUP: tl.constexpr, SPECIALISE: tl.constexpr):
    left = tl.make_tensor_descriptor(x, [M, K], [x_row, 1], [BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(weight, [N, K], [weight_row, 1], [BLOCK_N, BLOCK_K])
    multiply_tiles(left, right, bias, residual, out, M, N, K, bias_step, residual_row, residual_column, out_row, out_column, HAS_BIAS, HAS_RESIDUAL,
                   ACTIVATION, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, SPECIALISE)


@triton.jit
def matmul_mapped(left, right, bias, residual, out, M, N, K, bias_step, residual_row, residual_column, out_row, out_column, HAS_BIAS: tl.constexpr,
                  HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                  GROUP: tl.constexpr, SPECIALISE: tl.constexpr):
    multiply_tiles(left, right, bias, residual, out, M, N, K, bias_step, residual_row, residual_column, out_row, out_column, HAS_BIAS, HAS_RESIDUAL,
                   ACTIVATION, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, SPECIALISE)
