"""What solutions bring to launch their kernels: packed as the CUDA driver reads it, and the CPU's compiled as it stands."""

import ctypes
import struct
import types

import pytest
import torch

from autokernel.errors import WorkerError
from autokernel.kernelbench import cpu_launcher, cuda_launcher, launcher, model_new

LAUNCH = {"kernel": "scale", "grid": [3, 2, 1], "block": [128, 1, 1], "cluster": [1, 1, 1], "shared": 0, "overlap": False, "cooperative": False,
          "arguments": [{"tensor": "x"}, {"tensor": "out"}, {"int": -5}, {"float": 0.5}, {"null": "bias"}, {"scratch": "sums"}]}


class FakeDriver:
    """Notes what it is asked; reads the parameters as the driver would."""

    def __init__(self):
        self.asked = []

    def cuModuleGetFunction(self, function, module, name):
        self.asked.append(("function", name))
        return 0

    def cuFuncSetAttribute(self, function, attribute, value):
        self.asked.append(("attribute", attribute, value))
        return 0

    def cuLaunchKernelEx(self, config, function, pointers, extra):
        config = config._obj
        values = [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]
        attributes = [config.attributes[i].id for i in range(config.attribute_count)]
        self.asked.append(("launch", list(config.extents), config.shared_bytes, config.queue, attributes, values))
        return 0


@pytest.fixture
def launch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: types.SimpleNamespace(cuda_stream=77))

    def launch(**changes):
        driver = FakeDriver()
        kernel = types.SimpleNamespace(driver=driver, module=None, check=lambda code, what: None)
        memory = {name: torch.zeros(4) for name in ("x", "out", "sums")}
        memory["shifted"] = torch.zeros(64)[1:]
        cuda_launcher.Launch(kernel, {**LAUNCH, **changes}).run(memory, None)
        return driver.asked, memory

    return launch


def test_structures_have_the_drivers_layout():
    assert ctypes.sizeof(cuda_launcher.Attribute) == 72 and cuda_launcher.Attribute.value.offset == 8
    offsets = {name: getattr(cuda_launcher.Config, name).offset for name, _ in cuda_launcher.Config._fields_}
    assert offsets == {"extents": 0, "shared_bytes": 24, "queue": 32, "attributes": 40, "attribute_count": 48}


def test_a_launch_packs_addresses_and_numbers(launch):
    asked, memory = launch()
    half = struct.unpack("<I", struct.pack("<f", 0.5))[0]
    values = [memory["x"].data_ptr(), memory["out"].data_ptr(), 2**64 - 5, half, 0, memory["sums"].data_ptr()]
    assert asked == [("function", b"scale"), ("launch", [3, 2, 1, 128, 1, 1], 0, 77, [], values)]


def test_a_launch_asks_for_shared_memory_clusters_and_overlap(launch):
    asked, _ = launch(shared=100_000, cluster=[16, 1, 1], grid=[32, 1, 1], overlap=True)
    assert asked[1:3] == [("attribute", 8, 100_000), ("attribute", 14, 1)]
    assert asked[3][4] == [4, 6]


def test_what_a_launcher_cannot_pack_is_refused(launch):
    plan = {"launches": [LAUNCH], "prepare": [], "scratch": [], "macros": []}
    assert model_new._launchable({**plan, "tensor_maps": []}) == plan
    with pytest.raises(WorkerError, match="tensor_map"):
        model_new._launchable({**plan, "launches": [{**LAUNCH, "arguments": [{"tensor_map": "of_x"}]}]})
    asked, _ = launch(arguments=[{"int32": -1}])
    assert asked[1][5] == [2**64 - 1]  # the kernel reads its lower half
    with pytest.raises(ValueError, match="multiple of 16"):
        launch(arguments=[{"tensor": "shifted", "aligned": True}])


def test_a_launch_of_no_block_is_none(launch):
    assert launch(grid=[0, 1, 1])[0] == [("function", b"scale")]


SOURCE = model_new._inlined("""#include <autokernel/cpu.h>
void scale_rows(int64_t block, int64_t worker, void* scratch, const float* x, const float* factor, float* out, int64_t columns, float bias) {
  for (int64_t c = 0; c < columns; ++c) out[block * columns + c] = x[block * columns + c] * factor[0] + bias;
}
AK_KERNEL(scale_rows)
void square(int64_t, int64_t, void*, const float* weight, float* factor) { factor[0] = weight[0] * weight[0]; }
AK_KERNEL(square)
""", set())


@pytest.fixture
def scale():
    plain = {"block": [1, 1, 1], "cluster": [1, 1, 1], "shared": 0, "overlap": False, "cooperative": False}
    rows = {**plain, "kernel": "scale_rows", "grid": [6, 1, 1], "arguments": [{"tensor": "x"}, {"scratch": "factor"}, {"tensor": "out"}, {"int": 4}, {"float": 0.25}]}
    square = {**plain, "kernel": "square", "grid": [1, 1, 1], "arguments": [{"tensor": "weight"}, {"scratch": "factor"}]}
    plan = {"launches": [rows], "prepare": [square], "scratch": [{"name": "factor", "bytes": 4, "zeroed": True, "per_worker": False}], "macros": []}
    inputs = [("x", [6, 4], [4, 1], torch.float32), ("weight", [1], [1], torch.float32)]
    return cpu_launcher.CpuKernel(SOURCE, 2, plan, inputs, [("out", [6, 4], [4, 1], torch.float32)], ["weight"])


def test_a_cpu_kernel_computes_every_block_and_prepares_its_weights_again(scale):
    x, weight = torch.rand(6, 4), torch.full((1,), 3.0)
    torch.testing.assert_close(scale(x, weight)[0], x * 9 + 0.25)
    prepared = scale.prepared
    scale(x, weight)
    assert scale.prepared is prepared
    weight.mul_(2)
    torch.testing.assert_close(scale(x, weight)[0], x * 36 + 0.25)
    for factor in (1.0, 2.0, 3.0):  # each may lie where the one before did
        torch.testing.assert_close(scale(x, torch.full((1,), factor))[0], x * factor**2 + 0.25)


@pytest.mark.parametrize("x", [torch.rand(5, 4), torch.rand(4, 6).T, torch.rand(6, 4).double()])
def test_a_tensor_of_another_layout_is_refused(scale, x):
    with pytest.raises(ValueError, match="this file is for"):
        scale(x, torch.ones(1))


def test_scratch_is_zeroed_where_the_plan_says_so():
    made = launcher.allocate([{"name": "a", "bytes": 8, "zeroed": True}, {"name": "b", "bytes": 0, "zeroed": False}], torch.device("cpu"))
    assert made["a"].tolist() == [0] * 8 and made["b"].numel() == 1
