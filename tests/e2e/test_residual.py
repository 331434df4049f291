"""Norms of sums in a pre-norm and a post-norm block: found as one region each, judged, and put back into the model, which stays right."""

import functools
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from conftest import PROGRAM, Program
from test_cases import Bench

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
    """The tasks of the model, by what tells them apart."""
    assert PROGRAM.exists(), f"build first: {PROGRAM} is missing"
    shared = Program(tmp_path_factory.mktemp("blocks"))
    shared.model = shared.directory / "blocks.py"
    shared.model.write_text(MODEL)
    shared.ok("prepare", f"{shared.model}:Blocks", "--input-shape", "4,64,384", "--device", "cpu", "--run-dir", shared.run_dir)
    shared.extract()
    shared.by_form = {}
    for file in sorted(shared.run_dir.glob("tasks/*/task.json")):
        task = json.loads(file.read_text())
        form = (task["family"], task["options"]["HAS_RESIDUAL"], task["options"]["HAS_RESIDUAL_OUT"])
        shared.by_form[form] = {**task, "calls": task["workload"][0].get("calls", 1)}
    return shared


def put_bundle(run, task):
    """The starter as if it had won."""
    directory = run / "bundles" / task["id"]
    directory.mkdir(parents=True)
    bench = Bench("cpu", directory)
    module = bench.starter(task, task["workload"][0])["module"]
    bench.judge.close()
    bundle = json.loads((directory / "bundle.json").read_text())
    (directory / "bundle.json").write_text(json.dumps({**bundle, "module": Path(module).name, "speedup_vs_best": 2, "baseline_us": 2, "replaces_us": 2}))


def test_each_norm_is_one_region_with_the_sum_before_it(blocks):
    calls = {form: task["calls"] for form, task in blocks.by_form.items()}
    assert calls == {("rmsnorm", 0, 0): 1, ("rmsnorm", 1, 1): 1, ("layernorm", 1, 0): 2}
    strides = blocks.by_form["rmsnorm", 1, 1]["workload"][0]["strides"]
    assert {name: strides[name] for name in ("x", "residual", "out", "residual_out")} == dict.fromkeys(("x", "residual", "out", "residual_out"), [384, 1])


def test_their_starters_pass_all_stages(blocks):
    for task in blocks.by_form.values():
        reply = blocks.last_json("bench", task["id"], "--run-dir", blocks.run_dir, "--note", "the starter")
        assert (reply["verdict"], reply["evidence"]["stages"]) == ("kept", [1, 2, 3, 4, 5]), (task["id"], reply)


def test_their_kernels_go_back_into_the_model(blocks):
    for task in blocks.by_form.values():
        put_bundle(blocks.run_dir, json.loads((blocks.run_dir / "tasks" / task["id"] / "task.json").read_text()))
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
