"""Small inputs that broke other people's kernels: the starters give the right answer, and the judge refuses the typical wrong one.

Every case goes through the judge as it is: inputs and expected values in fixture files, a compiled kernel, the verb `check`.
"""

import json
import sys
import tomllib

import pytest
import torch
from conftest import ROOT
from judge_client import compile_cpu, compile_cuda, open_judge

from autokernel import fixtures, runtime, safetensors
from autokernel.families import read_family

sys.path.insert(0, str(ROOT / "tests" / "python"))
from hard_cases import CASES, asked, whole  # noqa: E402

CPP = {"float32": "float", "float16": "_Float16", "int64": "int64_t"}
CUDA = {"float32": "float", "float16": "__half"}


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def bench(request, tmp_path_factory):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    made = Bench(request.param, tmp_path_factory.mktemp("cases"))
    yield made
    made.judge.close()


def holds(condition, options):
    """A condition on the options of a family, as in family.toml."""
    return bool(eval(condition.replace("&&", " and ").replace("||", " or "), {}, dict(options)))


class Bench:
    """A judge, and what it takes to have a case judged."""

    def __init__(self, device, directory, under=()):
        self.device, self.directory = device, directory
        self.judge = open_judge(device, directory, under)
        self.compile = compile_cpu if device == "cpu" else compile_cuda

    def task(self, family, settings, inputs):
        """(task, case) of a family for these inputs."""
        table = tomllib.loads((ROOT / "kernels" / family / "family.toml").read_text())
        dtype, dims, options, scalars = asked(table, settings, inputs)
        tensors = []
        for tensor in table["tensor"]:
            absent = "optional" in tensor and not holds(tensor["optional"], options)
            tensors.append({"name": tensor["name"], "role": tensor["role"], "dtype": tensor.get("dtype", dtype), "shape": tensor["shape"]} | ({"absent": True} if absent else {}))
        strides = {name: list(tensor.stride()) for name, tensor in inputs.items()}
        task = {
            "schema": "autokernel.task/1", "id": f"{family}_00000000", "family": family, "spelling": "", "dtype": dtype, "tensors": tensors,
            "scalars": scalars, "options": options,
            "workload": [{"dims": dims, "strides": strides, "calls": 1}], "sweep": [], "edges": [], "stability": [], "tolerance": table["tolerance"],
            "flops": "1", "bytes": "1", "reference": {"kind": "family", "family": family, "function": "reference"}}
        return task, {"dims": dims, "strides": strides, "generator": "normal", "seed": 1}

    def check(self, task, case, files, candidate):
        made = self.judge.ask("check", candidate=candidate, task=task, case=case, runs=2, **files)
        self.judge.ask("release", module=candidate["module"])
        return made

    def starter(self, task, case):
        """The family's own kernel as a candidate."""
        name = "kernel.cpp" if self.device == "cpu" else "kernel.cu"
        text = (ROOT / "kernels" / task["family"] / name).read_text()
        (self.directory / name).write_text(text)
        tunables = tomllib.loads(text.split("*/")[0].removeprefix("/*autokernel"))["tune"]
        plan = self._plan(task, case, name, {tunable: value["default"] for tunable, value in tunables.items() if tunable != "require"})
        return {**plan, "module": self.compile(self.directory, text, [tuple(each) for each in plan.pop("macros")])}

    def _plan(self, task, case, name, point):
        architecture = "" if self.device == "cpu" else "sm_{}{}".format(*torch.cuda.get_device_capability())
        bundle = {"schema": "autokernel.bundle/1", "task": task, "kernel_file": name, "module": "none", "backend": self.device, "architecture": architecture, "point": point,
                  "speedup_vs_best": 1, "us": 1, "baseline_us": 1, "replaces_us": 1}
        (self.directory / "bundle.json").write_text(json.dumps(bundle))
        call = {"site": "g0/x", "inputs": [], "outputs": [], "dims": case["dims"], "strides": case["strides"]}
        return runtime.plan(str(self.directory), call if self.device == "cpu" else {**call, "device": 0})

    def answer(self, tensor, values, name="answer"):
        """A kernel that knows one answer and nothing else."""
        special = {"nan": "__builtin_nanf(\"\")", "inf": "__builtin_inff()", "-inf": "-__builtin_inff()"}
        literals = ", ".join(special.get(repr(v), repr(v)) for v in values)
        dtype = tensor["dtype"]
        if self.device == "cpu":
            text = (f"#include <autokernel/cpu.h>\nstatic const float table[] = {{{literals}}};\n"
                    f"void {name}(int64_t, int64_t, void*, {CPP[dtype]}* out, int64_t n) {{ for (int64_t i = 0; i < n; ++i) out[i] = table[i % {len(values)}]; }}\nAK_KERNEL({name})\n")
            threads = 1
        else:
            literals = literals.replace(special["nan"], "__int_as_float(0x7fc00000)").replace(special["inf"], "__int_as_float(0x7f800000)")
            text = (f"#include <cuda_fp16.h>\nextern \"C\" __global__ void {name}({CUDA[dtype]}* out, long long n) {{\n  const float table[] = {{{literals}}};\n"
                    f"  for (long long i = threadIdx.x; i < n; i += 256) out[i] = table[i % {len(values)}];\n}}\n")
            threads = 256
        launch = {"kernel": name, "grid": [1, 1, 1], "block": [threads, 1, 1], "cluster": [1, 1, 1], "shared": 0, "overlap": False, "cooperative": False, "image": 0,
                  "arguments": [{"tensor": tensor["name"]}, {"int": tensor["elements"]}]}
        return {"module": self.compile(self.directory, text), "launches": [launch], "prepare": [], "scratch": [], "tensor_maps": []}


def write_fixture(task, case, inputs, right, directory):
    """The files of a case whose expected values are `right`, which PyTorch confirms; (files, the output's description)."""
    described = fixtures.Task(task, read_family(str(ROOT / "kernels" / task["family"])))
    stored = {name: torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor) for name, tensor in inputs.items()}
    reference, eager = fixtures.expected(described, {name: tensor.clone() for name, tensor in stored.items()}, case)
    torch.testing.assert_close(reference[0], whole(right, reference[0].shape), rtol=1e-5, atol=1e-7, equal_nan=True)
    paths = {"inputs": str(directory / "inputs.safetensors"), "expected": str(directory / "expected.safetensors")}
    safetensors.write(paths["inputs"], *fixtures._stored_inputs(stored))
    safetensors.write(paths["expected"], *fixtures._stored_outputs(described, case, reference, eager))
    output = described.outputs()[0]
    return paths, {"name": output["name"], "dtype": output["dtype"], "elements": reference[0].numel()}


def flat(values):
    return [float(v) for v in torch.tensor(values).reshape(-1)]


@pytest.mark.parametrize("name", CASES)
def test_the_starter_is_right_and_the_typical_answer_is_refused(bench, tmp_path, name):
    family, settings, inputs, right, wrong = CASES[name]
    task, case = bench.task(family, settings, inputs)
    files, output = write_fixture(task, case, inputs, right, tmp_path)
    assert (made := bench.check(task, case, files, bench.starter(task, case)))["verdict"] == "pass", made
    assert (made := bench.check(task, case, files, bench.answer(output, flat(wrong))))["verdict"] == "wrong", made


def test_two_modules_with_a_kernel_of_one_name_are_two(bench, tmp_path):
    inputs = {"x": torch.tensor([[[0.0], [0.0]], [[1.0], [1.0]], [[2.0], [2.0]]])}
    task, case = bench.task("reduce", {}, inputs)
    files, output = write_fixture(task, case, inputs, [[0.0], [2.0], [4.0]], tmp_path)
    doubled, shifted = bench.answer(output, [0.0, 2.0, 4.0]), bench.answer(output, [100.0, 101.0, 102.0])
    verdicts = [bench.check(task, case, files, candidate)["verdict"] for candidate in (doubled, shifted, doubled)]
    assert verdicts == ["pass", "wrong", "pass"]
