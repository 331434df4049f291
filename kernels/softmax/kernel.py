"""autokernel
family  = "softmax"
backend = "triton"

[tune]
HOLD       = { values = [4096, 8192, 16384, 32768], default = 16384, tier = 1 }   # elements of a row that a program holds; a longer one is read twice
TILE       = { values = [1024, 2048, 4096, 8192],   default = 2048,  tier = 1 }   # elements of several short rows to one program
NUM_WARPS  = { values = [0, 1, 2, 4, 8, 16, 32],    default = 0,     tier = 1 }   # 0: one for each 2 KiB of a tile
EVICT      = { values = [0, 1],                     default = 0,     tier = 2 }   # what is read and written is not read again soon
PROGRAMS   = { values = [0, 1, 2, 4, 8],            default = 0,     tier = 4 }   # persistent ones a multiprocessor; 0: one a tile
NUM_STAGES = { values = [1, 2, 3, 4],               default = 1,     tier = 4 }   # tiles of a persistent program in flight
require = ["PROGRAMS > 0 || NUM_STAGES == 1"]

# Rows that a program holds, one or several.
[[variant]]
when = "N <= HOLD"
[[variant.launch]]
kernel     = "softmax_rows"
constexprs = { BLOCK = "pow2ceil(N)", ROWS = "max(1, min(pow2ceil(M), TILE / pow2ceil(N)))", WHOLE = '''N == pow2ceil(N)
  && M % max(1, min(pow2ceil(M), TILE / pow2ceil(N))) == 0''', NUM_WARPS = '''NUM_WARPS > 0 ? NUM_WARPS
  : max(1, min(16, pow2ceil(N) * max(1, min(pow2ceil(M), TILE / pow2ceil(N))) * sizeof(T) / 2048))''' }
grid       = ["PROGRAMS > 0 ? min(cdiv(M, ROWS), PROGRAMS * sm_count) : cdiv(M, ROWS)"]
args       = ["x", "out", "M", "N", "x.stride(0)", "x.stride(1)", "out.stride(0)", "out.stride(1)", "scale"]

# Longer rows.
[[launch]]
kernel     = "softmax_long"
constexprs = { BLOCK = "min(HOLD, 8192)", NUM_WARPS = "NUM_WARPS > 0 ? NUM_WARPS : 8", NUM_STAGES = "max(2, NUM_STAGES)" }
grid       = ["M"]
args       = ["x", "out", "N", "x.stride(0)", "x.stride(1)", "out.stride(0)", "out.stride(1)", "scale"]

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
text = "PROGRAMS * sm_count programs walk over the rows, and load the next tile while they write this one."
"""
import triton
import triton.language as tl


@triton.jit
def exponential(x, EXACT: tl.constexpr):
    """Of what is not positive, or NaN. EXACT: to float32's last digits, by taking whole powers of 2 out first."""
    if EXACT:
        x = tl.where(x < -150.0, -150.0, x)
        whole = tl.floor(x * 1.4426950408889634 + 0.5)
        rest = tl.fma(whole, 2.12194440e-4, tl.fma(whole, -0.693359375, x))
        return tl.exp2(whole) * tl.exp2(rest * 1.4426950408889634)
    else:
        return tl.exp(x)


@triton.jit
def scaled(x, scale, DIVIDE: tl.constexpr):
    if DIVIDE:
        return tl.div_rn(x, scale + tl.zeros_like(x))
    else:
        return x * scale


@triton.jit
def softmax_rows(x, out, M, N, x_row, x_column, out_row, out_column, scale, LOG: tl.constexpr, DIVIDE: tl.constexpr, ROWS: tl.constexpr,
                 BLOCK: tl.constexpr, WHOLE: tl.constexpr, EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """ROWS rows at a time, each of at most BLOCK elements; WHOLE: all rows are there, each of BLOCK elements."""
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    READ: tl.constexpr = "evict_first" if EVICT else ""
    WRITE: tl.constexpr = ".cs" if EVICT else ""
    columns = tl.arange(0, BLOCK).to(tl.int64)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tile * ROWS + tl.arange(0, ROWS).to(tl.int64))[:, None]
        there = (rows < M) & (columns < N)
        source = x + rows * x_row + columns * x_column
        if WHOLE:
            values = scaled(tl.load(source, eviction_policy=READ).to(tl.float32), scale, DIVIDE)
        else:
            raw = tl.load(source, mask=there, other=0.0, eviction_policy=READ).to(tl.float32)
            values = tl.where(columns < N, scaled(raw, scale, DIVIDE), float("-inf"))
        values -= tl.max(values, 1)[:, None]
        powers = exponential(values, EXACT)
        total = tl.sum(powers, 1)[:, None]
        result = values - tl.log(total) if LOG else powers * tl.div_rn(tl.full(total.shape, 1.0, tl.float32), total)
        result = result.to(out.dtype.element_ty)
        if WHOLE:
            tl.store(out + rows * out_row + columns * out_column, result, cache_modifier=WRITE)
        else:
            tl.store(out + rows * out_row + columns * out_column, result, mask=there, cache_modifier=WRITE)


@triton.jit
def softmax_long(x, out, N, x_row, x_column, out_row, out_column, scale, LOG: tl.constexpr, DIVIDE: tl.constexpr, BLOCK: tl.constexpr,
                 EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """A row is read once for its maximum and sum, and again to be written."""
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    WRITE: tl.constexpr = ".cs" if EVICT else ""
    row = tl.program_id(0).to(tl.int64)
    x += row * x_row
    out += row * out_row
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in tl.range(0, N, BLOCK, num_stages=NUM_STAGES):
        columns = begin + tl.arange(0, BLOCK).to(tl.int64)
        raw = tl.load(x + columns * x_column, mask=columns < N, other=0.0).to(tl.float32)
        values = tl.where(columns < N, scaled(raw, scale, DIVIDE), float("-inf"))
        higher = tl.maximum(top, tl.max(values, 0))
        centre = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * exponential(top - centre, EXACT) + exponential(values - centre, EXACT)
        top = higher
    whole = tl.sum(total, 0)
    last = tl.log(whole) if LOG else tl.div_rn(tl.full((), 1.0, tl.float32), whole)
    for begin in tl.range(0, N, BLOCK, num_stages=NUM_STAGES):
        columns = begin + tl.arange(0, BLOCK).to(tl.int64)
        raw = tl.load(x + columns * x_column, mask=columns < N, other=0.0, eviction_policy="evict_first").to(tl.float32)
        values = scaled(raw, scale, DIVIDE) - top
        result = values - last if LOG else exponential(values, EXACT) * last
        tl.store(out + columns * out_column, result.to(out.dtype.element_ty), mask=columns < N, cache_modifier=WRITE)
