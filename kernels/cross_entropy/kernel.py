"""autokernel
family  = "cross_entropy"
backend = "triton"

[tune]
BLOCK      = { values = [1024, 2048, 4096, 8192, 16384], default = 4096, tier = 1 }   # elements of a row to a step
TILE       = { values = [512, 1024, 2048, 4096],   default = 1024,  tier = 1 }        # elements of several short rows to one program
NUM_WARPS  = { values = [1, 2, 4, 8, 16, 32],      default = 4,     tier = 1 }
EVICT      = { values = [0, 1],                    default = 0,     tier = 2 }        # what is read is not read again soon
NUM_STAGES = { values = [1, 2, 3, 4],              default = 2,     tier = 3 }        # steps in flight

[scratch.sums]                                # the loss of each row, when they are reduced
dtype = "float32"
shape = ["REDUCED ? M : 1"]

[[launch]]
kernel     = "cross_entropy_rows"
constexprs = { STEP = "min(BLOCK, pow2ceil(V))", ROWS = "max(1, min(pow2ceil(max(1, M)), TILE / min(TILE, pow2ceil(V))))" }
grid       = ["cdiv(M, ROWS)"]
args       = ["logits", "targets", "weight", "losses", "sums", "M", "V", "logits.stride(0)", "logits.stride(1)", "targets.stride(0)",
              "weight.stride(0)", "losses.stride(0)", "ignore_index", "smoothing"]
[[launch]]
kernel     = "cross_entropy_total"
constexprs = { NUM_WARPS = "8" }
grid       = ["1"]
when       = "REDUCED"
args       = ["sums", "targets", "weight", "loss", "M", "V", "targets.stride(0)", "weight.stride(0)", "ignore_index"]

# A row is one stream of reads: wide steps over it, where there are rows for all multiprocessors fewer threads to each.
[[prior]]
when = "V >= 16384 && M < 4 * sm_count"
set  = { BLOCK = 16384, NUM_WARPS = 16 }
[[prior]]
when = "V >= 4096 && M >= 4 * sm_count"
set  = { BLOCK = 8192, NUM_WARPS = 8 }
[[prior]]
when = "V >= 4096 && M * V * sizeof(T) > l2_bytes"
set  = { EVICT = 1 }
[[prior]]
when = "V <= 512"
set  = { TILE = 2048, NUM_WARPS = 4 }

[[recipe]]
name = "one pass"
tier = 1
when = "V >= 4096"
gain = "2x over a maximum first"
text = "The maximum is carried along and the sum rescaled, so that a row is read once; BLOCK and NUM_WARPS decide how much is in flight."
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
def cross_entropy_rows(logits, targets, weight, losses, sums, M, V, row_step, column_step, target_step, weight_step, loss_step, ignore_index,
                       smoothing, REDUCED: tl.constexpr, PER_ROW: tl.constexpr, SMOOTHED: tl.constexpr, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
                       EVICT: tl.constexpr, NUM_STAGES: tl.constexpr):
    """ROWS rows, each read once in steps: the maximum is carried along, and the sum rescaled to it."""
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    READ: tl.constexpr = "evict_first" if EVICT else ""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = rows < M
    sources = logits + rows[:, None] * row_step
    target = tl.load(targets + rows * target_step, mask=exists, other=0)
    known = (target >= 0) & (target < V)  # PyTorch refuses others
    wanted = tl.load(logits + rows * row_step + tl.where(known, target, 0) * column_step, mask=exists & known, other=float("nan")).to(tl.float32)
    first = tl.load(logits + rows * row_step, mask=exists, other=0.0).to(tl.float32)
    first = tl.where(first - first == 0.0, first, 0.0)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS, STEP), tl.float32)
    from_first = tl.zeros((ROWS, STEP), tl.float32)
    weights = tl.zeros((ROWS, STEP), tl.float32)
    for begin in tl.range(0, V, STEP, num_stages=NUM_STAGES):
        columns = (begin + tl.arange(0, STEP).to(tl.int64))[None, :]
        there = exists[:, None] & (columns < V)
        raw = tl.load(sources + columns * column_step, mask=there, other=0.0, eviction_policy=READ).to(tl.float32)
        values = tl.where(columns < V, raw, float("-inf"))
        higher = tl.maximum(top, tl.max(values, 1))
        centre = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * exponential(top - centre, EXACT)[:, None] + exponential(values - centre[:, None], EXACT)
        top = higher
        if SMOOTHED:
            difference = tl.where(there, raw - first[:, None], 0.0)
            if WEIGHTED:
                share = tl.load(weight + columns * weight_step, mask=columns < V, other=0.0).to(tl.float32)
                weights += share
                from_first += tl.where(share == 0.0, 0.0, share * difference)
            else:
                from_first += difference
    spread = tl.log(tl.sum(total, 1))
    loss = spread + (top - wanted)
    if WEIGHTED:
        loss *= tl.load(weight + tl.where(known, target, 0) * weight_step, mask=exists & known, other=0.0).to(tl.float32)
    if SMOOTHED:
        if WEIGHTED:  # of the losses of all classes
            mean = ((spread + (top - first)) * tl.sum(weights, 1) - tl.sum(from_first, 1)) / V
        else:
            mean = spread + ((top - first) - tl.sum(from_first, 1) / V)
        loss = (1.0 - smoothing) * loss + smoothing * mean
    loss = tl.where(target != ignore_index, loss, 0.0)
    if PER_ROW:
        tl.store(losses + rows * loss_step, loss.to(losses.dtype.element_ty), mask=exists)
    if REDUCED:
        tl.store(sums + rows, loss, mask=exists)


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
