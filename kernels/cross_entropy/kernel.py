"""autokernel
family  = "cross_entropy"
backend = "triton"

[tune]
BLOCK      = { values = [512, 1024, 2048, 4096, 8192, 16384], default = 2048, tier = 1 }   # elements of a long row to a step
TILE       = { values = [512, 1024, 2048, 4096],   default = 1024,  tier = 1 }        # elements of short rows, one or several, that a program holds
NUM_WARPS  = { values = [1, 2, 4, 8, 16, 32],      default = 4,     tier = 1 }
EVICT      = { values = [0, 1],                    default = 0,     tier = 2 }        # what is read is not read again soon
NUM_STAGES = { values = [1, 2, 3, 4],              default = 1,     tier = 3 }        # steps in flight

[scratch.sums]                                # the loss of each row, when they are reduced
dtype = "float32"
shape = ["REDUCED ? M : 1"]

# Rows that a program holds, one or several.
[[variant]]
when = "V <= TILE"
[[variant.launch]]
kernel     = "cross_entropy_rows"
constexprs = { BLOCK = "pow2ceil(V)", ROWS = "max(1, min(pow2ceil(max(1, M)), TILE / pow2ceil(V)))" }
grid       = ["cdiv(M, ROWS)"]
args       = ["logits", "targets", "weight", "losses", "sums", "M", "V", "logits.stride(0)", "logits.stride(1)", "targets.stride(0)",
              "weight.stride(0)", "losses.stride(0)", "ignore_index", "smoothing"]
[[variant.launch]]
kernel     = "cross_entropy_total"
constexprs = { NUM_WARPS = "8" }
grid       = ["1"]
when       = "REDUCED"
args       = ["sums", "targets", "weight", "loss", "M", "V", "targets.stride(0)", "weight.stride(0)", "ignore_index"]

# Longer rows.
[[launch]]
kernel     = "cross_entropy_long"
constexprs = { STREAM = "logits.stride(1) == 1" }
grid       = ["M"]
args       = ["logits", "targets", "weight", "losses", "sums", "V", "logits.stride(0)", "logits.stride(1)", "targets.stride(0)", "weight.stride(0)",
              "losses.stride(0)", "ignore_index", "smoothing"]
[[launch]]
kernel     = "cross_entropy_total"
constexprs = { NUM_WARPS = "8" }
grid       = ["1"]
when       = "REDUCED"
args       = ["sums", "targets", "weight", "loss", "M", "V", "targets.stride(0)", "weight.stride(0)", "ignore_index"]

# A row is one stream of reads. Where there are rows for all multiprocessors, two loads of 16 bytes to a thread are enough.
[[prior]]
when = "V >= 16384 && M < 4 * sm_count"
set  = { BLOCK = 16384, NUM_WARPS = 16 }
[[prior]]
when = "V > 1024 && M * V * sizeof(T) > l2_bytes && sizeof(T) == 2"
set  = { EVICT = 1 }
[[prior]]
when = "V > 1024 && sizeof(T) == 4"
set  = { BLOCK = 1024, EVICT = 1 }
[[prior]]
when = "V > 1024"
set  = { BLOCK = 1024, NUM_WARPS = 1, EVICT = 1 }
[[prior]]
when = "V > 4096"
set  = { BLOCK = 4096, NUM_WARPS = 8, EVICT = 1 }
[[prior]]
when = "V <= 512"
set  = { TILE = 2048, NUM_WARPS = 4 }

[[recipe]]
name = "one pass"
tier = 1
when = "V >= 4096"
gain = "2x over a maximum first"
text = "The maxima are carried along and the sums rescaled, so that a row is read once; BLOCK and NUM_WARPS decide how much is in flight."
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
def row_loss(spread, top, wanted, first, from_first, weights, target_weight, V, smoothing, SMOOTHED: tl.constexpr, WEIGHTED: tl.constexpr):
    """Of log sum exp, `spread` above the largest; `from_first` and `weights`: sums over the classes, for the smoothed part."""
    loss = spread + (top - wanted)
    if WEIGHTED:
        loss *= target_weight
    if SMOOTHED:
        if WEIGHTED:  # of the losses of all classes
            mean = ((spread + (top - first)) * weights - from_first) / V
        else:
            mean = spread + ((top - first) - from_first / V)
        loss = (1.0 - smoothing) * loss + smoothing * mean
    return loss


@triton.jit
def finite_or_0(x):
    return tl.where(x - x == 0.0, x, 0.0)


@triton.jit
def smoothed(raw, first, weight, columns, weight_step, there, WEIGHTED: tl.constexpr):
    """What each class adds to `from_first`, and its weight."""
    difference = tl.where(there, raw - first, 0.0)
    if WEIGHTED:
        share = tl.load(weight + columns * weight_step, mask=there, other=0.0).to(tl.float32)
        return tl.where(share == 0.0, 0.0, share * difference), share
    else:
        return difference, difference


@triton.jit
def cross_entropy_rows(logits, targets, weight, losses, sums, M, V, row_step, column_step, target_step, weight_step, loss_step, ignore_index,
                       smoothing, REDUCED: tl.constexpr, PER_ROW: tl.constexpr, SMOOTHED: tl.constexpr, WEIGHTED: tl.constexpr, ROWS: tl.constexpr,
                       BLOCK: tl.constexpr, EVICT: tl.constexpr):
    """ROWS rows of at most BLOCK elements."""
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = rows < M
    sources = logits + rows * row_step
    target = tl.load(targets + rows * target_step, mask=exists, other=0)
    known = exists & (target >= 0) & (target < V)  # PyTorch refuses others
    target_class = tl.where(known, target, 0)
    wanted = tl.load(sources + target_class * column_step, mask=known, other=float("nan")).to(tl.float32)
    target_weight = tl.load(weight + target_class * weight_step, mask=known, other=0.0).to(tl.float32) if WEIGHTED else 1.0
    columns = tl.arange(0, BLOCK).to(tl.int64)[None, :]
    there = exists[:, None] & (columns < V)
    raw = tl.load(sources[:, None] + columns * column_step, mask=there, other=0.0, eviction_policy="evict_first" if EVICT else "").to(tl.float32)
    values = tl.where(columns < V, raw, float("-inf"))
    top = tl.max(values, 1)
    centre = tl.where(top == float("-inf"), 0.0, top)
    spread = tl.log(tl.sum(exponential(values - centre[:, None], EXACT), 1))
    first = finite_or_0(tl.load(sources, mask=exists, other=0.0).to(tl.float32))
    from_first, weights = first, first
    if SMOOTHED:
        part, share = smoothed(raw, first[:, None], weight, columns, weight_step, there, WEIGHTED)
        from_first, weights = tl.sum(part, 1), tl.sum(share, 1)
    loss = row_loss(spread, top, wanted, first, from_first, weights, target_weight, V, smoothing, SMOOTHED, WEIGHTED)
    loss = tl.where(target != ignore_index, loss, 0.0)
    if PER_ROW:
        tl.store(losses + rows * loss_step, loss.to(losses.dtype.element_ty), mask=exists)
    if REDUCED:
        tl.store(sums + rows, loss, mask=exists)


@triton.jit
def cross_entropy_long(logits, targets, weight, losses, sums, V, row_step, column_step, target_step, weight_step, loss_step, ignore_index, smoothing,
                       REDUCED: tl.constexpr, PER_ROW: tl.constexpr, SMOOTHED: tl.constexpr, WEIGHTED: tl.constexpr, STREAM: tl.constexpr,
                       BLOCK: tl.constexpr, EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """One row, read once in steps. Each vector's place in a step has a maximum of its own and a sum that is rescaled to it, so that threads meet at
    the end only. STREAM: the elements lie side by side, and are read from one multiple of 16 bytes to another, the ends apart."""
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    READ: tl.constexpr = "evict_first" if EVICT else ""
    VECTOR: tl.constexpr = 128 // logits.dtype.element_ty.primitive_bitwidth
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row * target_step)
    known = (target >= 0) & (target < V)  # PyTorch refuses others
    target_class = tl.where(known, target, 0)
    source = row * row_step
    wanted = tl.load(logits + source + target_class * column_step, mask=known, other=float("nan")).to(tl.float32)
    target_weight = tl.load(weight + target_class * weight_step, mask=known, other=0.0).to(tl.float32) if WEIGHTED else 1.0
    first = finite_or_0(tl.load(logits + source).to(tl.float32))
    # Places count from the row's beginning, or from the tensor's where that tells which of them are multiples of a vector.
    if STREAM:
        origin = source
    else:
        logits += source
        origin = source * 0
    begin = tl.cdiv(origin, VECTOR) * VECTOR
    end = (origin + V) // VECTOR * VECTOR
    side = tl.arange(0, 2 * VECTOR)
    at = tl.where(side < VECTOR, origin + side, end + (side - VECTOR))
    there = tl.where(side < VECTOR, at < begin, at < origin + V)
    raw = tl.load(logits + at * column_step, mask=there, other=float("-inf")).to(tl.float32)
    top = tl.max(raw, 0)
    centre = tl.where(top == float("-inf"), 0.0, top)
    rest = tl.sum(exponential(raw - centre, EXACT), 0)
    from_first, weights = first, first
    if SMOOTHED:
        part, share = smoothed(raw, first, weight, at - origin, weight_step, there, WEIGHTED)
        from_first, weights = tl.sum(part, 0), tl.sum(share, 0)
    tops = tl.full((BLOCK // VECTOR,), float("-inf"), tl.float32)
    totals = tl.zeros((BLOCK // VECTOR,), tl.float32)
    parts = tl.zeros((BLOCK // VECTOR,), tl.float32)
    shares = tl.zeros((BLOCK // VECTOR,), tl.float32)
    places = tl.arange(0, BLOCK // VECTOR).to(tl.int64)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    for step in tl.range(begin, end, BLOCK, num_stages=NUM_STAGES):
        place = step + places
        values = tl.load(logits + place * column_step, mask=place < end, other=float("-inf"), eviction_policy=READ).to(tl.float32)
        higher = tl.maximum(tops, tl.max(values, 1))
        centres = tl.where(higher == float("-inf"), 0.0, higher)
        totals = totals * exponential(tops - centres, EXACT) + tl.sum(exponential(values - centres[:, None], EXACT), 1)
        tops = higher
        if SMOOTHED:
            step_part, step_share = smoothed(values, first, weight, place - origin, weight_step, place < end, WEIGHTED)
            parts += tl.sum(step_part, 1)
            shares += tl.sum(step_share, 1)
    highest = tl.maximum(top, tl.max(tops, 0))
    peak = tl.where(highest == float("-inf"), 0.0, highest)
    spread = tl.log(tl.sum(totals * exponential(tops - peak, EXACT), 0) + rest * exponential(top - peak, EXACT))
    from_first += tl.sum(parts, 0)
    weights += tl.sum(shares, 0)
    loss = row_loss(spread, highest, wanted, first, from_first, weights, target_weight, V, smoothing, SMOOTHED, WEIGHTED)
    loss = tl.where(target != ignore_index, loss, 0.0)
    if PER_ROW:
        tl.store(losses + row * loss_step, loss.to(losses.dtype.element_ty))
    if REDUCED:
        tl.store(sums + row, loss)


@triton.jit
def cross_entropy_total(sums, targets, weight, loss, M, V, target_step, weight_step, ignore_index, MEAN: tl.constexpr, WEIGHTED: tl.constexpr):
    """The sum or mean over the rows that count, in one order."""
    STEP: tl.constexpr = 2048
    total = tl.zeros((STEP,), tl.float32)
    count = tl.zeros((STEP,), tl.float32)
    for begin in tl.range(0, M, STEP):
        rows = begin + tl.arange(0, STEP).to(tl.int64)
        total += tl.load(sums + rows, mask=rows < M, other=0.0)
        target = tl.load(targets + rows * target_step, mask=rows < M, other=ignore_index)
        counts = target != ignore_index
        if WEIGHTED:
            known = counts & (target >= 0) & (target < V)
            count += tl.load(weight + tl.where(known, target, 0) * weight_step, mask=known, other=0.0).to(tl.float32)
        else:
            count += counts.to(tl.float32)
    result = tl.sum(total, 0)
    if MEAN:
        result = result / tl.sum(count, 0)
    tl.store(loss, result.to(loss.dtype.element_ty))
