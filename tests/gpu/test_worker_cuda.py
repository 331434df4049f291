"""The PyTorch worker on a real CUDA device: load, capture, profile, fixtures, baselines, verification."""

import json
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from autokernel import baseline, capture, fixtures, models, profile, safetensors, verify  # noqa: E402
from autokernel import device as devices  # noqa: E402
from autokernel.session import Session, load  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
DEVICE = "cuda"
MODELS = ROOT / "examples" / "models"


def quiet(text, done=0, total=0):
    pass


@pytest.fixture
def session():
    made = Session()
    made.loaded = SimpleNamespace(device=models.parse_device(DEVICE))
    return made


def tensor(name, role, dtype, shape):
    return {"name": name, "role": role, "dtype": dtype, "shape": shape}


def task(family, spelling, dtype, tensors, scalars=None, options=None):
    """A task of a family in kernels/, its tensors as (name, role, shape)."""
    return {
        "schema": "autokernel.task/1", "id": f"{family}_00000000", "family": family, "spelling": spelling, "dtype": dtype,
        "tensors": [tensor(name, role, dtype, shape) for name, role, shape in tensors], "scalars": scalars or {}, "options": options or {},
        "reference": {"kind": "family", "family": family, "function": "reference"},
    }


def rmsnorm(dtype):
    tensors = [("x", "data", ["M", "N"]), ("weight", "weight", ["N"]), ("out", "output", ["M", "N"])]
    return task("rmsnorm", "pow_rsqrt", dtype, tensors, {"eps": 1e-6}, {"HAS_WEIGHT": 1, "WEIGHT_OFFSET": 0, "MACHINE_EPS": 0})


def softmax(dtype):
    return task("softmax", "functional", dtype, [("x", "data", ["M", "N"]), ("out", "output", ["M", "N"])], {"scale": 1.0}, {"LOG": 0, "DIVIDE": 0})


def matmul(dtype):
    tensors = [("x", "data", ["M", "K"]), ("weight", "weight", ["N", "K"]), ("out", "output", ["M", "N"])]
    made = task("matmul", "", dtype, tensors)
    for name, role, shape in (("bias", "weight", ["N"]), ("residual", "data", ["M", "N"])):
        made["tensors"].insert(-1, {**tensor(name, role, dtype, shape), "absent": True})
    return made


def attention(dtype):
    queries, keys = ["B", "H", "S", "D"], ["B", "G", "L", "D"]
    tensors = [("q", "data", queries), ("k", "data", keys), ("v", "data", keys), ("out", "output", queries)]
    options = {"CAUSAL": 1, "HAS_MASK": 0, "BOOL_MASK": 0, "SCALE": 0, "SAFE": 1}
    return task("flash_attention", "sdpa_causal", dtype, tensors, {"scale": 1.0}, options)


def made(session, tmp_path, wanted, **case):
    """(inputs in their layout, expected, the reply) of a case, read back from the files."""
    case = {"seed": 5, "generator": "normal", **case}
    reply = fixtures.fixtures(session, {"task": wanted, "case": case, "directory": str(tmp_path / "fixture")}, quiet)
    storages, layout = safetensors.read(reply["inputs"])
    inputs = {
        name: storage.as_strided(json.loads(layout[f"{name}.shape"]), json.loads(layout[f"{name}.strides"]), int(layout[f"{name}.offset"]))
        for name, storage in storages.items()
    }
    return inputs, safetensors.read(reply["expected"])[0], reply


# --- fixtures


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_expected_values_are_those_of_the_device(session, tmp_path, dtype):
    wanted = softmax(dtype)
    inputs, expected, _ = made(session, tmp_path, wanted, dims={"M": 33, "N": 1000})
    function = fixtures.read_task(session, {"task": wanted}).reference
    x = inputs["x"].to(DEVICE)
    assert torch.equal(expected["out.eager"], function({"x": x})[0].cpu())
    exact = {"rtol": 1e-12, "atol": 1e-15} if dtype == "float32" else {"rtol": 1e-7, "atol": 1e-12}
    torch.testing.assert_close(expected["out.reference"].double(), torch.softmax(inputs["x"].double(), -1), **exact)


def test_a_large_fixture_takes_well_under_a_second(session):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for _ in range(2):  # the first makes the context and the staging memory
            reply = made(session, Path(directory), rmsnorm("float16"), dims={"M": 4096, "N": 4096})[2]
    print(reply["bytes"] / 1e6, "MB", reply["seconds"])
    assert sum(reply["seconds"].values()) < 0.8


def test_the_seed_decides_everything(session, tmp_path):
    first, again, other = (made(session, tmp_path, rmsnorm("float16"), dims={"M": 7, "N": 64}, seed=seed)[0]["x"] for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("generator", ["large", "offset", "mixed_scale", "constant", "zeros", "alternating", "denormal", "infinite", "nan"])
@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed", "misaligned"])
def test_generators_and_layouts(session, tmp_path, generator, layout):
    inputs, expected, _ = made(session, tmp_path, rmsnorm("float16"), dims={"M": 12, "N": 40}, generator=generator, layout=layout)
    assert inputs["x"].shape == (12, 40) and (inputs["x"].storage_offset() == 4) == (layout == "misaligned")
    assert torch.isnan(inputs["x"]).any() == (generator == "nan") and torch.isinf(inputs["x"]).any() == (generator == "infinite")
    assert expected["out.reference"].shape == (12, 40)


def test_attention_that_lies_at_no_multiple_of_16_bytes_is_what_it_would_be_elsewhere(session, tmp_path):
    _, expected, _ = made(session, tmp_path, attention("float16"), dims={"B": 2, "H": 4, "G": 4, "S": 20, "L": 20, "D": 16}, layout="misaligned")
    torch.testing.assert_close(expected["out.eager"].float(), expected["out.reference"], rtol=2e-3, atol=2e-3)


def test_eager_has_tf32_only_where_the_process_allows_it(session, tmp_path):
    def error():
        _, expected, _ = made(session, tmp_path, matmul("float32"), dims={"M": 256, "N": 256, "K": 1024})
        return (expected["out.eager"] - expected["out.reference"]).abs().max().item()

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        exact, allowed = error(), devices.tf32()
        torch.set_float32_matmul_precision("high")
        assert not allowed and devices.tf32()
        assert error() > 20 * exact
    finally:
        torch.set_float32_matmul_precision(before)


# --- clocks and graphs


def test_a_graph_replays_and_what_cannot_be_captured_is_called():
    device = models.parse_device(DEVICE)
    x = torch.ones(1024, device=device)
    replay, reason = devices.in_graph(lambda: x * 2, device)
    assert reason is None
    x.fill_(3)
    assert bool((replay() == 6).all())
    call = lambda: x * x.sum().item()  # noqa: E731
    same, reason = devices.in_graph(call, device)
    assert same is call and reason
    assert bool((call() == 3 * 3 * 1024).all())
    replay, reason = devices.in_graph(lambda: x + 1, device)  # the failure left nothing behind
    assert reason is None and bool((replay() == 4).all())


def test_a_copy_takes_what_the_memory_allows():
    """Cold, by events, behind a lead: neither the host's time nor a warm cache is in it."""
    device = models.parse_device(DEVICE)
    source = torch.randn(1 << 26, device=device)  # 268 MB read and as much written
    target = torch.empty_like(source)
    flush = devices.Flush(device, 1)
    assert flush.buffer.nbytes >= 2 * devices.l2_bytes(device) > 0

    def sample(elements):
        flush()
        return devices.elapsed_us(device, lambda: target[:elements].copy_(source[:elements]), lead_us=50)

    large, small = (statistics.median(sample(elements) for _ in range(20)) for elements in (1 << 26, 1 << 10))
    print(f"copy of 536 MB {large:.1f} us, of 8 KB {small:.1f} us, an empty pair {devices.stopwatch(device).empty_us:.2f} us")
    assert small < 12 and large > 5 * small


# --- profile


def test_a_profile_is_of_the_device(tmp_path):
    session = Session()
    load(session, {"model": f"{MODELS}/gpt2.py:GPT2", "input_shape": [1, 256], "dtype": "float16", "device": DEVICE}, quiet)
    profile.profile(session, {"iterations": 10, "path": str(tmp_path / "profile.json")}, quiet)
    measured = json.loads((tmp_path / "profile.json").read_text())
    times = {name: node["us"] for name, node in measured["nodes"].items()}
    largest = sorted(times.items(), key=lambda item: -item[1])[:8]
    print(f"forward {measured['forward_us']:.0f} us, nodes {measured['total_us']:.0f} us, {largest}")
    assert measured["device"] == "cuda" and set(times) >= {f"g0/{n['name']}" for n in session.captured.graphs[0].nodes if "aten." in n["op"]}
    assert 0 < measured["total_us"] < 1.5 * measured["forward_us"]
    views = [us for name, us in times.items() if name.split("/")[1].startswith(("reshape", "transpose", "slice", "view"))]
    assert views and statistics.median(views) < 1.0 < largest[0][1]


# --- baselines


def measured(session, wanted, dims, kinds=None, **binding):
    arguments = {"task": wanted, "binding": {"dims": dims, **binding}, "seed": 3, "kinds": kinds, "rounds": 15, "flush_bytes": 128 << 20}
    reply = baseline.baseline(session, arguments, quiet)
    medians = {kind: statistics.median(entry["samples_us"]) for kind, entry in reply["kinds"].items() if "samples_us" in entry}
    print(wanted["family"], dims, {kind: round(us, 2) for kind, us in medians.items()}, {k: e.get("host_us", e.get("error")) for k, e in reply["kinds"].items()})
    return reply["kinds"], medians


@pytest.mark.parametrize("wanted", [rmsnorm("float16"), softmax("float16")])
def test_baselines_of_row_kernels(session, wanted):
    kinds, medians = measured(session, wanted, {"M": 4096, "N": 4096})
    assert set(medians) == {"eager", "library", "compile", "compile_max_autotune"}
    assert all(kind["graph"] and kind["host_us"] > 0 for kind in kinds.values())
    assert all(5 < us < 1000 for us in medians.values()) and medians["compile"] < 1.2 * medians["eager"]


def test_baselines_of_attention_force_every_backend(session):
    kinds, medians = measured(session, attention("float16"), {"B": 2, "H": 16, "G": 16, "S": 1024, "L": 1024, "D": 64}, ["eager", "library"])
    assert set(kinds) == {"eager", "library", "library_flash", "library_cudnn", "library_efficient", "library_math"}
    assert {"library_flash", "library_efficient", "library_math"} <= set(medians)
    assert min(medians.values()) < medians["library_math"]


def test_a_baseline_honours_strides(session):
    columns = {"x": [1, 4096], "weight": [1], "out": [4096, 1]}
    rows = measured(session, rmsnorm("float16"), {"M": 4096, "N": 4096}, ["eager"])[1]["eager"]
    assert measured(session, rmsnorm("float16"), {"M": 4096, "N": 4096}, ["eager"], strides=columns)[1]["eager"] != pytest.approx(rows, rel=0.02)


# --- capture, verification


@pytest.mark.parametrize(
    ("model", "shape"), [("gpt2.py:GPT2", [1, 128]), ("llama.py:Llama", [1, 128]), ("bert.py:BertBase", [1, 128]), ("demo.py:example", None), ("custom.py:example", None)]
)
def test_the_examples_load_and_have_the_graph_they_have_on_the_cpu(model, shape):
    nodes = {}
    for device in ("cpu", DEVICE):
        loaded = models.load(f"{MODELS}/{model}", shape, "float16", device)
        assert loaded.device.type == device and loaded.args[0].device.type == device
        captured = capture.capture(loaded)
        assert captured.method == "export"
        nodes[device] = [(node["name"], node["op"], node.get("args")) for node in captured.graphs[0].nodes]
    assert nodes["cpu"] == nodes[DEVICE]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.softmax(layer(x), -1) + x
        return x


def verification(tmp_path, model):
    session = Session()
    device = models.parse_device(DEVICE)
    inputs = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)).to(device)
    session.loaded = models.Loaded("small", "instance", model.to(device).eval(), (inputs,), {}, None, False, [], device)
    return verify.verify(session, {"run": str(tmp_path), "exclude": [], "rounds": 5}, quiet)


def test_verification_has_the_baselines_of_a_device(tmp_path):
    torch._dynamo.reset()
    result = verification(tmp_path, Small())
    print({name: entry.get("median_us", entry.get("error")) for name, entry in result["vs"].items()}, result["median_us"], result["no_graph"])
    assert set(result["vs"]) == {"eager", verify.EAGER_GRAPH, "torch.compile", "torch.compile max-autotune", "replacement_off"}
    assert result["parity"] and result["device"] == "cuda" and result["no_graph"] == {}
    assert all(entry["median_us"] > 0 for entry in result["vs"].values())
    assert result["vs"]["eager"]["median_us"] > result["vs"][verify.EAGER_GRAPH]["median_us"]


class Synchronising(Small):
    """Reads a number on the host, so that no graph can hold it."""

    def forward(self, x):
        return super().forward(x) * (1.0 if x.sum().item() == 0.125 else 2.0)


def test_a_model_that_cannot_be_captured_is_timed_as_called(tmp_path):
    torch._dynamo.reset()
    result = verification(tmp_path, Synchronising())
    assert "error" in result["vs"][verify.EAGER_GRAPH] and "autokernel" in result["no_graph"] and result["median_us"] > 0
