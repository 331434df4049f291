"""No answer that knows nothing (zeros, ones, the mean, a copy of an input, the answer to other data) passes a task of any family, in any dtype."""

import json

import pytest
import torch
from judge_client import Judge
from test_families import FAMILIES, MODEL

from autokernel import fixtures
from autokernel.session import Session


@pytest.fixture
def judge():
    made = Judge(device="cpu")  # the comparison is the same for every device
    yield made
    made.close()


def passing(judge, task, generator, seed, device, directory):
    """The null candidates that pass on the task's workload with these data."""
    case = {**task["workload"][0], "generator": generator}
    files = []
    for name, its_seed in (("case", seed), ("other", seed + 1000)):
        arguments = {"task": task, "case": {**case, "seed": its_seed}, "directory": str(directory / name), "device": device}
        made = fixtures.fixtures(Session(), arguments, lambda *_: None)
        files.append({"inputs": made["inputs"], "expected": made["expected"]})
    return set(judge.ask("null_candidates", task=task, case={**case, "seed": seed}, **files[0], other=files[1])["passing"])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_knows_nothing_passes_no_task(program, judge, tmp_path, dtype, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    model = program.directory / "everything.py"
    model.write_text(MODEL)
    program.ok("prepare", f"{model}:Everything", "--input-shape", "2,48", "--dtype", dtype, "--device", "cpu", "--run-dir", program.run_dir)
    program.extract()
    tasks = [json.loads(path.read_text()) for path in sorted((program.run_dir / "tasks").glob("*/task.json"))]
    assert {task["family"] for task in tasks} == FAMILIES
    for task in tasks:
        left = passing(judge, task, "normal", 1, device, tmp_path)
        for seed, generator in enumerate(task["stability"], 2):  # as the judge does: what passes has to pass with all
            left = left and left & passing(judge, task, generator, seed, device, tmp_path)
        assert left == set(), (task["family"], dtype)
