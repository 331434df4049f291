"""autokernel
family  = "fused_mlp"
backend = "triton"

[tune]
BLOCK_M    = { values = [16, 32, 64, 128],     default = 128, tier = 1 }
BLOCK_H    = { values = [32, 64, 128],         default = 128, tier = 1 }   # of the hidden columns, in the first product
BLOCK_N    = { values = [32, 64, 128, 256],    default = 128, tier = 1 }   # of the output's, in the second
BLOCK_K    = { values = [16, 32, 64, 128],     default = 64,  tier = 1 }
GROUP      = { values = [1, 4, 8, 16],         default = 8,   tier = 2 }   # rows of tiles that are walked side by side, so that the cache holds what they share
NUM_WARPS  = { values = [2, 4, 8, 16],         default = 8,   tier = 1 }
NUM_STAGES = { values = [2, 3, 4],             default = 3,   tier = 3 }
NUM_CTAS   = { values = [1, 2],                default = 1,   tier = 5 }   # a cluster of blocks to a tile
TMA        = { values = [0, 1],                default = 0,   tier = 5 }   # tiles are fetched by the copy engine, by persistent programs
SPECIALISE = { values = [0, 1],                default = 0,   tier = 5 }   # some warps fetch, others multiply: 4 to a group of those on Hopper
require = ["(BLOCK_M + 2 * BLOCK_H) * BLOCK_K * sizeof(T) * NUM_STAGES <= shared_per_block", "BLOCK_M * BLOCK_H >= 1024 * NUM_WARPS / 4",
           "(BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(T) * NUM_STAGES <= shared_per_block", "TMA == 1 || SPECIALISE == 0", "SPECIALISE == 0 || NUM_WARPS == 4 || compute_capability >= 100",
           "sizeof(T) == 2 || BLOCK_M * BLOCK_H <= 8192 && BLOCK_M * BLOCK_N <= 16384", "compute_capability >= 90 || TMA == 0 && NUM_CTAS == 1"]

[scratch.hidden]
dtype = "T"
shape = ["M * align(H, 8)"]

# Tiles by the copy engine: rows must begin at multiples of 16 bytes.
[[variant]]
when = '''TMA && aligned && x.stride(1) == 1 && gate.stride(1) == 1 && up.stride(1) == 1 && down.stride(1) == 1 && x.stride(0) * sizeof(T) % 16 == 0
  && gate.stride(0) * sizeof(T) % 16 == 0 && up.stride(0) * sizeof(T) % 16 == 0 && down.stride(0) * sizeof(T) % 16 == 0 && D >= BLOCK_K && H >= BLOCK_K && M > 0'''
[[variant.launch]]
kernel     = "gate_and_up_fetched"
grid       = ["min(cdiv(M, BLOCK_M) * cdiv(H, BLOCK_H), sm_count)"]
args       = ["x", "gate", "up", "hidden", "M", "H", "D", "x.stride(0)", "gate.stride(0)", "up.stride(0)", "align(H, 8)"]
[[variant.launch]]
kernel     = "down_fetched"
grid       = ["min(cdiv(M, BLOCK_M) * cdiv(D, BLOCK_N), sm_count)"]
args       = ["hidden", "down", "out", "M", "D", "H", "align(H, 8)", "down.stride(0)", "out.stride(0)", "out.stride(1)"]

[[launch]]
kernel     = "gate_and_up"
constexprs = { EVEN = "M % BLOCK_M == 0 && H % BLOCK_H == 0 && D % BLOCK_K == 0" }
grid       = ["cdiv(M, BLOCK_M) * cdiv(H, BLOCK_H)"]
args       = ["x", "gate", "up", "hidden", "M", "H", "D", "x.stride(0)", "x.stride(1)", "gate.stride(0)", "gate.stride(1)", "up.stride(0)",
              "up.stride(1)", "align(H, 8)"]
[[launch]]
kernel     = "down_projection"
constexprs = { EVEN = "M % BLOCK_M == 0 && D % BLOCK_N == 0 && H % BLOCK_K == 0" }
grid       = ["cdiv(M, BLOCK_M) * cdiv(D, BLOCK_N)"]
args       = ["hidden", "down", "out", "M", "D", "H", "align(H, 8)", "down.stride(0)", "down.stride(1)", "out.stride(0)", "out.stride(1)"]

[[recipe]]
name = "both projections in one"
tier = 3
when = "1"
gain = "one read of x, and no intermediate but their product"
text = "A program has the tile of gate and that of up in registers; BLOCK_M x BLOCK_H must leave room for two."
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
def load_tile(pointers, rows, at, depth, limit, end, EVEN: tl.constexpr):
    return tl.load(pointers) if EVEN else tl.load(pointers, mask=(rows < limit) & (at + depth < end), other=0.0)


@triton.jit
def gate_and_up(x, gate, up, hidden, M, H, D, x_row, x_column, gate_row, gate_column, up_row, up_column, hidden_row, ACTIVATION: tl.constexpr,
                BLOCK_M: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr):
    """A tile of activation(x @ gate^T) * (x @ up^T)."""
    tile_row, tile_column = tile_of(tl.program_id(0), M, H, BLOCK_M, BLOCK_H, GROUP)
    rows = tile_row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_column.to(tl.int64) * BLOCK_H + tl.arange(0, BLOCK_H)
    depth = tl.arange(0, BLOCK_K)
    wide = depth.to(tl.int64)
    left = x + rows[:, None] * x_row + wide[None, :] * x_column
    gates = gate + columns[None, :] * gate_row + wide[:, None] * gate_column
    ups = up + columns[None, :] * up_row + wide[:, None] * up_column
    gated = tl.zeros((BLOCK_M, BLOCK_H), tl.float32)
    upped = tl.zeros((BLOCK_M, BLOCK_H), tl.float32)
    for at in tl.range(0, D, BLOCK_K):
        a = load_tile(left, rows[:, None], at, depth[None, :], M, D, EVEN)
        gated = tl.dot(a, load_tile(gates, columns[None, :], at, depth[:, None], H, D, EVEN), gated, input_precision="ieee")
        upped = tl.dot(a, load_tile(ups, columns[None, :], at, depth[:, None], H, D, EVEN), upped, input_precision="ieee")
        left += BLOCK_K * x_column
        gates += BLOCK_K * gate_column
        ups += BLOCK_K * up_column
    result = (activate(gated, ACTIVATION) * upped).to(hidden.dtype.element_ty)
    tl.store(hidden + rows[:, None] * hidden_row + columns[None, :], result, mask=(rows[:, None] < M) & (columns[None, :] < H))


@triton.jit
def down_projection(hidden, down, out, M, D, H, hidden_row, down_row, down_column, out_row, out_column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                    BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr):
    """A tile of hidden @ down^T."""
    tile_row, tile_column = tile_of(tl.program_id(0), M, D, BLOCK_M, BLOCK_N, GROUP)
    rows = tile_row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    left = hidden + rows[:, None] * hidden_row + depth.to(tl.int64)[None, :]
    right = down + columns[None, :] * down_row + depth.to(tl.int64)[:, None] * down_column
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for at in tl.range(0, H, BLOCK_K):
        a = load_tile(left, rows[:, None], at, depth[None, :], M, H, EVEN)
        total = tl.dot(a, load_tile(right, columns[None, :], at, depth[:, None], D, H, EVEN), total, input_precision="ieee")
        left += BLOCK_K
        right += BLOCK_K * down_column
    there = (rows[:, None] < M) & (columns[None, :] < D)
    tl.store(out + rows[:, None] * out_row + columns[None, :] * out_column, total.to(out.dtype.element_ty), mask=there)


@triton.jit
def gate_and_up_fetched(x, gate, up, hidden, M, H, D, x_row, gate_row, up_row, hidden_row, ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr,
                        BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, SPECIALISE: tl.constexpr):
    """Persistent programs; the copy engine writes zeros where a tile reaches beyond its matrix."""
    left = tl.make_tensor_descriptor(x, [M, D], [x_row, 1], [BLOCK_M, BLOCK_K])
    gates = tl.make_tensor_descriptor(gate, [H, D], [gate_row, 1], [BLOCK_H, BLOCK_K])
    ups = tl.make_tensor_descriptor(up, [H, D], [up_row, 1], [BLOCK_H, BLOCK_K])
    FLAT: tl.constexpr = SPECIALISE == 0  # loops are made one, or specialised
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(H, BLOCK_H)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT, warp_specialize=SPECIALISE):
        tile_row, tile_column = tile_of(tile, M, H, BLOCK_M, BLOCK_H, GROUP)
        gated = tl.zeros((BLOCK_M, BLOCK_H), tl.float32)
        upped = tl.zeros((BLOCK_M, BLOCK_H), tl.float32)
        for at in tl.range(0, D, BLOCK_K):
            a = left.load([tile_row * BLOCK_M, at])
            gated = tl.dot(a, gates.load([tile_column * BLOCK_H, at]).T, gated, input_precision="ieee")
            upped = tl.dot(a, ups.load([tile_column * BLOCK_H, at]).T, upped, input_precision="ieee")
        rows = (tile_row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
        columns = (tile_column.to(tl.int64) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :]
        result = (activate(gated, ACTIVATION) * upped).to(hidden.dtype.element_ty)
        tl.store(hidden + rows * hidden_row + columns, result, mask=(rows < M) & (columns < H))


@triton.jit
def down_fetched(hidden, down, out, M, D, H, hidden_row, down_row, out_row, out_column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                 BLOCK_K: tl.constexpr, GROUP: tl.constexpr, SPECIALISE: tl.constexpr):
    """The same for hidden @ down^T."""
    left = tl.make_tensor_descriptor(hidden, [M, H], [hidden_row, 1], [BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(down, [D, H], [down_row, 1], [BLOCK_N, BLOCK_K])
    FLAT: tl.constexpr = SPECIALISE == 0
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(D, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT, warp_specialize=SPECIALISE):
        tile_row, tile_column = tile_of(tile, M, D, BLOCK_M, BLOCK_N, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for at in tl.range(0, H, BLOCK_K):
            total = tl.dot(left.load([tile_row * BLOCK_M, at]), right.load([tile_column * BLOCK_N, at]).T, total, input_precision="ieee")
        rows = (tile_row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
        columns = (tile_column.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
        tl.store(out + rows * out_row + columns * out_column, total.to(out.dtype.element_ty), mask=(rows < M) & (columns < D))
