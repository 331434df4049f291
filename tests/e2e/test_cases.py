"""Small inputs that broke other people's kernels: the starters give the right answer, and the judge refuses the typical wrong one.

Every case goes through the judge as it is: inputs and expected values in fixture files, a compiled kernel, the verb `check`.
"""

import json
import math
import tomllib

import pytest
import torch
from conftest import ROOT
from judge_client import compile_cpu, compile_cuda, open_judge

from autokernel import fixtures, runtime, safetensors
from autokernel.families import read_family

INF, NAN = math.inf, math.nan
CPP = {"float32": "float", "float16": "_Float16", "int64": "int64_t"}
CUDA = {"float32": "float", "float16": "__half"}


def rows(*values):
    return torch.tensor(values)


def arange(*shape):
    return torch.arange(float(math.prod(shape))).reshape(shape)


def last_row_of_ones(m, n):
    x = torch.zeros(m, n)
    x[-1] = 1
    return x


# name: (family, options and scalars, inputs, the right answer, the typical wrong answer)
CASES = {
    "cross entropy, all ignored, mean": ("cross_entropy", {}, {"logits": rows([0.2, 1, 0.5], [0.1, 0.3, 0.6]), "targets": rows(-100, -100)}, NAN, 0.0),
    "cross entropy, all ignored, sum": ("cross_entropy", {"MEAN": 0}, {"logits": rows([0.2, 1, 0.5], [0.1, 0.3, 0.6]), "targets": rows(-100, -100)}, 0.0, NAN),
    "cross entropy, all ignored, none": (
        "cross_entropy", {"MEAN": 0, "REDUCED": 0, "PER_ROW": 1}, {"logits": rows([0.2, 1, 0.5], [0.1, 0.3, 0.6]), "targets": rows(-100, -100)},
        [0.0, 0.0], [NAN, NAN]),
    "cross entropy, one ignored": ("cross_entropy", {}, {"logits": rows([1.0, 2, 3], [9, 9, 9]), "targets": rows(2, -100)}, 0.4076060, 0.2038030),
    "cross entropy, a width between powers of two": ("cross_entropy", {}, {"logits": torch.full((1, 5), -10.0), "targets": rows(0)}, 1.6094379, 11.0986880),
    "cross entropy, rows apart": (
        "cross_entropy", {"MEAN": 0, "REDUCED": 0, "PER_ROW": 1},
        {"logits": rows([[0.0, 0, 0], [1, 0, 0]], [[2, 0, 0], [3, 0, 0]]).transpose(0, 1)[0], "targets": rows(0, 0)},
        [1.0986123, 0.2395448], [1.0986123, 0.5514447]),
    "softmax, half of it minus infinity": ("softmax", {}, {"x": torch.cat([torch.full((1, 1024), -INF), torch.zeros(1, 1024)], 1)},
                                           [[0.0] * 1024 + [1 / 1024] * 1024], [[NAN] * 2048]),
    "softmax, all of it minus infinity": ("softmax", {}, {"x": torch.full((1, 8), -INF)}, [[NAN] * 8], [[0.125] * 8]),
    "softmax, very wide": ("softmax", {}, {"x": torch.zeros(4, 393216)}, 1 / 393216, 0.0),
    "attention, causal, fewer queries than keys": (
        "flash_attention", {"CAUSAL": 1}, {"q": torch.zeros(1, 1, 2, 4), "k": torch.zeros(1, 1, 5, 4), "v": (1 + arange(5)).view(1, 1, 5, 1).repeat(1, 1, 1, 4)},
        [[[[1.0] * 4, [1.5] * 4]]], [[[[2.5] * 4, [3.0] * 4]]]),
    "attention, causal, more queries than keys": (
        "flash_attention", {"CAUSAL": 1}, {"q": torch.zeros(1, 1, 5, 4), "k": torch.zeros(1, 1, 2, 4), "v": (1 + arange(2)).view(1, 1, 2, 1).repeat(1, 1, 1, 4)},
        [[[[1.0] * 4] + [[1.5] * 4] * 4]], [[[[0.0] * 4] * 3 + [[1.0] * 4, [1.5] * 4]]]),
    "layernorm, far from zero": (
        "layernorm", {"HAS_WEIGHT": 0, "HAS_BIAS": 0}, {"x": rows([40000.0, 40001, 40002, 40003])},
        [[-1.3416354, -0.4472118, 0.4472118, 1.3416354]], [[NAN] * 4]),
    "layernorm, all equal": ("layernorm", {"HAS_WEIGHT": 0, "HAS_BIAS": 0}, {"x": torch.full((1, 256), 1234.0)}, [[0.0] * 256], [[NAN] * 256]),
    "matmul, thirteen bits": ("matmul", {}, {"x": torch.full((16, 16), 1 + 2.0**-12), "weight": torch.ones(16, 16)}, 16.00390625, 16.0),
    "rmsnorm, squares beyond float16": (
        "rmsnorm", {}, {"x": rows([300.0, -300, 300, -300]).half(), "weight": torch.ones(4).half()}, [[1.0, -1, 1, -1]], [[0.0] * 4]),
    "rmsnorm, eps 1e-5": ("rmsnorm", {"eps": 1e-5}, {"x": torch.full((1, 4), 1e-3), "weight": torch.ones(4)}, [[0.3015113] * 4], [[0.9900990] * 4]),
    "rmsnorm, eps 1e-6": ("rmsnorm", {"eps": 1e-6}, {"x": torch.full((1, 4), 1e-3), "weight": torch.ones(4)}, [[0.7071068] * 4], [[0.3015113] * 4]),
    "rotary embedding, neighbours": (
        "rotary_embedding", {"HALF_TABLE": 1, "INTERLEAVED": 1},
        {"x": rows([[[1.0, 2, 3, 4]]]), "cos": rows([0.0, 1]), "sin": rows([1.0, 0])}, [[[[-2.0, 1, 3, 4]]]], [[[[-3.0, 2, 1, 4]]]]),
    "rotary embedding, halves": (
        "rotary_embedding", {"HALF_TABLE": 1},
        {"x": rows([[[1.0, 2, 3, 4]]]), "cos": rows([0.0, 1]), "sin": rows([1.0, 0])}, [[[[-3.0, 2, 1, 4]]]], [[[[-2.0, 1, 3, 4]]]]),
    "rotary embedding, part of the row": (
        "rotary_embedding", {"HALF_TABLE": 1}, {"x": (1 + arange(8)).view(1, 1, 1, 8), "cos": rows([0.0, 1]), "sin": rows([1.0, 0])},
        [[[[-3.0, 2, 1, 4, 5, 6, 7, 8]]]], [[[[-5.0, 2, 3, 4, 1, 6, 7, 8]]]]),
    "sum over the middle": ("reduce", {}, {"x": arange(2, 3, 4)}, [[12.0, 15, 18, 21], [48, 51, 54, 57]], [[12.0, 48, 15, 51], [18, 54, 21, 57]]),
    "sum over the first": (
        "reduce", {}, {"x": arange(1, 2, 12)}, [[12.0, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34]], [[12.0, 20, 28, 14, 22, 30, 16, 24, 32, 18, 26, 34]]),
    "sum over nothing": ("reduce", {}, {"x": torch.zeros(2, 0, 3)}, [[0.0] * 3] * 2, [[7.0] * 3] * 2),
    "mean over nothing": ("reduce", {"OP": 1}, {"x": torch.zeros(2, 0, 3)}, [[NAN] * 3] * 2, [[0.0] * 3] * 2),
    "maximum with a NaN": ("reduce", {"OP": 2}, {"x": rows([[NAN], [6.0], [8.0]])}, [[NAN]], [[8.0]]),
    "more than 65535 rows": ("reduce", {}, {"x": last_row_of_ones(65537, 64).view(65537, 64, 1)}, [[0.0]] * 65536 + [[64.0]], 0.0),
}
DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.int64: "int64"}


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
        options = {name: settings.get(name, value) for name, value in table["options"].items()}
        dtype = DTYPES[next(iter(inputs.values())).dtype]
        dims, tensors = {}, []
        for tensor in table["tensor"]:
            absent = "optional" in tensor and not holds(tensor["optional"], options)
            tensors.append({"name": tensor["name"], "role": tensor["role"], "dtype": tensor.get("dtype", dtype), "shape": tensor["shape"]} | ({"absent": True} if absent else {}))
            if tensor["name"] in inputs:
                dims.update(zip(tensor["shape"], inputs[tensor["name"]].shape))
        strides = {name: list(tensor.stride()) for name, tensor in inputs.items()}
        task = {
            "schema": "autokernel.task/1", "id": f"{family}_00000000", "family": family, "spelling": "", "dtype": dtype, "tensors": tensors,
            "scalars": {name: settings.get(name, value) for name, value in table.get("scalars", {}).items()}, "options": options,
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
        literals = ", ".join("__builtin_nanf(\"\")" if math.isnan(v) else repr(v) for v in values)
        dtype = tensor["dtype"]
        if self.device == "cpu":
            text = (f"#include <autokernel/cpu.h>\nstatic const float table[] = {{{literals}}};\n"
                    f"void {name}(int64_t, int64_t, void*, {CPP[dtype]}* out, int64_t n) {{ for (int64_t i = 0; i < n; ++i) out[i] = table[i % {len(values)}]; }}\nAK_KERNEL({name})\n")
            threads = 1
        else:
            literals = literals.replace("__builtin_nanf(\"\")", "__int_as_float(0x7fc00000)")
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
    wanted = torch.tensor(right, dtype=torch.float64).expand(reference[0].shape) if not isinstance(right, list) else torch.tensor(right, dtype=torch.float64)
    torch.testing.assert_close(reference[0], wanted.reshape(reference[0].shape), rtol=1e-5, atol=1e-7, equal_nan=True)
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
