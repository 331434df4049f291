"""Verification: parity against float64, engagement, paired statistics, and kernels that are taken out again."""

import json
import math
import os
import random
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import tiny_family
from autokernel import models, paired, parity, verify
from conftest import WorkerClient

ROWS, WIDTH = 24, 64
MODEL = """
    import torch
    from torch import nn

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(64) + 0.5)

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([Norm() for _ in range(3)])
            self.linear = nn.Linear(64, 64)

        def forward(self, x):
            for norm in self.norms:
                x = self.linear(norm(x)) + x
            return x, x.argmax(-1)
"""


TASK = tiny_family.task(ROWS, WIDTH)


@pytest.fixture
def families(monkeypatch, tmp_path):
    torch._dynamo.reset()
    directory = tiny_family.write_family(tmp_path / "families")
    monkeypatch.setenv("AUTOKERNEL_FAMILIES", directory)
    return directory


@pytest.fixture
def session(model_file):
    loaded = models.load(model_file(MODEL) + ":Model", [ROWS, WIDTH], "float32")
    return SimpleNamespace(require_loaded=lambda: loaded)


def gains(monkeypatch, of_the_whole, without):
    """Replace the clock: how much faster the model is with the kernels, and without one of them."""
    calls = iter([(of_the_whole,) * 3] + [(without,) * 3] * 10)
    monkeypatch.setattr(verify.Verification, "_gain", lambda *_: next(calls))


def verified(session, run, **more):
    return verify.verify(session, {"run": run, "rounds": 5, **more}, lambda *_: None)


def test_kernels_that_are_right_are_engaged_and_at_parity(families, session, tmp_path, monkeypatch):
    run = str(tmp_path / "run")
    tiny_family.write_bundle(run, TASK)
    gains(monkeypatch, 1.2, 0.9)
    result = verified(session, run, path=os.path.join(run, "verification.json"))
    assert result["parity"] and result["engaged"] and result["input_sets"] == 3 and result["taken_out"] == [] and result["graphs_to_inductor"] == []
    assert 0 < result["max_error_over_eager_error"] <= 2 and 0 < result["norm_error_over_eager_error"] <= 1.25
    (replaced,) = result["replaced"]
    assert replaced["task"] == TASK["id"] and replaced["regions"] == replaced["calls"] == 3
    assert replaced["shapes"] == [{"x": [ROWS, WIDTH], "weight": [WIDTH]}] and replaced["us_saved"] == pytest.approx(27.0)
    assert set(result["vs"]) == {"eager", "torch.compile", "replacement_off"}
    for entry in result["vs"].values():
        assert 0 < entry["ci_low"] <= entry["speedup"] <= entry["ci_high"] and entry["median_us"] > 0
    with open(os.path.join(run, "verification.json"), encoding="utf-8") as file:
        assert json.load(file) == result


def test_a_kernel_that_is_wrong_is_taken_out(families, session, tmp_path, monkeypatch):
    run = str(tmp_path / "run")
    tiny_family.write_bundle(run, TASK, factor="* 1.0001f")
    gains(monkeypatch, 1.2, 0.9)
    result = verified(session, run)
    assert result["taken_out"] == [{"task": TASK["id"], "reason": "the model's error was too large with it"}]
    assert result["parity"] and result["replaced"] == []


def test_a_kernel_that_does_not_pay_is_taken_out(families, session, tmp_path, monkeypatch):
    run = str(tmp_path / "run")
    tiny_family.write_bundle(run, TASK)
    gains(monkeypatch, 0.9, 1.25)
    result = verified(session, run)
    assert result["taken_out"] == [{"task": TASK["id"], "reason": "the model is 25.0 % faster without it"}]
    assert result["replaced"] == [] and result["excluded"] == []


def test_where_no_kernel_can_be_shown_to_pay_the_model_runs_without(families, session, tmp_path, monkeypatch):
    run = str(tmp_path / "run")
    tiny_family.write_bundle(run, TASK)
    gains(monkeypatch, 0.9, 0.9)
    result = verified(session, run)
    assert result["taken_out"] == [{"task": TASK["id"], "reason": "the model does not gain by it"}]
    assert result["replaced"] == [] and result["parity"] and result["rest"] == "inductor"


def test_the_verb_with_an_excluded_task(families, model_file, tmp_path):
    run = str(tmp_path / "run")
    tiny_family.write_bundle(run, TASK)
    worker = WorkerClient({"AUTOKERNEL_FAMILIES": families})
    assert "verify" in worker.greeting["capabilities"]
    worker.result("load", model=model_file(MODEL) + ":Model", input_shape=[ROWS, WIDTH], dtype="float32", device="cpu", seed=0)
    result = worker.result("verify", run=run, exclude=[TASK["id"]], rounds=5, path=os.path.join(run, "verification.json"))
    worker.close()
    assert result["replaced"] == [] and result["excluded"] == [TASK["id"]] and result["parity"]
    assert os.path.exists(os.path.join(run, "verification.json"))


# --- on CUDA, whose graphs are played by functions here


@pytest.fixture
def verification(session, tmp_path):
    return verify.Verification(session.require_loaded(), str(tmp_path), 5, lambda *_: None)


def test_a_graph_that_holds_all_the_work_passes(verification):
    model, (args, _) = verification.loaded.model, verification.inputs[0]
    before = args[0].clone()
    verification._check_graph(model, lambda: model(*args))
    assert torch.equal(args[0], before)


def test_a_graph_with_stale_results_is_refused(verification):
    model, (args, _) = verification.loaded.model, verification.inputs[0]
    before, stale = args[0].clone(), model(*args)
    with pytest.raises(ValueError, match="computes something else"):
        verification._check_graph(model, lambda: stale)
    assert torch.equal(args[0], before)


def test_all_but_eager_is_captured(verification, monkeypatch):
    captured = []
    monkeypatch.setattr(verify.devices, "in_graph", lambda call, device, check: captured.append(call.args[0]) or (call, None))
    verification.device = torch.device("cuda")
    for name in ("eager", "torch.compile max-autotune", "torch.compile", verify.EAGER_GRAPH, "autokernel"):
        verification._timed(name, name)
    assert captured == ["torch.compile max-autotune", "torch.compile", verify.EAGER_GRAPH, "autokernel"]


def test_eager_that_cannot_be_captured_is_no_second_baseline(verification, monkeypatch):
    monkeypatch.setattr(verify.devices, "in_graph", lambda call, device, check: (call, "a number was read"))
    monkeypatch.setattr(verify.paired, "interleaved", lambda calls, rounds, maximum_s, device: {name: [2.0, 2.0] for name in calls})
    verification.device = torch.device("cuda")
    model = verification.loaded.model
    versus = verification._versus(verification._measure({"eager": model, verify.EAGER_GRAPH: model, "autokernel": model}, 1.0))
    assert versus["eager"]["speedup"] == 1 and versus[verify.EAGER_GRAPH] == {"error": "a number was read"}
    assert verification.no_graph["autokernel"] == "a number was read"


def medians(monkeypatch, seconds):
    """Replace the clock: the time of each function by its name, or else its way."""
    def interleaved(calls, rounds, maximum_s, device):
        return {name: [seconds[name]] * 5 for name in calls}
    monkeypatch.setattr(verify.Verification, "_measure", lambda self, functions, maximum_s: interleaved(functions, 5, maximum_s, None))


@pytest.mark.parametrize("graph_us, cudnn_us, chosen", [
    (30, 15, "inductor, cuDNN attention"), (30, 25, "inductor"), (10, 15, "eager"), (10, 8, "inductor, cuDNN attention")])
def test_the_rest_runs_as_the_fastest_baseline_or_with_a_faster_attention(verification, monkeypatch, graph_us, cudnn_us, chosen):
    monkeypatch.setattr(verify, "_calls_sdpa", lambda loaded: True)
    monkeypatch.setattr(verification, "_variant", lambda exclude, **options: SimpleNamespace(call=options["rest"]))
    monkeypatch.setattr(verification, "_compare", lambda variant: SimpleNamespace(holds=True))
    verification.device = torch.device("cuda")
    baselines = {"eager": 1, "torch.compile": 2, "torch.compile max-autotune": 3, verify.EAGER_GRAPH: 4}
    medians(monkeypatch, {"eager": 99, "torch.compile": 20, "torch.compile max-autotune": 21, verify.EAGER_GRAPH: graph_us,
                          "inductor": 20, "eager": graph_us, "inductor, cuDNN attention": cudnn_us})
    assert verification._fastest_rest(baselines) == (chosen, chosen)


def test_a_way_that_is_not_right_is_not_chosen(verification, monkeypatch):
    monkeypatch.setattr(verify, "_calls_sdpa", lambda loaded: True)
    monkeypatch.setattr(verification, "_variant", lambda exclude, **options: SimpleNamespace(call=options["rest"]))
    monkeypatch.setattr(verification, "_compare", lambda variant: SimpleNamespace(holds=False))
    verification.device = torch.device("cuda")
    medians(monkeypatch, {"torch.compile": 20, "inductor": 20, "inductor, cuDNN attention": 10})
    assert verification._fastest_rest({"torch.compile": 2})[0] == "inductor"


class CastingNorm(nn.Module):
    """Casts to float32 inside, as models do; `ones` has the default dtype, `table` an explicit one."""

    def forward(self, x):
        wide = x.float()
        table = torch.arange(x.shape[-1], dtype=torch.float32) + torch.ones(x.shape[-1])
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * table.log1p()).to(x.dtype)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_float64_twin_casts_nothing_down(dtype):
    torch._dynamo.reset()
    model, x = CastingNorm(), torch.randn(5, 33, generator=torch.Generator().manual_seed(3)).to(dtype)
    reference = parity.float64_twin(verify.entry_of(model))(x)
    wide = x.double()
    expected = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * (torch.arange(33, dtype=torch.float64) + 1).log1p()
    assert reference.dtype == torch.float64
    torch.testing.assert_close(reference, expected, rtol=1e-13, atol=1e-13)
    assert torch.get_default_dtype() == torch.float32


def compare(ours, eager, reference):
    comparison = parity.Comparison()
    comparison.add(ours, eager, reference)
    return comparison


def test_ratios_of_errors():
    generator = torch.Generator().manual_seed(5)
    reference = torch.randn(40, 50, generator=generator, dtype=torch.float64)
    noise = torch.randn(40, 50, generator=generator, dtype=torch.float64) * 1e-5
    eager = (reference + noise).float()
    same = compare(eager, eager, reference)
    assert same.holds and same.max_ratio == same.norm_ratio == 1.0
    worse = compare((reference + 1.5 * noise).float(), eager, reference)
    assert worse.norm_ratio == pytest.approx(1.5, rel=1e-2) and not worse.holds
    spike = eager.clone()
    spike[3, 4] = reference[3, 4] + 4 * noise.abs().max()
    assert compare(spike, eager, reference).max_ratio == pytest.approx(4.0, rel=1e-2)
    assert not compare(spike, eager, reference).holds


def test_where_eager_is_exact_a_rounding_is_allowed():
    reference = torch.rand(100, generator=torch.Generator().manual_seed(1), dtype=torch.float64).float().double() + 1
    eager = reference.float()
    reference = eager.double()
    ulp_off = torch.nextafter(eager, torch.full_like(eager, 10.0))
    assert compare(eager, eager, reference).holds and compare(eager, eager, reference).max_ratio == 0
    assert not compare(ulp_off + 1e-4, eager, reference).holds


@pytest.mark.parametrize("change", ["nan", "infinity", "shape", "dtype", "integer", "count"])
def test_what_is_no_question_of_accuracy_is_a_problem(change):
    reference = torch.randn(6, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    eager, integers = reference.float(), torch.arange(6)
    ours, our_integers = eager.clone(), integers.clone()
    if change == "nan":
        ours[1, 1] = math.nan
    elif change == "infinity":
        eager[2, 3] = math.inf
    elif change == "shape":
        ours = ours[:-1]
    elif change == "dtype":
        ours = ours.double()
    elif change == "integer":
        our_integers[3] += 1
    outputs = (ours,) if change == "count" else (ours, our_integers)
    comparison = compare(outputs, (eager, integers), (reference, integers))
    assert len(comparison.problems) == 1 and not comparison.holds


def test_nan_and_infinities_in_the_same_places_are_fine():
    reference = torch.tensor([1.0, math.nan, math.inf, -math.inf], dtype=torch.float64)
    assert compare(reference.float(), reference.float(), reference).holds


def test_other_inputs_keep_shape_layout_and_range():
    ids = torch.randint(5, 90, (4, 16), generator=torch.Generator().manual_seed(4))
    strided = torch.randn(8, 12, generator=torch.Generator().manual_seed(4)).T
    positions, mask = torch.arange(16), ids > 40
    tree = ((ids, strided), {"positions": positions, "mask": mask, "flag": True})
    (new_ids, new_strided), named = parity.other_inputs(tree, seed=9)
    assert not torch.equal(new_ids, ids) and torch.equal(new_ids.flatten().sort()[0], ids.flatten().sort()[0])
    assert new_strided.stride() == strided.stride() and not torch.equal(new_strided, strided)
    assert torch.equal(named["positions"], positions) and torch.equal(named["mask"], mask) and named["flag"] is True
    assert torch.equal(parity.other_inputs(tree, seed=9)[0][0], new_ids)


def test_the_interval_of_paired_ratios():
    assert paired.speedup([3.0] * 9, [2.0] * 9) == (1.5, 1.5, 1.5)
    noise = random.Random(11)
    drift = [1 + 0.5 * math.sin(i / 5) for i in range(60)]  # the machine's, common to both
    baseline = [1.2 * d * noise.gauss(1, 0.02) for d in drift]
    ours = [d * noise.gauss(1, 0.02) for d in drift]
    middle, low, high = paired.speedup(baseline, ours)
    assert low < 1.2 < high and 1.17 < low <= middle <= high < 1.23


def test_rounds_visit_every_function_twice_in_both_orders():
    visited = []
    functions = {name: lambda name=name: visited.append(name) for name in "abc"}
    original = paired._repeats
    paired._repeats = lambda function, device: 1
    try:
        samples = paired.interleaved(functions, 6, maximum_s=1e9)
    finally:
        paired._repeats = original
    assert "".join(visited) == "abccba" * 6 and all(len(values) == 6 for values in samples.values())
