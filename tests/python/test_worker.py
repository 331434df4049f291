"""The worker as the engine sees it: a child process on two pipes."""

import json
import os

import pytest
import torch

from conftest import ROOT, WorkerClient, scaled_task

MODEL = """
    import torch
    from torch import nn
    print("hello from the model")

    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 16)
            self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(2)])

        def forward(self, ids):
            x = self.table(ids)
            for layer in self.layers:
                x = x + torch.softmax(layer(x), dim=-1)
            return x
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    client = WorkerClient({"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))})
    yield client
    code, output, _ = client.close()
    assert code == 0 and output == ""


def test_the_greeting_names_version_device_and_capabilities(worker):
    greeting = worker.greeting
    assert greeting["hello"] == "autokernel.worker" and greeting["protocol"] == 1 and "cpu" in greeting["device"]
    assert greeting["torch"] == torch.__version__.split("+")[0] and greeting["threads"] >= 1
    assert {"load", "capture", "patterns", "profile", "fixtures", "baseline"} <= set(greeting["capabilities"])
    assert "compile_triton" not in greeting["capabilities"]


def test_load_capture_profile(worker, model_file, tmp_path):
    loaded = worker.result("load", model=f"{model_file(MODEL)}:Tiny", input_shape=[2, 8], dtype="float32", device="cpu", seed=3)
    assert loaded["parameters"] == 50 * 16 + 2 * (16 * 16 + 16)
    assert loaded["inputs"] == [{"dtype": "int64", "shape": [2, 8]}] and loaded["output"] == [{"dtype": "float32", "shape": [2, 8, 16]}]
    captured = worker.result("capture", path=str(tmp_path / "graph.json"))
    assert captured == {"capture": "export", "reason": None, "graphs": 1, "nodes": 14}
    graph = json.loads((tmp_path / "graph.json").read_text())
    assert graph["schema"] == "autokernel.graph/1" and graph["capture"] == "export"
    names = [node["name"] for node in graph["graphs"][0]["nodes"] if node["op"].startswith("aten.")]
    measured = worker.result("profile", iterations=4, path=str(tmp_path / "profile.json"))
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["schema"] == "autokernel.profile/1" and profile["iterations"] == 4
    assert set(profile["nodes"]) == {f"g0/{name}" for name in names} and measured["nodes"] == len(names)
    assert (
        all(node["us"] > 0 and node["calls"] == 1 for node in profile["nodes"].values()) and profile["total_us"] == measured["total_us"] > 0
    )
    assert any("Timing" in progress["text"] for progress in worker.progress)


def test_a_failed_load_forgets_the_model(worker, model_file, tmp_path):
    path = model_file(MODEL)
    worker.result("load", model=f"{path}:Tiny", input_shape=[1, 4], dtype="float32", device="cpu", seed=0)
    error = worker.ask("load", model=f"{path}:Tony", input_shape=[1, 4], dtype="float32", device="cpu", seed=0)["error"]
    assert error["kind"] == "user" and "It defines: Tiny." in error["message"] and error["traceback"] == ""
    assert worker.ask("capture", path=str(tmp_path / "graph.json"))["error"]["message"].startswith("No model is loaded")


def test_a_users_fault_carries_their_traceback_only(worker, model_file):
    path = model_file("import torch\ndef model():\n    return 1 / 0\n")
    error = worker.ask("load", model=f"{path}:model", input_shape=[1], dtype="float32", device="cpu", seed=0)["error"]
    assert error["kind"] == "user" and "ZeroDivisionError" in error["message"]
    assert error["traceback"].count("File ") == 1 and 'model.py", line 3, in model' in error["traceback"]


def test_a_model_that_exits_does_not_end_the_worker(worker, model_file):
    error = worker.ask("load", model=f"{model_file('raise SystemExit(3)')}:Model", input_shape=[1], dtype="float32", device="cpu", seed=0)[
        "error"
    ]
    assert error["kind"] == "user" and "SystemExit" in error["message"]


def test_patterns_fixtures_and_baseline(worker, families, tmp_path):
    result = worker.result("patterns", families=str(families), dtypes=["float32"], path=str(tmp_path / "patterns.json"))
    assert result["patterns"] == 4 and {error["spelling"] for error in result["errors"]} == {"ignores_weight", "unexplained"}
    task_path = tmp_path / "task.json"
    task_path.write_text(json.dumps(scaled_task()))
    made = [
        worker.result(
            "fixtures",
            task=task,
            case={"stage": 1, "dims": {"M": 4, "N": 9}, "generator": "normal", "seed": 1},
            directory=str(tmp_path / name),
        )
        for name, task in (("a", scaled_task()), ("b", str(task_path)))
    ]
    contents = [[open(result[key], "rb").read() for key in ("inputs", "expected")] for result in made]
    assert contents[0] == contents[1] and made[0]["bytes"] == sum(map(len, contents[0]))
    kinds = worker.result(
        "baseline", task=scaled_task(), binding={"dims": {"M": 4, "N": 9}}, seed=1, kinds=["eager", "library"], rounds=3, flush_bytes=4096
    )["kinds"]
    assert [len(kinds[kind]["samples_us"]) for kind in ("eager", "library")] == [3, 3]


@pytest.mark.parametrize(
    ("verb", "arguments", "kind", "told"),
    [
        ("dance", {}, "bug", "no verb 'dance'"),
        ("load", {}, "bug", "'model'"),
        ("patterns", {"families": "/nowhere", "path": "x"}, "user", "no directory of families"),
        ("fixtures", {"task": "/nowhere/task.json", "case": {}, "directory": "x"}, "environment", "No such file"),
    ],
)
def test_faulty_requests_are_answered(worker, verb, arguments, kind, told):
    error = worker.ask(verb, **arguments)["error"]
    assert error["kind"] == kind and told in error["message"]


def test_what_the_model_prints_goes_to_the_log(model_file):
    client = WorkerClient()
    client.result("load", model=f"{model_file(MODEL)}:Tiny", input_shape=[1, 4], dtype="float32", device="cpu", seed=0)
    code, output, log = client.close()
    assert code == 0 and output == "" and "hello from the model" in log


def test_the_examples_are_captured_whole(worker, tmp_path):
    for model, shape in (("demo.py:example", None), ("custom.py:example", None)):
        worker.result("load", model=str(ROOT / "examples" / "models" / model), input_shape=shape, dtype="float32", device="cpu", seed=0)
        captured = worker.result("capture", path=str(tmp_path / "graph.json"))
        assert captured["capture"] == "export" and captured["nodes"] > 5
    assert not [name for name in os.listdir(tmp_path) if ".part" in name]
