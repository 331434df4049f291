"""What differs between devices, exercised on the CPU and on a CUDA device that is played by a few functions."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autokernel import baseline, bundles, capture, dynamo, fixtures, models
from autokernel import device as devices
from autokernel.errors import WorkerError
from autokernel.normalise import normalise
from conftest import scaled_task

CUDA = torch.device("cuda", 0)


class FakeCuda:
    """A clock in microseconds in the place of torch.cuda: an event costs 2, `work` what it says, a synchronisation nothing."""

    def __init__(self, monkeypatch):
        self.now, self.log = 0.0, []
        fake = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                fake.now += 2
                self.at = fake.now

            def synchronize(self):
                fake.log.append("wait")

            def elapsed_time(self, end):
                return (end.at - self.at) / 1000

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: self.log.append("synchronise"))
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.log.append(("lead", cycles)))

    def work(self, us):
        self.now += us


@pytest.fixture
def cuda(monkeypatch):
    return FakeCuda(monkeypatch)


def test_the_device_of_a_request():
    loaded = SimpleNamespace(loaded=SimpleNamespace(device=CUDA))
    assert devices.of_request(SimpleNamespace(loaded=None), {}) == devices.CPU
    assert devices.of_request(loaded, {}) == CUDA
    assert devices.of_request(loaded, {"device": "cpu"}) == devices.CPU


def test_time_by_events_comes_after_a_lead(cuda):
    assert devices.elapsed_us(CUDA, lambda: cuda.work(10), repeats=3, lead_us=5) == pytest.approx(32)
    assert cuda.log == [("lead", 10000), "wait"]


def test_the_host_is_timed_by_its_own_clock():
    called = []
    assert devices.elapsed_us(devices.CPU, lambda: called.append(1), repeats=4) > 0 and len(called) == 4
    assert devices.host_us(devices.CPU, lambda: None) >= 0


def test_a_stopwatch_of_a_device_takes_the_empty_pair_off(cuda):
    watch = devices.stopwatch(CUDA)
    cuda.log.clear()
    for node in range(70):
        assert watch.time(f"n{node}", lambda: cuda.work(node) or "result") == "result"
    times = watch.end()
    assert times["n0"] == 0 and times["n69"] == pytest.approx(69)
    assert [entry for entry in cuda.log if entry != "synchronise"] == [("lead", 6400000)] * 2 and cuda.log[-1] == "synchronise"
    assert watch.end() == {}


def test_a_stopwatch_of_the_host_starts_anew_at_the_end_of_a_run():
    watch = devices.stopwatch(devices.CPU)
    assert watch.time("a", lambda: 3) == 3 and watch.end()["a"] >= 0 and watch.end() == {}


def test_a_flush_only_reads(monkeypatch):
    flush = devices.Flush(devices.CPU, 4096)
    flush()
    assert flush.sum == 1024 and bool((flush.buffer == 1).all())
    assert devices.Flush(devices.CPU, 0).buffer is None
    devices.Flush(devices.CPU, 0)()
    monkeypatch.setattr(devices, "l2_bytes", lambda device: 1 << 16)
    assert devices.Flush(devices.CPU, 4096).buffer.nbytes == 2 << 16


def test_what_cannot_be_captured_is_timed_as_called(monkeypatch):
    call = lambda: 1  # noqa: E731
    assert devices.in_graph(call, devices.CPU) == (call, "the CPU has no CUDA graphs")

    def refuses(call, device):
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(devices, "captured", refuses)
    assert devices.in_graph(call, CUDA) == (call, "operation not permitted when stream is capturing")
    monkeypatch.setattr(devices, "captured", lambda call, device: "replay")
    assert devices.in_graph(call, CUDA) == ("replay", None)

    def stale(replay):
        raise ValueError("stale")

    assert devices.in_graph(call, CUDA, stale) == (call, "stale")


def test_an_unknown_cuda_device_is_the_users_fault(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    chosen = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert models.parse_device("cuda") == CUDA and chosen == [CUDA]
    with pytest.raises(WorkerError, match="no device cuda:3: PyTorch sees 1"):
        models.parse_device("cuda:3")


def test_a_class_is_made_on_the_device_unless_it_minds():
    class Table(nn.Module):
        def __init__(self, values=None):
            super().__init__()
            self.table = torch.randn(3) + (0 if values is None else values)

    meta = torch.device("meta")
    assert models._constructed(Table, meta).table.device == meta and models._constructed(Table, devices.CPU).table.device == devices.CPU
    assert models._constructed(lambda: Table(torch.ones(3, device="cpu")), meta).table.device == devices.CPU


# --- baselines


def measured(monkeypatch, samples, rounds=5):
    """What `_measure` makes of calls that take `us` while the process waits `waited_us` for a CPU."""
    coming, waited = iter(samples), [0.0]

    def elapsed_us(device, call, lead_us):
        us, waited_us = next(coming)
        waited[0] += waited_us
        return us

    monkeypatch.setattr(baseline.devices, "elapsed_us", elapsed_us)
    return baseline._measure({"eager": baseline._Prepared(None)}, rounds, lambda: None, devices.CPU, lambda: waited[0])["eager"]


def test_a_disturbed_sample_of_a_baseline_is_taken_again(monkeypatch):
    assert measured(monkeypatch, [(900, 800), (10, 0), (11, 9), (12, 0), (700, 650), (650, 600), (13, 0), (14, 0)]) == [10, 11, 12, 13, 14]


def test_where_other_work_disturbs_every_sample_the_fastest_count(monkeypatch):
    samples = [(1000 - us, 900) for us in range(30)]
    assert measured(monkeypatch, samples, rounds=10) == [971, 972, 973, 974, 975]


def test_a_baseline_on_cuda_says_what_the_host_needs(families, cuda, monkeypatch):
    """The calls run on the CPU here; their device times are the fake's."""
    monkeypatch.setattr(devices, "of_request", lambda session, arguments: CUDA)
    monkeypatch.setattr(baseline, "build_inputs", lambda task, case, device: fixtures.build_inputs(task, case))
    monkeypatch.setattr(devices, "Flush", lambda device, size_bytes: lambda: cuda.log.append(("flush", size_bytes)))
    monkeypatch.setattr(devices, "release", lambda device: None)
    monkeypatch.setattr(devices, "in_graph", lambda call, device: (lambda: cuda.work(7), None))
    monkeypatch.setattr(baseline, "_WARM_UP_S", 0)
    session = SimpleNamespace(loaded=None, ways=None, families_directory=lambda arguments: str(families))
    arguments = {"task": scaled_task(), "binding": {"dims": {"M": 4, "N": 6}}, "kinds": ["eager", "library"], "rounds": 2, "flush_bytes": 64}
    result = baseline.baseline(session, arguments, lambda *_: None)
    assert set(result["kinds"]) == {"eager", "library"} and result["tf32"] is False
    for kind in result["kinds"].values():
        assert kind["samples_us"] == pytest.approx([9, 9]) and kind["host_us"] > 0 and kind["graph"] is True
    assert cuda.log[-3:] == [("flush", 64), ("lead", 40000), "wait"]


def attention(is_causal=True):
    q = torch.randn(1, 2, 8, 16)
    task = SimpleNamespace(reference=lambda tensors: F.scaled_dot_product_attention(*tensors, is_causal=is_causal))
    return task, (q, q, q)


def test_on_cuda_every_backend_of_attention_is_a_baseline():
    task, tensors = attention()
    kinds = baseline._kinds(task, tensors, ["eager", "library"], CUDA)
    assert kinds == ["eager", "library", "library_flash", "library_cudnn", "library_efficient", "library_math"]
    assert baseline._kinds(task, tensors, ["library_cudnn"], CUDA) == ["library_cudnn"]
    assert baseline._kinds(task, tensors, ["library"], devices.CPU) == ["library"]
    other = SimpleNamespace(reference=lambda tensors: tensors[0].exp())
    assert baseline._kinds(other, tensors, None, CUDA) == ["eager", "library", "compile", "compile_max_autotune"]
    with pytest.raises(WorkerError, match="Unknown baseline 'fast'"):
        baseline._kinds(task, tensors, ["fast"], CUDA)


def test_a_forced_backend_is_the_one_that_runs():
    task, tensors = attention()
    forced = baseline._prepare(task, tensors, "library_math", devices.CPU).call
    torch.testing.assert_close(forced(), task.reference(tensors))
    with pytest.raises(RuntimeError):
        baseline._prepare(task, tensors, "library_cudnn", devices.CPU)


# --- graphs are the same on every device


def attention_by_hand(q, k, v):
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) * 0.25
    scores = scores.masked_fill(torch.tril(torch.ones(length, length, device=q.device)) == 0, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


@pytest.mark.parametrize("function", [attention_by_hand, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)])
def test_a_graph_does_not_name_its_device(function):
    class Call(nn.Module):
        def forward(self, q, k, v):
            return function(q, k, v)

    graphs = [normalise(Call(), (torch.randn(2, 3, 8, 16, device=device),) * 3).nodes for device in ("cpu", "meta")]
    for nodes in graphs:
        for node in nodes:
            node.pop("source", None)
    assert graphs[0] == graphs[1] and "meta" not in str(graphs)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ((torch.ones(3), torch.ones(3)), None),
        ((torch.ones(3), torch.tensor(1.0, device="meta")), None),
        ((torch.ones(3), torch.ones(3, device="meta")), "its tensors are on several devices: cpu, meta"),
        ((torch.ones(3, device="meta"),), "it is neither on the CPU nor on a CUDA device"),
    ],
)
def test_the_backend_serves_one_device(tensors, reason):
    gm = torch.fx.symbolic_trace(nn.Identity())
    assert dynamo._why_not(gm, tensors) == reason


@pytest.mark.parametrize(("backend", "serves"), [("cpu", "cpu"), ("cuda", "cuda"), ("triton", "cuda")])
def test_a_bundle_serves_the_device_of_its_backend(tmp_path, backend, serves):
    task = {"tensors": [{"name": name, "role": role, "dtype": "float32"} for name, role in (("x", "data"), ("out", "output"))],
            "family": "f", "options": {}, "scalars": {}, "workload": [{"dims": {"M": 3}}]}
    (tmp_path / "bundle.json").write_text(
        str({"schema": bundles.SCHEMA, "task": task, "kernel_file": "kernel", "module": "module", "architecture": "", "backend": backend, "us": 1, "replaces_us": 2}).replace("'", '"')
    )
    region = {"family": "f", "options": {}, "scalars": {}, "inputs": {"x": "a"}, "outputs": {"out": "b"}, "constants": [], "dims": {"M": 3}, "strides": {}}
    for device in ("cpu", "cuda"):
        value = SimpleNamespace(device=torch.device(device), dtype=torch.float32)
        graph = SimpleNamespace(fx_nodes={name: SimpleNamespace(meta={"val": value}) for name in "ab"})
        assert bundles.Bundle(str(tmp_path)).why_not(region, graph) == (None if device == serves else "made for another device")


# --- a next step


def test_a_model_of_gradients_alone_is_told_what_to_do(model_file):
    path = model_file("""
        import torch
        from torch import nn

        class Force(nn.Module):
            def __init__(self):
                super().__init__()
                self.energy = nn.Linear(8, 1)

            def forward(self, x):
                x = x.detach().requires_grad_(True)
                return torch.autograd.grad(self.energy(x).tanh().sum(), x)[0]
    """)
    loaded = models.load(f"{path}:Force", [4, 8], "float32")
    with pytest.raises(WorkerError, match="name a part of it that takes none, as file.py:function"):
        capture.capture(loaded)
