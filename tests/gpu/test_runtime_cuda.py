"""The runtime on a GPU: a bundle made here by hand, called through torch.ops, on streams, under torch.compile and in CUDA graphs."""

import ctypes
import itertools
import json
import pathlib
import sys
import threading

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from autokernel import installation, runtime  # noqa: E402

ROWS, WIDTH = 33, 25600  # a row is 100 KiB: more shared memory than a kernel gets without asking

# out = 1.5 x + 2 weight + (sum of the row of x) + 1, in the parts that a launch plan can have.
SOURCE = r"""/*autokernel
family  = "sums"
backend = "cuda"

[scratch.doubled]
dtype = "float32"
shape = ["N"]
[scratch.sums]
dtype  = "float32"
shape  = ["M"]
zeroed = true

[[prepare]]
kernel = "twice"
grid   = ["cdiv(N, 256)"]
block  = ["256"]
args   = ["weight", "doubled", "N"]

[[launch]]
kernel  = "sum_rows"
grid    = ["M", "4"]
block   = ["256"]
cluster = ["1", "4"]
shared  = "4 * N"
args    = ["x", "sums", "N"]

[[launch]]
kernel  = "combine"
grid    = ["cdiv(N, 256)", "M"]
block   = ["256"]
overlap = true
args    = ["x", "doubled", "sums", "out", "N", "scale"]

[[launch]]
kernel      = "increment"
grid        = ["sm_count"]
block       = ["256"]
cooperative = true
args        = ["out", "M * N"]
*/
extern "C" __global__ void twice(const float* weight, float* doubled, long n) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i < n) doubled[i] = 2 * weight[i];
}

extern "C" __global__ void sum_rows(const float* x, float* sums, long n) {
  extern __shared__ float staged[];
  const long part = n / 4;
  const float* row = x + blockIdx.x * n + blockIdx.y * part;
  for (long i = threadIdx.x; i < part; i += 256) staged[3 * part + i] = row[i];
  float sum = 0;
  for (long i = threadIdx.x; i < part; i += 256) sum += staged[3 * part + i];
  atomicAdd(sums + blockIdx.x, sum);
}

extern "C" __global__ void combine(const float* x, const float* doubled, const float* sums, float* out, long n, float scale) {
  const long column = blockIdx.x * 256L + threadIdx.x, i = blockIdx.y * n + column;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (column < n) out[i] = scale * x[i] + doubled[column] + sums[blockIdx.y];
}

extern "C" __global__ void increment(float* out, long count) {
  for (long i = blockIdx.x * 256L + threadIdx.x; i < count; i += gridDim.x * 256L) out[i] += 1;
}
"""


def _why_not():
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    if torch.cuda.get_device_capability()[0] < 9:
        return "the GPU has no clusters of blocks"
    try:
        installation.library_path()
    except installation.NotInstalled as error:
        return str(error)
    return None


pytestmark = [pytest.mark.skipif(_why_not() is not None, reason=str(_why_not()))]


def _nvrtc():
    import nvidia
    places = [pathlib.Path(p) / part for p in nvidia.__path__ for part in ("cu13", "cuda_nvrtc")] + [pathlib.Path("/usr/local/cuda")]
    found = [library for place in places for library in sorted(place.glob("lib*/libnvrtc.so*"))]
    if not found:
        pytest.skip("there is no NVRTC")
    for builtins in found[0].parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(str(found[0]))


def compile_cubin(text, architecture):
    nvrtc = _nvrtc()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
    status = nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode()))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw


TASK = {
    "schema": "autokernel.task/1", "id": "sums_00000000", "family": "sums", "spelling": "s", "dtype": "float32",
    "tensors": [{"name": "x", "role": "data", "dtype": "float32", "shape": ["M", "N"]},
                {"name": "weight", "role": "weight", "dtype": "float32", "shape": ["N"]},
                {"name": "out", "role": "output", "dtype": "float32", "shape": ["M", "N"]}],
    "scalars": {"scale": 1.5}, "options": {}, "workload": [{"dims": {"M": ROWS, "N": WIDTH}, "strides": {}, "calls": 1}],
    "sweep": [], "edges": [], "stability": [], "tolerance": {"k": 16}, "flops": "3*M*N", "bytes": "8*M*N",
    "reference": {"kind": "family", "family": "sums", "function": "reference"}}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sums")
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability())
    (directory / "kernel.cu").write_text(SOURCE)
    (directory / "kernel.cubin").write_bytes(compile_cubin(SOURCE, architecture))
    (directory / "bundle.json").write_text(json.dumps({
        "schema": "autokernel.bundle/1", "task": TASK, "kernel_file": "kernel.cu", "module": "kernel.cubin", "backend": "cuda",
        "architecture": architecture, "point": {}}))
    return str(directory)


_sites = itertools.count()


@pytest.fixture
def kernel(bundle):
    """The operator for an instance of its own."""
    matrix, row = ({"dtype": "float32", "shape": shape, "strides": strides} for shape, strides in (([ROWS, WIDTH], [WIDTH, 1]), ([WIDTH], [1])))
    number = runtime.open_instance(bundle, {
        "site": f"g0/{next(_sites)}", "inputs": [{"name": "x", **matrix}, {"name": "weight", **row}], "outputs": [{"name": "out", **matrix}],
        "dims": {"M": ROWS, "N": WIDTH}, "strides": {}, "device": torch.cuda.current_device()})
    operator = runtime.operator(2, 1)
    yield lambda x, weight: operator(number, x, weight)
    torch.cuda.synchronize()
    runtime.close_instance(number)


@pytest.fixture(autouse=True)
def no_gradients():
    torch.manual_seed(11)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def tensors():
    return torch.randn(ROWS, WIDTH, device="cuda"), torch.randn(WIDTH, device="cuda")


def expect(out, x, weight):
    wanted = 1.5 * x.double() + 2 * weight.double() + x.double().sum(1, keepdim=True) + 1
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-2)


def test_computes_at_every_call(kernel):
    for _ in range(8):  # sums that were not zeroed again, and new weights where old ones were freed, would show
        x, weight = tensors()
        out = kernel(x, weight)
        assert out.device == x.device and out.shape == x.shape and out.stride() == x.stride()
        expect(out, x, weight)


def test_runs_on_the_current_stream(kernel):
    x, weight = tensors()
    kernel(x, weight)
    later = torch.randn_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(100_000_000)  # cycles; a launch on another stream would be done before x is there
        x.copy_(later)
        out = kernel(x, weight)
        torch.cuda.current_stream().synchronize()
    expect(out, later, weight)


def test_threads_may_call_at_the_same_time(kernel):
    failures = []

    def work():
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    x, weight = tensors()
                    expect(kernel(x, weight), x, weight)
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_weights_overwritten_in_place_are_prepared_again_when_told(kernel):
    x, weight = tensors()
    kernel(x, weight)
    weight.copy_(torch.randn_like(weight))
    runtime.weights_changed()
    expect(kernel(x, weight), x, weight)


def test_keeps_no_memory_of_a_call(kernel):
    x, weight = tensors()
    kernel(x, weight)
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        kernel(x, weight)
    assert torch.cuda.memory_allocated() == before


def test_in_a_cuda_graph(kernel):
    x, weight = tensors()
    kernel(x, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel(kernel(x, weight) * 1e-4, weight)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        expect(out, (1.5 * x + 2 * weight + x.sum(1, keepdim=True) + 1) * 1e-4, weight)


def test_captured_before_any_call_prepares_in_the_graph(kernel):
    x, weight = tensors()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel(x, weight)
    for _ in range(2):
        weight.copy_(torch.randn_like(weight))
        graph.replay()
        expect(out, x, weight)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_under_torch_compile(kernel, mode):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(tensors()[1])

        def forward(self, x):
            return kernel(kernel(x * 2, self.weight) * 1e-4, self.weight) - 1

    model = Model()
    compiled = torch.compile(model, fullgraph=True, dynamic=False, mode=mode)
    for _ in range(5):
        x = 2 * (given := tensors()[0])
        first = (1.5 * x + 2 * model.weight + x.sum(1, keepdim=True) + 1) * 1e-4
        expect(compiled(given) + 1, first, model.weight)


def test_other_tensors_than_announced_are_an_error(kernel):
    x, weight = tensors()
    for wrong, text in (((x.cpu(), weight.cpu()), "opened for a GPU"), ((x, weight.cpu()), "not on cuda:0"), ((x.half(), weight), "float16"),
                        ((x[:5], weight), "shape"), ((x.t().contiguous().t(), weight), "strides")):
        with pytest.raises(RuntimeError, match=text):
            kernel(*wrong)
    expect(kernel(x, weight), x, weight)
