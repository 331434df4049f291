"""Every kernel.py computes what its reference does, by Triton's interpreter, and compiles to cubins with no GPU present."""

import concurrent.futures
import itertools
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("triton")

import torch
import triton_plans as plans
from hard_cases import CASES, whole
from triton_client import Compiler

FAMILIES = sorted(path.parent.name for path in plans.KERNELS.glob("*/kernel.py"))
HERE = pathlib.Path(__file__).resolve().parent
DIMS = {  # of what a model has, for the compiler alone
    "cross_entropy": {"M": 4096, "V": 50257},
    "flash_attention": {"B": 1, "H": 32, "G": 8, "S": 2048, "L": 2048, "D": 128},
    "fused_mlp": {"M": 2048, "D": 4096, "H": 11008},
    "layernorm": {"M": 4096, "N": 4096},
    "matmul": {"M": 4096, "N": 4096, "K": 4096},
    "reduce": {"OUTER": 4096, "N": 4096, "INNER": 1},
    "rmsnorm": {"M": 4096, "N": 4096},
    "rotary_embedding": {"B": 1, "H": 32, "G": 32, "S": 2048, "D": 128, "C": 64},
    "softmax": {"M": 4096, "N": 4096},
}


def interpret(*words):
    """What Python prints when it runs these words with Triton's interpreter, which has to be chosen before triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_every_family_has_a_kernel():
    assert FAMILIES == sorted(DIMS)


@pytest.mark.parametrize("dtype", ["float32", "float16", pytest.param("bfloat16", marks=pytest.mark.skip(reason="Triton's interpreter computes tl.dot of bfloat16 wrongly (triton-lang/triton#11584)"))])
@pytest.mark.parametrize("family", FAMILIES)
def test_computes_what_its_reference_does(family, dtype):
    *wrong, count = interpret(HERE / "triton_interpreted.py", family, dtype).splitlines()
    assert wrong == []
    assert int(count.split()[0]) >= 10


@pytest.fixture(scope="module")
def found_for_cases(tmp_path_factory):
    path = tmp_path_factory.mktemp("cases") / "found.pt"
    interpret(HERE / "triton_cases.py", path)
    return torch.load(path)


@pytest.mark.parametrize("name", CASES)
def test_hard_cases_come_out_right(found_for_cases, name):
    *_, right, wrong = CASES[name]
    found = found_for_cases[name]
    assert isinstance(found, list), found  # else the error
    assert found[0][0] == {}  # the default point
    for point, output in found:
        within = {"rtol": 1e-5 if output.dtype == torch.float32 else 1e-3, "atol": 0, "equal_nan": True}
        torch.testing.assert_close(output.double(), whole(right, output.shape), msg=lambda text: f"{point}: {text}", **within)
        assert not torch.allclose(output.double(), whole(wrong, output.shape), **within), point


CANARY = """
import importlib.util, sys, torch
from triton.tools.tensor_descriptor import TensorDescriptor
spec = importlib.util.spec_from_file_location("canary", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
x = ((torch.arange(3 * 256) * 37 % 1024 - 500) / 8).reshape(3, 256)
out = torch.full_like(x, float("nan"))
maps = [TensorDescriptor.from_tensor(tensor, [2, 128]) for tensor in (x, out)]
module.shift_tiles[(2, 2)](None, maps[0], 1, 3 << 32, maps[1], 0.75, BLOCK=128)
assert torch.equal(out, x + torch.arange(3.0)[:, None] + 4.75), out
"""


def test_the_canary_with_tensor_maps_computes_what_the_judge_expects():
    interpret("-c", CANARY, plans.KERNELS / "include" / "judge" / "canary_tensor_map.py")


@pytest.fixture(scope="module")
def compiler():
    with Compiler() as started:
        yield started


def contiguous(kernel, dims, options):
    names = {**kernel.family.get("options", {}), **options, **dims}
    strides = {}
    for tensor in kernel.family["tensor"]:
        steps = [1]
        for size in reversed([plans.evaluate(text, names) for text in tensor["shape"]][1:]):
            steps.insert(0, steps[0] * max(1, size))
        strides[tensor["name"]] = steps if tensor["shape"] else []
    return strides


def specification(kernel, dtype, point=None, architecture="sm_90", options=None, aligned=True):
    dims, options = DIMS[kernel.path.parent.name], options or {}
    return plans.specification(kernel, dims, options, dtype, contiguous(kernel, dims, options), {**kernel.defaults(), **(point or {})}, architecture, aligned)


def compile_all(compiler, kernel, specifications):
    text = kernel.path.read_text()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for told, reply in zip(specifications, pool.map(lambda each: compiler.compile(text, each), specifications)):
            assert reply["code"] == 0, (told, reply["log"])
            assert [len(entry["parameters"]) for entry in reply["launches"]]


def test_the_canaries_compile_as_the_judge_launches_them(compiler):
    pointer, real, one, absent = {"type": "*fp32", "divisible": True}, {"type": "fp32", "divisible": False}, {"type": "constexpr", "value": 1}, {"type": "constexpr", "value": None}
    tile, wide, narrow = {"type": "tensordesc<fp32[2, 128]>"}, {"type": "i64", "divisible": False}, {"type": "i32", "divisible": True}
    launches = {
        "canary.py": [("fetch_and_shift", [pointer, absent, pointer, {**narrow, "divisible": False}, narrow, wide, one, real]), ("copy", [pointer, pointer, narrow])],
        "canary_tensor_map.py": [("shift_tiles", [absent, tile, one, {**wide, "divisible": True}, tile, real])],
    }
    for name, kernels in launches.items():
        told = [{"kernel": kernel, "arguments": arguments, "constexprs": {"BLOCK": 128}} for kernel, arguments in kernels]
        reply = compiler.compile((plans.KERNELS / "include" / "judge" / name).read_text(), {"architecture": "sm_90", "tunables": ["BLOCK"], "launches": told})
        assert reply["code"] == 0, reply["log"]


@pytest.mark.parametrize("family", FAMILIES)
def test_compiles_for_each_dtype_and_architecture(compiler, family):
    kernel = plans.Kernel(family)
    every = itertools.product(("float16", "bfloat16", "float32"), ("sm_80", "sm_90", "sm_100"))
    compile_all(compiler, kernel, [specification(kernel, dtype, architecture=architecture) for dtype, architecture in every])


@pytest.mark.parametrize("family", ["matmul", "fused_mlp"])
def test_specialised_warps_are_more_warps(compiler, family):
    kernel, dims = plans.Kernel(family), DIMS[family]
    points = [{**kernel.defaults(), "TMA": 1, "NUM_WARPS": 4, "SPECIALISE": specialise} for specialise in (0, 1)]
    assert all(kernel.allows(kernel.names(dims, point, {}, "float16", contiguous(kernel, dims, {}))) for point in points)
    plain, specialised = (compiler.compile(kernel.path.read_text(), specification(kernel, "float16", point))["launches"][0]["threads"] for point in points)
    assert plain == 128 < specialised


@pytest.mark.parametrize("family", FAMILIES)
def test_compiles_with_the_options_of_each_spelling_and_unaligned(compiler, family):
    kernel = plans.Kernel(family)
    options = [dict(pairs) for pairs in dict.fromkeys(tuple(spelling.get("options", {}).items()) for spelling in kernel.family["spelling"])]
    compile_all(compiler, kernel, [specification(kernel, "float16", options=each) for each in options] + [specification(kernel, "float16", aligned=False)])


@pytest.mark.parametrize("family", FAMILIES)
def test_compiles_with_the_extreme_values_of_each_tunable(compiler, family):
    kernel = plans.Kernel(family)
    dims = DIMS[family]
    points = [{name: value} for name, tunable in kernel.tunables.items() for value in (min(tunable["values"]), max(tunable["values"]))]
    allowed = [p for p in points if kernel.allows(kernel.names(dims, {**kernel.defaults(), **p}, {}, "float16", contiguous(kernel, dims, {})))]
    assert len(allowed) > len(points) // 2
    compile_all(compiler, kernel, [specification(kernel, "float16", point) for point in allowed])
