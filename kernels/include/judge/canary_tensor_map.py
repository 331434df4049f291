"""autokernel
family  = "canary"
backend = "triton"

[tune]
BLOCK = { values = [128], default = 128, tier = 1 }

[tensormap.rows]
tensor = "x"
box    = ["2", "BLOCK"]
[tensormap.results]
tensor = "out"
box    = ["2", "BLOCK"]

# Tensor maps among other arguments, both directions, more than one of the hardware's boxes to a tile, and one that reaches beyond its tensor.
[[launch]]
kernel = "shift_tiles"
grid   = ["cdiv(M, 2)", "cdiv(N, BLOCK)"]
args   = ["absent", "rows", "x.stride(1)", "M * 4294967296", "results", "shift"]
"""
import triton
import triton.language as tl


@triton.jit
def shift_tiles(absent, source, step, wide, target, shift, BLOCK: tl.constexpr):
    """x + row + 4 + shift; the 4 are the extent 3 and the stride 1 of x, whose other extent and stride cancel out."""
    row = tl.program_id(0) * 2
    column = tl.program_id(1) * BLOCK
    rows = (row + tl.arange(0, 2)).to(tl.float32)[:, None]
    told = source.shape[0] + source.strides[1] + source.shape[1] - source.strides[0] + wide % 4294967296
    target.store([row, column], source.load([row, column]) + rows + told.to(tl.float32) + (step - 1) + shift)
