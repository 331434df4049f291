"""What an export prints: names, tables and configurations, and host code for a GPU that compiles where there is none."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from autokernel.export import card, cpp, hub, measure, python_part
from autokernel.export.__main__ import default_name
from autokernel.export.contract import functions_of, identity
from autokernel.export.errors import ExportError
from autokernel.export.tree import Package

ROOT = Path(__file__).resolve().parents[2]


def softmax_entry(backend="cuda", name="softmax_0b8e329a", rows=64):
    tensor = {"dtype": "float16", "shape": ["M", "N"]}
    task = {"id": name, "family": "softmax", "spelling": "functional", "dtype": "float16", "scalars": {"scale": 1.0}, "options": {"LOG": 0, "DIVIDE": 0},
            "tensors": [{**tensor, "name": "x", "role": "data"}, {**tensor, "name": "out", "role": "output"}],
            "workload": [{"dims": {"M": rows, "N": 256}, "strides": {"x": [512, 1]}, "calls": 1}]}
    launch = {"kernel": "softmax_warps", "grid": [16, 1, 1], "block": [128, 1, 1], "cluster": [2, 1, 1], "shared": 70000, "overlap": True, "cooperative": False,
              "arguments": [{"tensor": "x"}, {"tensor": "out"}, {"int": rows}, {"scratch": "room"}, {"scratch": "packed"}, {"null": "mask"}, {"float": 1e-6}]}
    prepare = {**launch, "kernel": "pack", "arguments": [{"scratch": "packed"}]}
    scratch = [{"name": "room", "bytes": 1000, "zeroed": True, "per_worker": False}, {"name": "packed", "bytes": 64, "zeroed": False, "per_worker": False}]
    return {"task": task, "backend": backend, "architecture": "sm_90a", "kernel_file": "kernel.cu", "kernel_text": "#include <autokernel/reduce.cuh>\n",
            "macros": [["THREADS", "128"]], "plan": {"launches": [launch], "prepare": [prepare], "scratch": scratch, "tensor_maps": []}, "workers": 1, "module": "",
            "trial": {"median_us": 5.0, "evidence": {}}, "baseline": {"best_kind": "eager", "best_us": 10.0}}


def request(tmp_path, *entries, **changes):
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "journal.jsonl").write_text("")
    for entry in entries:
        entry["module"] = str(tmp_path / "kernel.cubin")
        Path(entry["module"]).write_bytes(bytes(range(256)) * 3)
    return {"to": "hf", "directory": str(tmp_path / "tree"), "name": "", "push": "", "run_dir": str(tmp_path / "run"), "families": str(ROOT / "kernels"),
            "include": str(ROOT / "kernels" / "include"), "license_file": str(ROOT / "LICENSE"), "compiler": {"program": "g++", "flags": []},
            "architecture": "sm_90a", "tasks": list(entries), **changes}


def test_contract_is_read_from_the_task_and_the_family(tmp_path):
    (function,) = functions_of(request(tmp_path, softmax_entry()))
    (kernel,) = function.kernels
    assert (kernel.inputs[0]["shape"], kernel.inputs[0]["strides"], kernel.inputs[0]["folds"]) == ([64, 256], [512, 1], True)
    assert (kernel.outputs[0]["strides"], kernel.device) == ([256, 1], "cuda")
    assert default_name(request(tmp_path, softmax_entry())) == "ak-softmax"


def test_what_is_measured_and_generated_knows_the_ranges_of_its_inputs(tmp_path):
    entry = softmax_entry("cpu")
    entry["task"]["tensors"][0]["factors"] = True
    entry["task"]["tensors"].append({"name": "targets", "role": "index", "dtype": "int64", "shape": ["M"], "range": "N"})
    entry["task"]["tensors"].append({"name": "seen", "role": "data", "dtype": "bool", "shape": ["M"]})
    (function,) = functions_of(request(tmp_path, entry))
    (kernel,) = function.kernels
    assert python_part._specs(kernel.inputs[1:]) == '(Spec("targets", torch.int64, (64,), (1,), True, 256), Spec("seen", torch.bool, (64,), (1,), True, 2),)'
    x = measure.example(kernel, function)["x"]
    assert x.stride() == (512, 1) and x.abs().min() >= 0.5 and x.abs().max() < 2, "as the judge's data are"


def test_identity_follows_what_is_computed(tmp_path):
    first, again, other = (request(tmp_path, softmax_entry(rows=rows)) for rows in (64, 64, 65))
    other["tasks"][0]["plan"]["launches"][0]["grid"] = [17, 1, 1]
    assert identity(first) == identity(again) != identity(other)
    assert identity({**first, "to": "torch"}) != identity(first)


def test_plan_becomes_a_table(tmp_path):
    (function,) = functions_of(request(tmp_path, softmax_entry()))
    text = cpp.plans_source(list(function.kernels))
    assert "{{1000, true}},\n    {{64, false}}" in text  # scratch of a call, and of prepared weights
    assert "{Argument::scratch, 0}, {Argument::prepared, 0}, {Argument::null}, {Argument::real, 0, static_cast<float>(1e-06)}" in text
    assert '{"softmax_warps", nullptr, {16, 1, 1}, {128, 1, 1}, {2, 1, 1}, 70000, true, false' in text


def test_build_configuration_has_the_fields_of_its_edition(tmp_path):
    package = Package(request(tmp_path, softmax_entry(), push="someone/softmax"), "ak-softmax")
    sources = hub.write_source(package, package.request["directory"])
    table = tomllib.loads((tmp_path / "tree" / "build.toml").read_text())
    assert set(table) == {"general", "torch", "kernel"} and table["general"]["edition"] == 5
    assert set(table["general"]) == {"name", "version", "edition", "license", "backends", "hub"}
    assert set(table["torch"]) == {"src", "stable-abi"} and table["torch"]["stable-abi"] == {"cuda": "2.11"}
    (kernel,) = table["kernel"].values()
    assert set(kernel) == {"backend", "depends", "src", "cuda-capabilities"} and kernel["cuda-capabilities"] == ["9.0a"]
    for name in [*table["torch"]["src"], *kernel["src"], *sources]:
        assert (tmp_path / "tree" / name).is_file()
    assert (tmp_path / "tree" / "ak_softmax_cuda" / "include" / "autokernel" / "vec.cuh").is_file()


@pytest.mark.skipif(torch.version.cuda is None, reason="PyTorch is not built for CUDA")
def test_host_code_for_a_gpu_compiles_and_registers_its_operators(tmp_path):
    package = Package(request(tmp_path, softmax_entry(), softmax_entry(name="softmax_11111111", rows=128)), "ak-softmax")
    built = hub.write_built(package, package.request["directory"], hub.write_source(package, package.request["directory"]))
    metadata = json.loads((Path(built) / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["9.0a"]} and metadata["id"] == package.operators
    assert f"{package.operators}.abi3.so" in metadata["digest"]["files"]
    script = f"""
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("{package.operators}", "{built}/__init__.py")
module = importlib.util.module_from_spec(spec); sys.modules[spec.name] = module; spec.loader.exec_module(module)
kernels = sys.modules[spec.name + "._kernels"].KERNELS["softmax"]
assert [kernel.capability for kernel in kernels] == [(9, 0)] * 2
with torch._subclasses.FakeTensorMode():
    x = torch.empty_strided((64, 256), (512, 1), dtype=torch.float16, device="meta")
    assert kernels[0].operator(x).stride() == (256, 1)
x = torch.randn(3, 5)
torch.testing.assert_close(module.softmax(x), torch.softmax(x, -1))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


TRITON = '''"""autokernel
family = "softmax"
backend = "triton"
"""
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, fetcher, out, room, mask, N, x_row, out_row, scale, LOG: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    values = fetcher.load([row, 0]).reshape(BLOCK).to(tl.float32) * scale
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(room + row, tl.sum(powers, 0))
    tl.store(out + row * out_row + columns, (powers / tl.load(room + row)).to(out.dtype.element_ty), mask=columns < N)
'''

TRITON_CHECK = """
import sys, pathlib, torch
tree = pathlib.Path(sys.argv[1])
from torch import nn
import kernels
module = kernels.get_local_kernel(tree, **({} if torch.version.cuda else {"backend": "cpu"}))
(kernel,) = sys.modules[module.__name__ + "._dispatch"].KERNELS["softmax"]
rows = torch.randn(64, 512, dtype=torch.float16)
x = rows[:, :256]
def runs(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return sum(event.count for event in profile.key_averages() if event.key.endswith("::" + kernel.name))
assert runs(lambda: module.softmax(x)) == 1 and runs(lambda: module.softmax(rows)) == 0
shifted = rows[:, 3:259]
assert shifted.data_ptr() % 16 and runs(lambda: module.softmax(shifted)) == 1
torch.testing.assert_close(module.softmax(shifted), torch.softmax(shifted, -1))
torch.testing.assert_close(module.softmax(x), torch.softmax(x, -1))
kernels.replace_kernel_forward_from_hub(nn.Softmax, "Softmax")
(variant,) = (tree / "build").iterdir()
model = nn.Sequential(nn.Softmax(-1))
mapping = {"Softmax": {"cpu": kernels.LocalLayerRepository(repo_path=variant, layer_name="Softmax")}}
with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
    kernels.kernelize(model, mode=kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE, device="cpu", use_fallback=False)
assert runs(lambda: model(x)) == 1
given = [rows.clone()[:, :256].requires_grad_() for _ in range(2)]
for call, leaf in zip((model, lambda t: torch.softmax(t, -1)), given):
    leaf.retain_grad()
    call(leaf).float().square().sum().backward()
torch.testing.assert_close(given[0].grad, given[1].grad, rtol=1e-2, atol=1e-3)
"""


def test_triton_tree_runs_by_the_interpreter_in_a_layer_too(tmp_path):
    pytest.importorskip("kernels", reason="the kernels package of Hugging Face is not installed")
    pytest.importorskip("triton")
    entry = softmax_entry(backend="triton")
    launch = {"kernel": "softmax_rows", "grid": [64, 1, 1], "constexprs": {"BLOCK": 256, "NUM_WARPS": 4},
              "arguments": [{"aligned": True, "tensor": "x"}, {"tensor_map": "rows"}, {"aligned": True, "tensor": "out"}, {"scratch": "room"}, {"null": "mask"}, {"int": 256}, {"int": 512},
                            {"int": 256}, {"float": 1.0}]}
    scratch = [{"name": "room", "bytes": 256, "zeroed": False, "per_worker": False}]
    maps = [{"name": "rows", "of": {"aligned": True, "tensor": "x"}, "dtype": "float16", "shape": [64, 256], "strides": [512, 1], "box": [1, 256], "swizzle": 0}]
    entry.update(kernel_file="kernel.py", kernel_text=TRITON, point={"NUM_STAGES": 0}, scratch_dtypes={"room": "float32"},
                 plan={"launches": [launch], "prepare": [], "scratch": scratch, "tensor_maps": maps})
    package = Package(request(tmp_path, entry), "ak-softmax")
    tree = package.request["directory"]
    hub.write_built(package, tree, hub.write_source(package, tree))
    table = tomllib.loads((tmp_path / "tree" / "build.toml").read_text())
    assert set(table) == {"general", "torch-noarch"} and table["general"]["backends"] == ["cuda"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", TRITON_CHECK, tree], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_card_says_when_a_kernel_is_used_and_what_was_measured(tmp_path):
    package = Package(request(tmp_path, softmax_entry()), "ak-softmax")
    text = card.card(package, {"softmax_0b8e329a": {"us": 7.0, "pytorch_us": 9.0, "speedup": 1.25, "ci_low": 1.2, "ci_high": 1.3}}, "hf", "someone/softmax")
    assert "x float16 64×256 (strides 512, 1)" in text and "sm_90a alone" in text
    assert "5.0 us | 10.0 us (eager) | 2.00x" in text and "1.25x (1.20 to 1.30)" in text
    assert 'get_kernel("someone/softmax", version=1)' in text


def test_push_says_what_is_missing(tmp_path, monkeypatch):
    hub_package = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub_package, "get_token", lambda: None)
    with pytest.raises(ExportError) as raised:
        hub.push(str(tmp_path), "someone/softmax", "ak-softmax")
    assert "no token" in str(raised.value) and "hf upload someone/softmax" in raised.value.what_to_do
