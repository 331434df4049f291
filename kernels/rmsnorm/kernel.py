"""autokernel
family  = "rmsnorm"
backend = "triton"

[tune]
HOLD       = { values = [4096, 8192, 16384, 32768], default = 16384, tier = 1 }   # elements of a row that a program holds; a longer one is read twice
TILE       = { values = [1024, 2048, 4096, 8192],   default = 2048,  tier = 1 }   # elements of several short rows to one program
NUM_WARPS  = { values = [0, 1, 2, 4, 8, 16, 32],    default = 0,     tier = 1 }   # 0: one for each 4 KiB of a tile
EVICT      = { values = [0, 1],                     default = 0,     tier = 2 }   # what is read and written is not read again soon
PROGRAMS   = { values = [0, 1, 2, 4, 8],            default = 0,     tier = 4 }   # persistent ones a multiprocessor; 0: one a tile
NUM_STAGES = { values = [1, 2, 3, 4],               default = 1,     tier = 4 }   # tiles of a persistent program in flight
require = ["PROGRAMS > 0 || NUM_STAGES == 1"]

# Rows that a program holds, one or several.
[[variant]]
when = "N <= HOLD"
[[variant.launch]]
kernel     = "rmsnorm_rows"
constexprs = { BLOCK = "pow2ceil(N)", ROWS = "max(1, min(pow2ceil(M), TILE / pow2ceil(N)))", NUM_WARPS = '''NUM_WARPS > 0 ? NUM_WARPS
  : max(1, min(16, pow2ceil(N) * max(1, min(pow2ceil(M), TILE / pow2ceil(N))) * sizeof(T) / 4096))''' }
grid       = ["PROGRAMS > 0 ? min(cdiv(M, ROWS), PROGRAMS * sm_count) : cdiv(M, ROWS)"]
args       = ["x", "weight", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "residual.stride(0)",
              "residual.stride(1)", "out.stride(0)", "out.stride(1)", "residual_out.stride(0)", "residual_out.stride(1)", "eps"]

# Longer rows.
[[launch]]
kernel     = "rmsnorm_long"
constexprs = { BLOCK = "min(HOLD, 8192)", NUM_WARPS = "NUM_WARPS > 0 ? NUM_WARPS : 8", NUM_STAGES = "max(2, NUM_STAGES)" }
grid       = ["M"]
args       = ["x", "weight", "residual", "out", "residual_out", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "residual.stride(0)",
              "residual.stride(1)", "out.stride(0)", "out.stride(1)", "residual_out.stride(0)", "residual_out.stride(1)", "eps"]

# A thread holds 32 or 64 elements of a long row, in float32: enough loads of 16 bytes in flight, and registers for four programs and more.
[[prior]]
when = "N > 2048 && N <= 8192"
set  = { NUM_WARPS = 4 }
[[prior]]
when = "N > 4096 && N <= 8192"
set  = { NUM_WARPS = 8 }
[[prior]]
when = "N > 8192 && N <= 16384"
set  = { NUM_WARPS = 16 }
[[prior]]
when = "N > 16384 && N <= 32768"
set  = { HOLD = 32768, NUM_WARPS = 32 }
# Short rows: several to a program, so that each thread has more than one load in flight.
[[prior]]
when = "N <= 1024 && M * pow2ceil(N) >= 8 * 4096 * sm_count"
set  = { TILE = 4096, NUM_WARPS = 4 }
[[prior]]
when = "N <= 1024 && M * pow2ceil(N) < 1024 * sm_count"
set  = { TILE = 1024, NUM_WARPS = 1 }
# What does not stay in the cache anyway leaves room for what does.
[[prior]]
when = "2 * M * N * sizeof(T) > l2_bytes"
set  = { EVICT = 1 }
# Many more tiles than fit at once: persistent programs load the next while they write this one.
[[prior]]
when = "N <= 16384 && M >= 8 * sm_count * max(1, 2048 / pow2ceil(max(1, N)))"
set  = { PROGRAMS = 4, NUM_STAGES = 2 }

[[recipe]]
name = "few threads with much each"
tier = 1
when = "N * sizeof(T) >= 4096"
gain = "1.1x"
text = "Long rows are bound by memory: fewer warps hold more of a row each, and several programs share a multiprocessor."
[[recipe]]
name = "persistent programs"
tier = 4
when = "M >= 4 * sm_count"
gain = "1.05x below 32 MB"
text = "PROGRAMS * sm_count programs walk over the rows, and load the next tile while they write this one; the weight stays in registers."
"""
import triton
import triton.language as tl


@triton.jit
def inverse_root(squares, N, eps, MACHINE_EPS: tl.constexpr):
    """Of the mean square."""
    if MACHINE_EPS:
        eps = 1.1920929e-07
    root = tl.sqrt_rn(squares / N + eps)
    return tl.div_rn(tl.full(root.shape, 1.0, tl.float32), root)


@triton.jit
def load_gain(weight, columns, step, N, HAS_WEIGHT: tl.constexpr, WEIGHT_OFFSET: tl.constexpr):
    if HAS_WEIGHT:
        gain = tl.load(weight + columns * step, mask=columns < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        return gain + 1.0 if WEIGHT_OFFSET else gain
    else:
        return tl.full(columns.shape, 1.0, tl.float32)


@triton.jit
def load_total(x, residual, there, HAS_RESIDUAL: tl.constexpr, EVICT: tl.constexpr):
    """x, or x + residual as it lies in memory; 0 elsewhere."""
    values = tl.load(x, mask=there, other=0.0, eviction_policy=EVICT)
    if HAS_RESIDUAL:
        values = (values.to(tl.float32) + tl.load(residual, mask=there, other=0.0, eviction_policy=EVICT).to(tl.float32)).to(values.dtype)
    return values


@triton.jit
def rmsnorm_rows(x, weight, residual, out, residual_out, M, N, x_row, x_column, weight_step, residual_row, residual_column, out_row, out_column,
                 residual_out_row, residual_out_column, eps, HAS_WEIGHT: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_RESIDUAL_OUT: tl.constexpr,
                 WEIGHT_OFFSET: tl.constexpr, MACHINE_EPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, EVICT: tl.constexpr,
                 NUM_STAGES: tl.constexpr):
    """ROWS rows at a time, each of at most BLOCK elements."""
    READ: tl.constexpr = "evict_first" if EVICT else ""
    WRITE: tl.constexpr = ".cs" if EVICT else ""
    columns = tl.arange(0, BLOCK).to(tl.int64)[None, :]
    gain = load_gain(weight, columns, weight_step, N, HAS_WEIGHT, WEIGHT_OFFSET)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tile * ROWS + tl.arange(0, ROWS).to(tl.int64))[:, None]
        there = (rows < M) & (columns < N)
        beside = residual + rows * residual_row + columns * residual_column if HAS_RESIDUAL else x
        total = load_total(x + rows * x_row + columns * x_column, beside, there, HAS_RESIDUAL, READ)
        if HAS_RESIDUAL_OUT:
            tl.store(residual_out + rows * residual_out_row + columns * residual_out_column, total, mask=there, cache_modifier=WRITE)
        values = total.to(tl.float32)
        scale = inverse_root(tl.sum(values * values, 1), N, eps, MACHINE_EPS)[:, None]
        result = values * scale * gain if HAS_WEIGHT else values * scale
        tl.store(out + rows * out_row + columns * out_column, result.to(out.dtype.element_ty), mask=there, cache_modifier=WRITE)


@triton.jit
def rmsnorm_long(x, weight, residual, out, residual_out, N, x_row, x_column, weight_step, residual_row, residual_column, out_row, out_column,
                 residual_out_row, residual_out_column, eps, HAS_WEIGHT: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_RESIDUAL_OUT: tl.constexpr,
                 WEIGHT_OFFSET: tl.constexpr, MACHINE_EPS: tl.constexpr, BLOCK: tl.constexpr, EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """A row is read once for its squares, and again to be written."""
    WRITE: tl.constexpr = ".cs" if EVICT else ""
    row = tl.program_id(0).to(tl.int64)
    x += row * x_row
    out += row * out_row
    if HAS_RESIDUAL:
        residual += row * residual_row
    if HAS_RESIDUAL_OUT:
        residual_out += row * residual_out_row
    squares = tl.zeros((BLOCK,), tl.float32)
    for begin in tl.range(0, N, BLOCK, num_stages=NUM_STAGES):
        columns = begin + tl.arange(0, BLOCK).to(tl.int64)
        beside = residual + columns * residual_column if HAS_RESIDUAL else x
        values = load_total(x + columns * x_column, beside, columns < N, HAS_RESIDUAL, "").to(tl.float32)
        squares += values * values
    scale = inverse_root(tl.sum(squares, 0), N, eps, MACHINE_EPS)
    for begin in tl.range(0, N, BLOCK, num_stages=NUM_STAGES):
        columns = begin + tl.arange(0, BLOCK).to(tl.int64)
        beside = residual + columns * residual_column if HAS_RESIDUAL else x
        total = load_total(x + columns * x_column, beside, columns < N, HAS_RESIDUAL, "evict_first")
        if HAS_RESIDUAL_OUT:
            tl.store(residual_out + columns * residual_out_column, total, mask=columns < N, cache_modifier=WRITE)
        values = total.to(tl.float32)
        gain = load_gain(weight, columns, weight_step, N, HAS_WEIGHT, WEIGHT_OFFSET)
        result = values * scale * gain if HAS_WEIGHT else values * scale
        tl.store(out + columns * out_column, result.to(out.dtype.element_ty), mask=columns < N, cache_modifier=WRITE)
