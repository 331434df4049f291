"""Norms of sums in a pre-norm and a post-norm block: found as one region each, judged, and put back into the model, which stays right."""

import functools
import importlib.util
import json

import pytest
import torch
from conftest import PROGRAM, Program

from autokernel import dynamo

MODEL = '''
import torch
from torch import nn


class Blocks(nn.Module):
    """Pre-norm blocks, whose sums go on, then post-norm blocks, whose sums are normalised only."""

    def __init__(self):
        super().__init__()
        self.pre = nn.ModuleList(nn.RMSNorm(384, eps=1e-6) for _ in range(2))
        self.post = nn.ModuleList(nn.LayerNorm(384) for _ in range(2))

    def forward(self, x):
        for norm in self.pre:
            x = x + norm(x).sin()
        for norm in self.post:
            x = norm(x.cos() + x)
        return x
'''


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    """A finished run on the CPU, and its tasks by what tells them apart."""
    assert PROGRAM.exists(), f"build first: {PROGRAM} is missing"
    shared = Program(tmp_path_factory.mktemp("blocks"))
    path = shared.directory / "blocks.py"
    path.write_text(MODEL)
    shared.summary = shared.last_json(
        "run", f"{path}:Blocks", "--input-shape", "4,64,384", "--device", "cpu", "--run-dir", shared.run_dir, "--rounds", "5", "--experiments", "6", timeout=900,
    )
    shared.model = path
    shared.by_form = {}
    for file in sorted(shared.run_dir.glob("tasks/*/task.json")):
        task = json.loads(file.read_text())
        form = (task["family"], task["options"]["HAS_RESIDUAL"], task["options"]["HAS_RESIDUAL_OUT"])
        shared.by_form[form] = {**task, "calls": task["workload"][0].get("calls", 1)}
    return shared


def test_each_norm_is_one_region_with_the_sum_before_it(blocks):
    calls = {form: task["calls"] for form, task in blocks.by_form.items()}
    assert calls == {("rmsnorm", 0, 0): 1, ("rmsnorm", 1, 1): 1, ("layernorm", 1, 0): 2}
    strides = blocks.by_form["rmsnorm", 1, 1]["workload"][0]["strides"]
    assert {name: strides[name] for name in ("x", "residual", "out", "residual_out")} == dict.fromkeys(("x", "residual", "out", "residual_out"), [384, 1])


def test_their_kernels_pass_all_stages(blocks):
    passed = {record["task"] for record in blocks.journal() if record["type"] == "trial" and record["verdict"] == "kept" and record["evidence"]["stages"] == [1, 2, 3, 4, 5]}
    assert passed == {task["id"] for task in blocks.by_form.values()}
    assert blocks.summary["end_to_end"]["max_error_over_eager_error"] <= 2
    assert blocks.summary["end_to_end"]["norm_error_over_eager_error"] <= 1.25


def test_their_kernels_go_back_into_the_model(blocks):
    """Whichever of them paid in the run: all."""
    spec = importlib.util.spec_from_file_location("blocks", blocks.model)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(5)
    model, x, report = module.Blocks().eval(), torch.randn(4, 64, 384), dynamo.Report()
    with torch.no_grad():
        compiled = torch.compile(model, backend=functools.partial(dynamo.backend, report=report), options={"run": str(blocks.run_dir), "exclude": []})
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert report.fallbacks == [] and report.left == []
    assert sorted(entry["task"] for entry in report.replaced) == sorted(task["id"] for task in blocks.by_form.values() for _ in range(task["calls"]))
