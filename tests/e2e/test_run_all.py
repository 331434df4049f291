"""Several models in one call: each has its run, what they have in common is had once, and one that fails keeps no other from its end."""

import json

import pytest

ENTRIES = [("Branching", "a"), ("Again", "b"), ("Broken", "c"), ("Reversed", "d")]


@pytest.fixture
def models(program):
    with program.model.open("a") as file:
        file.write("\n\nclass Again(Branching):\n    def forward(self, x):\n        return F.softmax(super().forward(x), dim=-1)\n")
    entries = [{"model": f"{program.model}:{model}", "input_shape": "64,192", "run_dir": str(program.directory / run)} for model, run in ENTRIES]
    program.list = program.directory / "list.json"
    program.list.write_text(json.dumps(entries))
    return program


def run_all(program, *arguments):
    done = program("run-all", program.list, "--device", "cpu", "--experiments", "2", "--rounds", "0", "--min-share", "0", "--json", *arguments)
    events = [json.loads(line) for line in done.out.splitlines()]
    return done, events, {event["run_dir"][-1]: event for event in events if event.get("event") == "model_done"}


def baselines(program, run):
    lines = (program.directory / run / "journal.jsonl").read_text().splitlines()
    return {record["task"]: record for record in (json.loads(line)["record"] for line in lines) if record["type"] == "baseline"}


def test_each_model_has_its_run_and_a_failure_is_its_own(models):
    done, events, ends = run_all(models)
    assert done.returncode == 1 and list(ends) == ["a", "b", "c", "d"], done.err
    assert "the author's own mistake" in ends["c"]["error"]["message"] and "error" not in ends["d"]
    assert ends["d"]["summary"]["tasks"] == [] and [ends[run]["summary"]["trials"] for run in "ab"] == [2, 2]
    assert sum(event.get("text") == "start PyTorch" for event in events) == 1
    a, b = (baselines(models, run) for run in "ab")
    assert a.keys() & b.keys() and all(a[task]["kinds"] == b[task]["kinds"] for task in a.keys() & b.keys())
    before = [(models.directory / run / "results.tsv").read_text() for run in "ab"]
    done, events, ends = run_all(models)
    assert list(ends) == ["a", "b", "c", "d"] and before == [(models.directory / run / "results.tsv").read_text() for run in "ab"]


@pytest.mark.parametrize("content", ["{", "[]", '[{"model": "m.py:M"}]', '{"model": 3}', "[7]"])
def test_a_list_that_is_none_is_said(models, content):
    models.list.write_text(content)
    done = models("run-all", models.list, "--device", "cpu")
    assert done.returncode == 1 and str(models.list) in done.err
