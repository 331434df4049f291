"""autokernel
family  = "rotary_embedding"
backend = "triton"

[tune]
HEADS     = { values = [1, 2, 4, 8],              default = 4,    tier = 1 }   # heads that a program rotates by the same angles
TILE      = { values = [512, 1024, 2048, 4096],   default = 1024, tier = 1 }   # pairs of one head to a program
NUM_WARPS = { values = [1, 2, 4, 8],              default = 4,    tier = 1 }
EVICT     = { values = [0, 1],                    default = 0,    tier = 2 }   # what is read and written is not read again soon

[[launch]]
kernel     = "rotate"
constexprs = { HALF = "pow2ceil(max(1, C * (1 + HALF_TABLE) / 2))", ROWS = "max(1, min(pow2ceil(max(1, S)), TILE / min(TILE, pow2ceil(max(1, C * (1 + HALF_TABLE) / 2)))))", REST = "D > C * (1 + HALF_TABLE) ? pow2ceil(D - C * (1 + HALF_TABLE)) : 0" }
grid       = ["B * cdiv(H, HEADS) * cdiv(S, ROWS)"]
args       = ["x", "cos", "sin", "out", "H", "S", "D", "C * (1 + HALF_TABLE) / 2", "x.stride(0)", "x.stride(1)", "x.stride(2)", "x.stride(3)",
              "cos.stride(0)", "cos.stride(1)", "sin.stride(0)", "sin.stride(1)", "out.stride(0)", "out.stride(1)", "out.stride(2)", "out.stride(3)"]
[[launch]]
kernel     = "rotate"
when       = "PAIR"
constexprs = { HALF = "pow2ceil(max(1, C * (1 + HALF_TABLE) / 2))", ROWS = "max(1, min(pow2ceil(max(1, S)), TILE / min(TILE, pow2ceil(max(1, C * (1 + HALF_TABLE) / 2)))))", REST = "D > C * (1 + HALF_TABLE) ? pow2ceil(D - C * (1 + HALF_TABLE)) : 0" }
grid       = ["B * cdiv(G, HEADS) * cdiv(S, ROWS)"]
args       = ["k", "cos", "sin", "out_k", "G", "S", "D", "C * (1 + HALF_TABLE) / 2", "k.stride(0)", "k.stride(1)", "k.stride(2)", "k.stride(3)",
              "cos.stride(0)", "cos.stride(1)", "sin.stride(0)", "sin.stride(1)", "out_k.stride(0)", "out_k.stride(1)", "out_k.stride(2)", "out_k.stride(3)"]

# Tables are small beside many heads; where they are few, programs for all multiprocessors matter more.
[[prior]]
when = "H >= 8 && B * H * S * D >= 64 * 1024 * sm_count"
set  = { HEADS = 8 }
[[prior]]
when = "B * H * S * D < 4 * 1024 * sm_count"
set  = { HEADS = 1, TILE = 512, NUM_WARPS = 2 }
[[prior]]
when = "2 * B * H * S * D * sizeof(T) > l2_bytes"
set  = { EVICT = 1 }

[[recipe]]
name = "tables shared by heads"
tier = 1
when = "H > 1"
gain = "1.2x"
text = "A program keeps the angles of its positions in registers over HEADS heads."
[[recipe]]
name = "fewer heads for little work"
tier = 1
when = "B * H * S * D * sizeof(T) < 262144 * sm_count / 8"
gain = "up to the number of idle multiprocessors"
text = "A small tensor needs many programs more than it needs loads of one in flight: HEADS = 1, and a smaller TILE."
"""
import triton
import triton.language as tl


@triton.jit
def load_pairs(table, rows, pairs, half, row_step, column_step, there, INTERLEAVED: tl.constexpr, SHARED: tl.constexpr):
    """The entries of both elements of each pair; SHARED: one entry a pair."""
    if SHARED:
        first = tl.load(table + rows * row_step + pairs * column_step, mask=there, other=0.0).to(tl.float32)
        return first, first
    elif INTERLEAVED:
        first = tl.load(table + rows * row_step + 2 * pairs * column_step, mask=there, other=0.0).to(tl.float32)
        second = tl.load(table + rows * row_step + (2 * pairs + 1) * column_step, mask=there, other=0.0).to(tl.float32)
        return first, second
    else:
        first = tl.load(table + rows * row_step + pairs * column_step, mask=there, other=0.0).to(tl.float32)
        second = tl.load(table + rows * row_step + (pairs + half) * column_step, mask=there, other=0.0).to(tl.float32)
        return first, second


@triton.jit
def rotate(x, cos, sin, out, H, S, D, half, x_batch, x_head, x_position, x_column, cos_position, cos_column, sin_position, sin_column, out_batch,
           out_head, out_position, out_column, INTERLEAVED: tl.constexpr, HALF_TABLE: tl.constexpr, BACKWARD: tl.constexpr, HEADS: tl.constexpr,
           ROWS: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr, EVICT: tl.constexpr):
    """ROWS positions of HEADS heads: all `half` pairs, then the columns that pass through."""
    READ: tl.constexpr = "evict_first" if EVICT else ""
    WRITE: tl.constexpr = ".cs" if EVICT else ""
    row_tiles = tl.cdiv(S, ROWS)
    head_tiles = tl.cdiv(H, HEADS)
    program = tl.program_id(0)
    rows = ((program % row_tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    head = (program // row_tiles % head_tiles).to(tl.int64) * HEADS
    batch = (program // row_tiles // head_tiles).to(tl.int64)
    source = x + batch * x_batch + rows * x_position
    target = out + batch * out_batch + rows * out_position
    pairs = tl.arange(0, HALF).to(tl.int64)[None, :]
    there = (rows < S) & (pairs < half)
    cos_first, cos_second = load_pairs(cos, rows, pairs, half, cos_position, cos_column, there, INTERLEAVED, HALF_TABLE)
    sin_first, sin_second = load_pairs(sin, rows, pairs, half, sin_position, sin_column, there, INTERLEAVED, HALF_TABLE)
    if BACKWARD:
        sin_first = -sin_first
        sin_second = -sin_second
    for each in tl.static_range(HEADS):
        limit = tl.where(head + each < H, S, 0)
        here = (rows < limit) & (pairs < half)
        from_head = source + (head + each) * x_head
        to_head = target + (head + each) * out_head
        if INTERLEAVED:
            whole = tl.arange(0, 2 * HALF).to(tl.int64)[None, :]
            inside = (rows < limit) & (whole < 2 * half)
            both = tl.load(from_head + whole * x_column, mask=inside, other=0.0, eviction_policy=READ).to(tl.float32)
            first, second = tl.split(tl.reshape(both, (ROWS, HALF, 2)))
            turned = tl.join(first * cos_first - second * sin_first, second * cos_second + first * sin_second)
            result = tl.reshape(turned, (ROWS, 2 * HALF)).to(out.dtype.element_ty)
            tl.store(to_head + whole * out_column, result, mask=inside, cache_modifier=WRITE)
        else:
            first = tl.load(from_head + pairs * x_column, mask=here, other=0.0, eviction_policy=READ).to(tl.float32)
            second = tl.load(from_head + (pairs + half) * x_column, mask=here, other=0.0, eviction_policy=READ).to(tl.float32)
            new_first = first * cos_first - second * sin_first
            new_second = second * cos_second + first * sin_second
            tl.store(to_head + pairs * out_column, new_first.to(out.dtype.element_ty), mask=here, cache_modifier=WRITE)
            tl.store(to_head + (pairs + half) * out_column, new_second.to(out.dtype.element_ty), mask=here, cache_modifier=WRITE)
        if REST > 0:
            columns = 2 * half + tl.arange(0, REST).to(tl.int64)[None, :]
            beyond = (rows < limit) & (columns < D)
            passed = tl.load(from_head + columns * x_column, mask=beyond, eviction_policy=READ)
            tl.store(to_head + columns * out_column, passed, mask=beyond, cache_modifier=WRITE)
