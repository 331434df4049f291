"""autokernel
family  = "reduce"
backend = "triton"

[tune]
BLOCK     = { values = [512, 1024, 2048, 4096, 8192], default = 2048, tier = 1 }   # elements of a row to a step; of a short one its power of 2
TILE      = { values = [1024, 2048, 4096, 8192],   default = 2048,  tier = 1 }     # elements of several rows, or of columns, to a step
NUM_WARPS = { values = [1, 2, 4, 8, 16],           default = 4,     tier = 1 }
WIDTH     = { values = [32, 64, 128, 256, 512],    default = 128,   tier = 1 }     # columns side by side to a program
EVICT     = { values = [0, 1],                     default = 0,     tier = 2 }     # what is read is not read again soon
NUM_STAGES = { values = [1, 2, 3, 4],              default = 2,     tier = 3 }     # steps in flight
SPAN      = { values = [4096, 16384, 65536],       default = 16384, tier = 4 }     # elements of a row, above which few rows are split
DEPTH     = { values = [64, 128, 256, 512, 1024],  default = 256,   tier = 4 }     # the same for columns side by side
require = ["TILE >= WIDTH"]

[scratch.parts]                               # results of the parts of a split reduction
dtype = "float64"
shape = ["max(cdiv(N, SPAN), cdiv(N, DEPTH)) * OUTER * INNER"]

# Places of the largest or smallest.
[[variant]]
when = "OP == 4 || OP == 5"
[[variant.launch]]
kernel     = "reduce_to_places"
constexprs = { STEP = "min(BLOCK, pow2ceil(max(1, N)))", ROWS = "max(1, min(pow2ceil(OUTER * INNER), TILE / min(TILE, pow2ceil(max(1, N)))))" }
grid       = ["cdiv(OUTER * INNER, ROWS)"]
args       = ["x", "index", "OUTER * INNER", "N", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)", "index.stride(0)", "index.stride(1)"]

# Along rows.
[[variant]]
when = "INNER == 1 && (N <= SPAN || OUTER >= 2 * sm_count)"
[[variant.launch]]
kernel     = "reduce_rows"
constexprs = { STEP = "min(BLOCK, pow2ceil(max(1, N)))", ROWS = "max(1, min(pow2ceil(OUTER), TILE / min(TILE, pow2ceil(max(1, N)))))", FIRST = "1", LAST = "1" }
grid       = ["cdiv(OUTER, ROWS)", "1"]
args       = ["x", "out", "OUTER", "N", "N", "max(1, N)", "x.stride(0)", "x.stride(1)", "out.stride(0)", "0"]

# Along few long rows: their parts first.
[[variant]]
when = "INNER == 1"
[[variant.launch]]
kernel     = "reduce_rows"
constexprs = { STEP = "BLOCK", ROWS = "1", FIRST = "1", LAST = "0" }
grid       = ["OUTER", "cdiv(N, SPAN)"]
args       = ["x", "parts", "OUTER", "N", "N", "SPAN", "x.stride(0)", "x.stride(1)", "cdiv(N, SPAN)", "1"]
[[variant.launch]]
kernel     = "reduce_rows"
constexprs = { STEP = "min(BLOCK, pow2ceil(cdiv(N, SPAN)))", ROWS = "1", FIRST = "0", LAST = "1" }
grid       = ["OUTER", "1"]
args       = ["parts", "out", "OUTER", "cdiv(N, SPAN)", "N", "cdiv(N, SPAN)", "cdiv(N, SPAN)", "1", "out.stride(0)", "0"]

# Across rows.
[[variant]]
when = "N <= DEPTH || OUTER * cdiv(INNER, WIDTH) >= 4 * sm_count"
[[variant.launch]]
kernel     = "reduce_columns"
constexprs = { STEP = "min(TILE / WIDTH, pow2ceil(max(1, N)))", FIRST = "1", LAST = "1" }
grid       = ["OUTER * cdiv(INNER, WIDTH)", "1"]
args       = ["x", "out", "N", "N", "max(1, N)", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)", "out.stride(0)", "out.stride(1)", "0"]

[[launch]]
kernel     = "reduce_columns"
constexprs = { STEP = "TILE / WIDTH", FIRST = "1", LAST = "0" }
grid       = ["OUTER * cdiv(INNER, WIDTH)", "cdiv(N, DEPTH)"]
args       = ["x", "parts", "N", "N", "DEPTH", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)", "cdiv(N, DEPTH) * INNER", "1", "INNER"]
[[launch]]
kernel     = "reduce_columns"
constexprs = { STEP = "min(TILE / WIDTH, pow2ceil(cdiv(N, DEPTH)))", FIRST = "0", LAST = "1" }
grid       = ["OUTER * cdiv(INNER, WIDTH)", "1"]
args       = ["parts", "out", "cdiv(N, DEPTH)", "N", "cdiv(N, DEPTH)", "INNER", "cdiv(N, DEPTH) * INNER", "INNER", "1", "out.stride(0)", "out.stride(1)", "0"]

# Rows: steps as long as the row where it is short enough, so that its loads are in flight together.
[[prior]]
when = "INNER == 1 && N > 2048 && N <= 8192"
set  = { BLOCK = 8192, NUM_WARPS = 8 }
[[prior]]
when = "INNER == 1 && N <= 1024 && OUTER * N >= 8 * 4096 * sm_count"
set  = { TILE = 4096, NUM_WARPS = 4 }
# Columns: wide enough that a warp reads whole lines, few enough that all multiprocessors have some.
[[prior]]
when = "INNER > 1 && OUTER * cdiv(INNER, 256) >= 4 * sm_count"
set  = { WIDTH = 256, TILE = 4096, NUM_WARPS = 8 }
[[prior]]
when = "INNER > 1 && OUTER * cdiv(INNER, 128) < 2 * sm_count"
set  = { WIDTH = 64, DEPTH = 128 }
[[prior]]
when = "OUTER * N * INNER * sizeof(T) > l2_bytes"
set  = { EVICT = 1 }

[[recipe]]
name = "enough programs"
tier = 1
when = "OUTER * INNER < 64"
gain = "up to the number of idle multiprocessors"
text = "Few results and many elements: a lower SPAN or DEPTH gives every multiprocessor several parts. The parts are merged in order."
"""
import triton
import triton.language as tl


@triton.jit
def neutral(OP: tl.constexpr):
    return float("-inf") if OP == 2 else (float("inf") if OP == 3 else (1.0 if OP == 6 else 0.0))


@triton.jit
def multiply(left, right):
    return left * right


@triton.jit
def prepared(values, OP: tl.constexpr, FIRST: tl.constexpr):
    """An element of x as it is joined; results of parts are that already."""
    return values * values if OP == 7 and FIRST else values


@triton.jit
def join(total, values, OP: tl.constexpr):
    """Element by element; NaN wins."""
    if OP == 2:
        return tl.where((total > values) | (total != total), total, values)
    elif OP == 3:
        return tl.where((total < values) | (total != total), total, values)
    elif OP == 6:
        return total * values
    else:
        return total + values


@triton.jit
def along(values, AXIS: tl.constexpr, OP: tl.constexpr):
    if OP == 2 or OP == 3:
        invalid = tl.max((values != values).to(tl.int32), AXIS)
        result = tl.max(values, AXIS) if OP == 2 else tl.min(values, AXIS)
        return tl.where(invalid > 0, float("nan"), result)
    elif OP == 6:
        return tl.reduce(values, AXIS, multiply)
    else:
        return tl.sum(values, AXIS)


@triton.jit
def finish(total, count, OP: tl.constexpr, LAST: tl.constexpr):
    if OP == 7 and LAST:
        return tl.sqrt_rn(total)
    return total / count if OP == 1 and LAST else total


@triton.jit
def reduce_rows(x, out, OUTER, N, count, span, x_outer, x_step, out_outer, out_part, OP: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
                FIRST: tl.constexpr, LAST: tl.constexpr, EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """The part of program_id(1), `span` elements, of ROWS rows. `count`: what a mean is divided by."""
    READ: tl.constexpr = "evict_first" if EVICT else ""
    WIDE: tl.constexpr = tl.float64 if OP == 6 else tl.float32  # the errors of all factors add up
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1).to(tl.int64)
    begin = part * span
    end = tl.minimum(begin + span, N)
    sources = x + rows[:, None] * x_outer
    totals = tl.full((ROWS, STEP), neutral(OP), WIDE)
    for at in tl.range(begin, end, STEP, num_stages=NUM_STAGES):
        columns = (at + tl.arange(0, STEP).to(tl.int64))[None, :]
        there = (rows[:, None] < OUTER) & (columns < end)
        values = tl.load(sources + columns * x_step, mask=there, other=neutral(OP), eviction_policy=READ).to(WIDE)
        totals = join(totals, prepared(values, OP, FIRST), OP)
    result = finish(along(totals, 1, OP), count, OP, LAST)
    tl.store(out + rows * out_outer + part * out_part, result.to(out.dtype.element_ty), mask=rows < OUTER)


@triton.jit
def reduce_columns(x, out, N, count, span, INNER, x_outer, x_step, x_inner, out_outer, out_inner, out_part, OP: tl.constexpr, WIDTH: tl.constexpr,
                   STEP: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """The part of program_id(1), `span` rows, of WIDTH columns of one matrix."""
    READ: tl.constexpr = "evict_first" if EVICT else ""
    WIDE: tl.constexpr = tl.float64 if OP == 6 else tl.float32  # the errors of all factors add up
    tiles = tl.cdiv(INNER, WIDTH)
    outer = (tl.program_id(0) // tiles).to(tl.int64)
    columns = (tl.program_id(0) % tiles).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    part = tl.program_id(1).to(tl.int64)
    begin = part * span
    end = tl.minimum(begin + span, N)
    sources = x + outer * x_outer + columns[None, :] * x_inner
    totals = tl.full((STEP, WIDTH), neutral(OP), WIDE)
    for at in tl.range(begin, end, STEP, num_stages=NUM_STAGES):
        rows = (at + tl.arange(0, STEP).to(tl.int64))[:, None]
        there = (rows < end) & (columns[None, :] < INNER)
        values = tl.load(sources + rows * x_step, mask=there, other=neutral(OP), eviction_policy=READ).to(WIDE)
        totals = join(totals, prepared(values, OP, FIRST), OP)
    result = finish(along(totals, 0, OP), count, OP, LAST)
    tl.store(out + outer * out_outer + part * out_part + columns * out_inner, result.to(out.dtype.element_ty), mask=columns < INNER)


@triton.jit
def reduce_to_places(x, index, results, N, INNER, x_outer, x_step, x_inner, index_outer, index_inner, OP: tl.constexpr, ROWS: tl.constexpr,
                     STEP: tl.constexpr, EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """The first place of the largest (OP 4) or smallest of each of ROWS results; NaN is either."""
    READ: tl.constexpr = "evict_first" if EVICT else ""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = rows < results
    sources = x + (rows // INNER)[:, None] * x_outer + (rows % INNER)[:, None] * x_inner
    lanes = tl.arange(0, STEP).to(tl.int64)[None, :]
    best = tl.full((ROWS, STEP), float("-inf"), tl.float32)
    places = tl.zeros((ROWS, STEP), tl.int64) + tl.where(lanes < N, lanes, N)
    for at in tl.range(0, N, STEP, num_stages=NUM_STAGES):
        columns = at + lanes
        there = exists[:, None] & (columns < N)
        values = tl.load(sources + columns * x_step, mask=there, other=0.0, eviction_policy=READ).to(tl.float32)
        values = tl.where(columns < N, values if OP == 4 else -values, float("-inf"))
        better = (values > best) | ((values != values) & (best == best))
        best = tl.where(better, values, best)
        places = tl.where(better, columns, places)
    invalid = tl.max((best != best).to(tl.int32), 1)[:, None]
    top = tl.max(tl.where(best == best, best, float("-inf")), 1)[:, None]
    chosen = tl.where(invalid > 0, best != best, best == top)
    place = tl.min(tl.where(chosen, places, N), 1)
    place = tl.where(place < N, place, -1)
    tl.store(index + (rows // INNER) * index_outer + (rows % INNER) * index_inner, place, mask=exists)
