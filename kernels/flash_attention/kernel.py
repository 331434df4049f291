"""autokernel
family  = "flash_attention"
backend = "triton"

[tune]
BLOCK_M    = { values = [16, 32, 64, 128, 256], default = 128, tier = 1 }   # queries to a program
BLOCK_N    = { values = [16, 32, 64, 128],      default = 64,  tier = 1 }   # keys to a step
NUM_WARPS  = { values = [2, 4, 8, 16],          default = 8,   tier = 1 }
NUM_STAGES = { values = [1, 2, 3, 4],           default = 3,   tier = 3 }
TMA        = { values = [0, 1],                 default = 0,   tier = 5 }   # keys and values are fetched by the copy engine
MAXNREG    = { values = [0, 128, 168, 255],     default = 0,   tier = 5 }   # registers of a thread at most; 0: as the compiler likes
require = ["BLOCK_M * max(16, pow2ceil(D)) <= 32768", "BLOCK_M * BLOCK_N >= 512 * NUM_WARPS / 2",
           "(BLOCK_M + 2 * NUM_STAGES * BLOCK_N) * max(16, pow2ceil(D)) * sizeof(T) <= shared_per_block || sizeof(T) == 4",
           "compute_capability >= 90 || TMA == 0", "MAXNREG == 0 || MAXNREG * NUM_WARPS * 32 <= 65536"]

# Keys and values by the copy engine: rows must begin at multiples of 16 bytes.
[[variant]]
when = '''TMA && aligned && sizeof(T) == 2 && k.stride(3) == 1 && v.stride(3) == 1 && D >= 16 && k.stride(0) % 8 == 0 && k.stride(1) % 8 == 0
  && k.stride(2) % 8 == 0 && v.stride(0) % 8 == 0 && v.stride(1) % 8 == 0 && v.stride(2) % 8 == 0 && L > 0'''
[[variant.launch]]
kernel     = "attend"
constexprs = { FETCHED = "1", WIDTH = "D", BLOCK_D = "max(16, pow2ceil(D))", BLOCK_M = "min(BLOCK_M, max(16, pow2ceil(S)))" }
grid       = ["B * H * cdiv(S, BLOCK_M)"]
args       = ["q", "k", "v", "mask", "bool_mask", "out", "H", "H / max(1, G)", "S", "L", "scale", "q.stride(0)", "q.stride(1)", "q.stride(2)",
              "q.stride(3)", "k.stride(0)", "k.stride(1)", "k.stride(2)", "k.stride(3)", "v.stride(0)", "v.stride(1)", "v.stride(2)", "v.stride(3)",
              "mask.stride(0)", "mask.stride(1)", "mask.stride(2)", "mask.stride(3)", "bool_mask.stride(0)", "bool_mask.stride(1)",
              "bool_mask.stride(2)", "bool_mask.stride(3)", "out.stride(0)", "out.stride(1)", "out.stride(2)", "out.stride(3)"]

[[launch]]
kernel     = "attend"
constexprs = { FETCHED = "0", WIDTH = "D", BLOCK_D = "max(16, pow2ceil(D))", BLOCK_M = "min(sizeof(T) == 4 ? min(BLOCK_M, 64) : BLOCK_M, max(16, pow2ceil(S)))", BLOCK_N = "sizeof(T) == 4 ? min(BLOCK_N, 32) : BLOCK_N", NUM_STAGES = "sizeof(T) == 4 ? min(NUM_STAGES, 2) : NUM_STAGES" }
grid       = ["B * H * cdiv(S, BLOCK_M)"]
args       = ["q", "k", "v", "mask", "bool_mask", "out", "H", "H / max(1, G)", "S", "L", "scale", "q.stride(0)", "q.stride(1)", "q.stride(2)",
              "q.stride(3)", "k.stride(0)", "k.stride(1)", "k.stride(2)", "k.stride(3)", "v.stride(0)", "v.stride(1)", "v.stride(2)", "v.stride(3)",
              "mask.stride(0)", "mask.stride(1)", "mask.stride(2)", "mask.stride(3)", "bool_mask.stride(0)", "bool_mask.stride(1)",
              "bool_mask.stride(2)", "bool_mask.stride(3)", "out.stride(0)", "out.stride(1)", "out.stride(2)", "out.stride(3)"]

# The fragments of 128 queries and of the sums fit the registers of 4 warps for heads of 64, of 8 for wider ones.
[[prior]]
when = "sizeof(T) == 2 && D <= 64 && B * H * cdiv(S, 128) >= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 64, NUM_WARPS = 4, NUM_STAGES = 3 }
[[prior]]
when = "sizeof(T) == 2 && D <= 64 && B * H * cdiv(S, 128) >= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 128, NUM_WARPS = 8, NUM_STAGES = 3 }
[[prior]]
when = "sizeof(T) == 2 && D > 64 && D <= 128 && B * H * cdiv(S, 128) >= sm_count"
set  = { BLOCK_M = 128, BLOCK_N = 128, NUM_WARPS = 8, NUM_STAGES = 2 }
[[prior]]
when = "sizeof(T) == 2 && compute_capability >= 90 && D > 64 && D <= 128 && S >= 512"
set  = { BLOCK_M = 128, BLOCK_N = 128, NUM_WARPS = 8, NUM_STAGES = 2, TMA = 1 }
# Many queries: a program that has more of them reads keys and values less often.
[[prior]]
when = "sizeof(T) == 2 && compute_capability >= 90 && D > 64 && D <= 128 && B * H * cdiv(S, 256) >= sm_count"
set  = { BLOCK_M = 256, BLOCK_N = 128, NUM_WARPS = 8, NUM_STAGES = 2, TMA = 1 }
[[prior]]
when = "sizeof(T) == 2 && compute_capability >= 90 && D > 64 && D <= 128 && B * H * cdiv(S, 256) >= sm_count"
set  = { BLOCK_M = 256, BLOCK_N = 128, NUM_WARPS = 8, NUM_STAGES = 2 }
# Fewer tiles of queries than multiprocessors.
[[prior]]
when = "sizeof(T) == 2 && S > 16 && B * H * cdiv(S, 128) < sm_count"
set  = { BLOCK_M = 64, BLOCK_N = 64, NUM_WARPS = 4, NUM_STAGES = 3 }
# A few queries read all keys and values: long steps, deep stages.
[[prior]]
when = "sizeof(T) == 2 && S <= 16"
set  = { BLOCK_M = 16, BLOCK_N = 128, NUM_WARPS = 4, NUM_STAGES = 3 }
[[prior]]
when = "sizeof(T) == 4"
set  = { BLOCK_M = 32, BLOCK_N = 32, NUM_WARPS = 4, NUM_STAGES = 2 }

[[recipe]]
name = "the copy engine"
tier = 5
when = "S >= 512 && L >= 512"
gain = "1.2x"
text = "TMA = 1 frees the registers that addresses take."
"""
import triton
import triton.language as tl


@triton.jit
def load_keys(pointer, fetcher, at, places, width, row_step, column_step, L, FETCHED: tl.constexpr, MASKED: tl.constexpr, WIDTH: tl.constexpr,
              BLOCK_D: tl.constexpr):
    """[keys, elements] of k or v; zero beyond both."""
    if FETCHED:
        return fetcher.load([at, 0])
    else:
        keys = (at + places).to(tl.int64)[:, None]
        source = pointer + keys * row_step + width[None, :] * column_step
        if MASKED:
            return tl.load(source, mask=(keys < L) & (width[None, :] < WIDTH), other=0.0)
        elif WIDTH < BLOCK_D:
            return tl.load(source, mask=width[None, :] < WIDTH, other=0.0)
        else:
            return tl.load(source)


@triton.jit
def attend_keys(total, sums, top, q, k, v, key_fetcher, value_fetcher, mask, bool_mask, begin, end, rows, S, L, factor, k_row, k_column, v_row, v_column,
                mask_row, mask_column, bool_row, bool_column, MASKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, BOOL_MASK: tl.constexpr,
                FETCHED: tl.constexpr, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr):
    """Keys from begin to end, for the queries of a program. `factor` has log2(e) in it: exponentials are powers of 2."""
    places = tl.arange(0, BLOCK_N)
    width = tl.arange(0, BLOCK_D).to(tl.int64)
    for at in tl.range(begin, end, BLOCK_N):
        keys = load_keys(k, key_fetcher, at, places, width, k_row, k_column, L, FETCHED, MASKED, WIDTH, BLOCK_D)
        scores = tl.dot(q, keys.T, input_precision="ieee") * factor
        columns = at + places
        if HAS_MASK:
            there = (rows[:, None] < S) & (columns[None, :] < L)
            added = tl.load(mask + rows.to(tl.int64)[:, None] * mask_row + columns.to(tl.int64)[None, :] * mask_column, mask=there, other=0.0)
            scores += added.to(tl.float32) * 1.4426950408889634
        if BOOL_MASK > 0:
            there = (rows[:, None] < S) & (columns[None, :] < L)
            chosen = tl.load(bool_mask + rows.to(tl.int64)[:, None] * bool_row + columns.to(tl.int64)[None, :] * bool_column, mask=there, other=0) != 0
            scores = tl.where(chosen if BOOL_MASK == 1 else chosen == 0, scores, float("-inf"))
        if MASKED:
            scores = tl.where(columns[None, :] < L, scores, float("-inf"))
            if CAUSAL:
                scores = tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        centre = tl.where(higher == float("-inf"), 0.0, higher)
        powers = tl.exp2(scores - centre[:, None])
        shrink = tl.exp2(top - centre)
        sums = sums * shrink + tl.sum(powers, 1)
        values = load_keys(v, value_fetcher, at, places, width, v_row, v_column, L, FETCHED, MASKED, WIDTH, BLOCK_D)
        total = tl.dot(powers.to(values.dtype), values, total * shrink[:, None], input_precision="ieee")
        top = higher
    return total, sums, top


@triton.jit
def attend(q, k, v, mask, bool_mask, out, H, shared_by, S, L, scale, q_batch, q_head, q_row, q_column, k_batch, k_head, k_row, k_column, v_batch, v_head,
           v_row, v_column, mask_batch, mask_head, mask_row, mask_column, bool_batch, bool_head, bool_row, bool_column, out_batch, out_head, out_row,
           out_column, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, BOOL_MASK: tl.constexpr, SCALE: tl.constexpr, SAFE: tl.constexpr,
           FETCHED: tl.constexpr, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """BLOCK_M queries of one head. With CAUSAL those that see most keys begin first."""
    tiles = tl.cdiv(S, BLOCK_M)
    program = tl.program_id(0)
    tile = program % tiles
    if CAUSAL:
        tile = tiles - 1 - tile
    head = (program // tiles % H).to(tl.int64)
    batch = (program // tiles // H).to(tl.int64)
    group = head // shared_by
    k += batch * k_batch + group * k_head
    v += batch * v_batch + group * v_head
    if HAS_MASK:
        mask += batch * mask_batch + head * mask_head
    if BOOL_MASK > 0:
        bool_mask += batch * bool_batch + head * bool_head
    first = tile * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    width = tl.arange(0, BLOCK_D).to(tl.int64)
    inside = (rows[:, None] < S) & (width[None, :] < WIDTH)
    wide = rows.to(tl.int64)[:, None]
    queries = tl.load(q + batch * q_batch + head * q_head + wide * q_row + width[None, :] * q_column, mask=inside, other=0.0)
    if SCALE == 0:
        factor = 1.4426950408889634 / WIDTH**0.5
    elif SCALE == 1:
        factor = scale * 1.4426950408889634
    else:
        factor = 1.4426950408889634 / scale
    if FETCHED:
        key_fetcher = tl.make_tensor_descriptor(k, [L, WIDTH], [k_row, 1], [BLOCK_N, BLOCK_D])
        value_fetcher = tl.make_tensor_descriptor(v, [L, WIDTH], [v_row, 1], [BLOCK_N, BLOCK_D])
    else:
        key_fetcher = 0
        value_fetcher = 0
    seen_by_all = tl.minimum(first + 1, L) if CAUSAL else L
    seen_by_any = tl.minimum(first + BLOCK_M, L) if CAUSAL else L
    whole = seen_by_all // BLOCK_N * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    sums = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total, sums, top = attend_keys(total, sums, top, queries, k, v, key_fetcher, value_fetcher, mask, bool_mask, 0, whole, rows, S, L, factor, k_row,
                                   k_column, v_row, v_column, mask_row, mask_column, bool_row, bool_column, False, CAUSAL, HAS_MASK, BOOL_MASK, FETCHED,
                                   WIDTH, BLOCK_D, BLOCK_N)
    total, sums, top = attend_keys(total, sums, top, queries, k, v, key_fetcher, value_fetcher, mask, bool_mask, whole, seen_by_any, rows, S, L, factor,
                                   k_row, k_column, v_row, v_column, mask_row, mask_column, bool_row, bool_column, True, CAUSAL, HAS_MASK, BOOL_MASK,
                                   FETCHED, WIDTH, BLOCK_D, BLOCK_N)
    blind = float("nan") if SAFE == 0 else 0.0
    result = tl.where(sums[:, None] == 0.0, blind if L > 0 else 0.0, total / sums[:, None])
    tl.store(out + batch * out_batch + head * out_head + wide * out_row + width[None, :] * out_column, result.to(out.dtype.element_ty), mask=inside)
