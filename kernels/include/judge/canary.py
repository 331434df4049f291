"""autokernel
family  = "canary"
backend = "triton"

[tune]
BLOCK = { values = [128], default = 128, tier = 1 }

[scratch.middle]
dtype = "float32"
shape = ["M * N"]

# Each way in which a value reaches a kernel, a kernel that wants memory of its own, and one that wants none.
[[launch]]
kernel = "fetch_and_shift"
grid   = ["M", "cdiv(N, BLOCK)"]
args   = ["x", "absent", "middle", "M", "N", "M * 4294967296 + 3", "x.stride(1)", "shift"]
[[launch]]
kernel = "copy"
grid   = ["cdiv(M * N, BLOCK)"]
args   = ["middle", "out", "M * N"]
"""
import triton
import triton.language as tl


@triton.jit
def fetch_and_shift(x, absent, middle, M, N, wide, step, shift, BLOCK: tl.constexpr):
    """x + row + wide % 2^32 + step + shift, by a tensor descriptor."""
    row = tl.program_id(0)
    begin = tl.program_id(1) * BLOCK
    fetcher = tl.make_tensor_descriptor(x, [M, N], [N, step], [1, BLOCK])
    values = fetcher.load([row, begin]).reshape(BLOCK) + (row + step).to(tl.float32) + (wide % 4294967296).to(tl.float32) + shift
    places = begin + tl.arange(0, BLOCK)
    tl.store(middle + row * N + places, values, mask=places < N)


@triton.jit
def copy(source, target, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + places, tl.load(source + places, mask=places < count), mask=places < count)
