"""autokernel
family  = "layernorm"
backend = "triton"

[tune]
HOLD       = { values = [4096, 8192, 16384, 32768], default = 16384, tier = 1 }   # elements of a row that a program holds; a longer one is read three times
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
kernel     = "layernorm_rows"
constexprs = { BLOCK = "pow2ceil(N)", ROWS = "max(1, min(pow2ceil(M), TILE / pow2ceil(N)))", WHOLE = '''N == pow2ceil(N)
  && M % max(1, min(pow2ceil(M), TILE / pow2ceil(N))) == 0''', NUM_WARPS = '''NUM_WARPS > 0 ? NUM_WARPS
  : max(1, min(16, pow2ceil(N) * max(1, min(pow2ceil(M), TILE / pow2ceil(N))) * sizeof(T) / 4096))''' }
grid       = ["PROGRAMS > 0 ? min(cdiv(M, ROWS), PROGRAMS * sm_count) : cdiv(M, ROWS)"]
args       = ["x", "weight", "bias", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "bias.stride(0)",
              "residual.stride(0)", "residual.stride(1)", "out.stride(0)", "out.stride(1)", "residual_out.stride(0)", "residual_out.stride(1)", "eps"]

# Longer rows.
[[launch]]
kernel     = "layernorm_long"
constexprs = { BLOCK = "min(HOLD, 8192)", NUM_WARPS = "NUM_WARPS > 0 ? NUM_WARPS : 8", NUM_STAGES = "max(2, NUM_STAGES)" }
grid       = ["M"]
args       = ["x", "weight", "bias", "residual", "out", "residual_out", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "bias.stride(0)",
              "residual.stride(0)", "residual.stride(1)", "out.stride(0)", "out.stride(1)", "residual_out.stride(0)", "residual_out.stride(1)", "eps"]

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
def inverse_root(variance, eps):
    variance = tl.where(variance < 0.0, 0.0, variance)  # NaN stays
    root = tl.sqrt_rn(variance + eps)
    return tl.div_rn(tl.full(root.shape, 1.0, tl.float32), root)


@triton.jit
def load_vector(vector, columns, step, N, HAS: tl.constexpr, WHOLE: tl.constexpr = False):
    if HAS and WHOLE:
        return tl.load(vector + columns * step, eviction_policy="evict_last").to(tl.float32)
    elif HAS:
        return tl.load(vector + columns * step, mask=columns < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
    else:
        return tl.zeros(columns.shape, tl.float32)


@triton.jit
def rounded_sum(a, b):
    return (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype)


@triton.jit
def load(x, there, EVICT: tl.constexpr, WHOLE: tl.constexpr):
    """What lies there, else 0. WHOLE: it lies there."""
    if WHOLE:
        return tl.load(x, eviction_policy=EVICT)
    else:
        return tl.load(x, mask=there, other=0.0, eviction_policy=EVICT)


@triton.jit
def store(x, values, there, WRITE: tl.constexpr, WHOLE: tl.constexpr):
    if WHOLE:
        tl.store(x, values, cache_modifier=WRITE)
    else:
        tl.store(x, values, mask=there, cache_modifier=WRITE)


@triton.jit
def load_total(x, residual, there, HAS_RESIDUAL: tl.constexpr, EVICT: tl.constexpr, WHOLE: tl.constexpr = False):
    """x, or x + residual as it lies in memory."""
    values = load(x, there, EVICT, WHOLE)
    if HAS_RESIDUAL:
        values = rounded_sum(values, load(residual, there, EVICT, WHOLE))
    return values


@triton.jit
def finish(normal, weight, bias, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr):
    if HAS_WEIGHT:
        normal = normal * weight
    if HAS_BIAS:
        normal = normal + bias
    return normal


@triton.jit
def add_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def variance_of(squares, first, N):
    """From sums around a mean that lacks `first` / N: with finite squares, so that an infinity is not taken from another."""
    excess = tl.where(squares < float("inf"), first * (first / N), 0.0)
    return (squares - excess) / N


# The mean is found around the first element of the row, so that equal elements give exactly 0 and a common offset costs no digits. What the
# mean lacks as a float shows in float32 alone, and is found with the squares.


@triton.jit
def layernorm_rows(x, weight, bias, residual, out, residual_out, M, N, x_row, x_column, weight_step, bias_step, residual_row, residual_column, out_row,
                   out_column, residual_out_row, residual_out_column, eps, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
                   HAS_RESIDUAL: tl.constexpr, HAS_RESIDUAL_OUT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
                   EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """ROWS rows at a time, each of at most BLOCK elements; WHOLE: all rows are there, each of BLOCK elements."""
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    READ: tl.constexpr = "evict_first" if EVICT else ""
    WRITE: tl.constexpr = ".cs" if EVICT else ""
    columns = tl.arange(0, BLOCK).to(tl.int64)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tile * ROWS + tl.arange(0, ROWS).to(tl.int64))[:, None]
        there = (rows < M) & (columns < N)
        sources = x + rows * x_row
        beside = residual + rows * residual_row if HAS_RESIDUAL else sources
        beside_column = residual_column if HAS_RESIDUAL else x_column
        total = load_total(sources + columns * x_column, beside + columns * beside_column, there, HAS_RESIDUAL, READ, WHOLE)
        if HAS_RESIDUAL_OUT:
            store(residual_out + rows * residual_out_row + columns * residual_out_column, total, there, WRITE, WHOLE)
        first = load_total(sources, beside, rows < (M if N > 0 else 0), HAS_RESIDUAL, "", WHOLE).to(tl.float32)
        from_first = total.to(tl.float32) - first
        if not WHOLE:
            from_first = tl.where(columns < N, from_first, 0.0)
        mean = (tl.sum(from_first, 1) / N)[:, None]
        centred = from_first - mean
        if not WHOLE:
            centred = tl.where(columns < N, centred, 0.0)
        if EXACT:
            lacks, squares = tl.reduce((centred, centred * centred), 1, add_both)
            lack = lacks[:, None]
            scale = inverse_root(variance_of(squares[:, None], lack, N), eps)
            centred -= lack / N
        else:
            scale = inverse_root(tl.sum(centred * centred, 1)[:, None] / N, eps)
        gain = load_vector(weight, columns, weight_step, N, HAS_WEIGHT, WHOLE)
        shift = load_vector(bias, columns, bias_step, N, HAS_BIAS, WHOLE)
        result = finish(centred * scale, gain, shift, HAS_WEIGHT, HAS_BIAS)
        store(out + rows * out_row + columns * out_column, result.to(out.dtype.element_ty), there, WRITE, WHOLE)


@triton.jit
def layernorm_long(x, weight, bias, residual, out, residual_out, N, x_row, x_column, weight_step, bias_step, residual_row, residual_column, out_row,
                   out_column, residual_out_row, residual_out_column, eps, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
                   HAS_RESIDUAL: tl.constexpr, HAS_RESIDUAL_OUT: tl.constexpr, BLOCK: tl.constexpr, EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """A row is read for its mean, for its squares around that, and to be written."""
    WRITE: tl.constexpr = ".cs" if EVICT else ""
    row = tl.program_id(0).to(tl.int64)
    x += row * x_row
    out += row * out_row
    if HAS_RESIDUAL:
        residual += row * residual_row
    if HAS_RESIDUAL_OUT:
        residual_out += row * residual_out_row
    first = (rounded_sum(tl.load(x), tl.load(residual)) if HAS_RESIDUAL else tl.load(x)).to(tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    for begin in tl.range(0, N, BLOCK, num_stages=NUM_STAGES):
        columns = begin + tl.arange(0, BLOCK).to(tl.int64)
        beside = residual + columns * residual_column if HAS_RESIDUAL else x
        values = load_total(x + columns * x_column, beside, columns < N, HAS_RESIDUAL, "").to(tl.float32)
        sums += tl.where(columns < N, values - first, 0.0)
    mean = tl.sum(sums, 0) / N
    lacks = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for begin in tl.range(0, N, BLOCK, num_stages=NUM_STAGES):
        columns = begin + tl.arange(0, BLOCK).to(tl.int64)
        beside = residual + columns * residual_column if HAS_RESIDUAL else x
        values = load_total(x + columns * x_column, beside, columns < N, HAS_RESIDUAL, "").to(tl.float32)
        centred = tl.where(columns < N, (values - first) - mean, 0.0)
        lacks += centred
        squares += centred * centred
    lack = tl.sum(lacks, 0)
    scale = inverse_root(variance_of(tl.sum(squares, 0), lack, N), eps)
    for begin in tl.range(0, N, BLOCK, num_stages=NUM_STAGES):
        columns = begin + tl.arange(0, BLOCK).to(tl.int64)
        beside = residual + columns * residual_column if HAS_RESIDUAL else x
        total = load_total(x + columns * x_column, beside, columns < N, HAS_RESIDUAL, "evict_first")
        if HAS_RESIDUAL_OUT:
            tl.store(residual_out + columns * residual_out_column, total, mask=columns < N, cache_modifier=WRITE)
        values = total.to(tl.float32)
        gain = load_vector(weight, columns, weight_step, N, HAS_WEIGHT)
        shift = load_vector(bias, columns, bias_step, N, HAS_BIAS)
        result = finish((((values - first) - mean) - lack / N) * scale, gain, shift, HAS_WEIGHT, HAS_BIAS)
        tl.store(out + columns * out_column, result.to(out.dtype.element_ty), mask=columns < N, cache_modifier=WRITE)
