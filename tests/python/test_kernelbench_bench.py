"""`bench` on solutions that somebody wrote: each is judged in a child, and what it does there is a result.

The command runs in a process of its own: its children are forked, and this process may have used its threads already.
"""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from kernelbench_checkout import renamed, write_checkout

from autokernel.kernelbench.run_directory import RunDirectory, read_json, write_text

FINE = "1_Probabilities"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return write_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def ask(checkout, tmp_path):
    """ask(verb, problems): (the run directory, what the command printed)"""

    def ask(verb, problems="1", evaluation_s=60, program=""):
        request = {"verb": verb, "source": str(checkout), "level": "1", "problems": problems, "run_dir": str(tmp_path / "run"), "backend": "cpu",
                   "precision": "float32", "experiments": 1, "program": program, "evaluation_s": evaluation_s, "json": True}
        command = [sys.executable, "-m", "autokernel.kernelbench", json.dumps(request)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    ask.run = RunDirectory(tmp_path / "run")
    return ask


def test_a_solution_that_somebody_put_there_is_judged_once_and_never_overwritten(ask):
    write_text(ask.run.solution(1, 1), renamed(FINE))
    (row,) = ask("bench")
    assert row["kb"]["built"] and row["kb"]["correct"] and row["kb"]["eager"] > 0 and row["degenerate"] == []
    assert read_json(f"{ask.run.root}/level1/eval_results.json")["1"][0]["correctness"]
    judged = {step: os.stat(ask.run.file(1, 1, f"{step}.json")).st_mtime_ns for step in ("kb", "nulls", "baselines", "strict")}
    assert ask("bench") == [row]
    assert judged == {step: os.stat(ask.run.file(1, 1, f"{step}.json")).st_mtime_ns for step in judged}
    assert ask("solve")[0]["status"] == "kept"
    write_text(ask.run.solution(1, 1), renamed(FINE, "y * 1.01"))
    assert not ask("bench")[0]["kb"]["correct"]


@pytest.mark.parametrize("solution, text", [("import os\nos.kill(os.getpid(), 9)\n", "signal 9"), ("while True:\n    x = 1\n", "timed out")])
def test_a_solution_that_dies_or_hangs_is_a_result(ask, solution, text):
    write_text(ask.run.solution(1, 1), solution)
    (row,) = ask("bench", evaluation_s=8)
    assert row["status"] == "failed build" and text in row["reason"]


def test_what_cannot_be_judged_is_named_and_the_rest_goes_on(ask):
    rows = {row["problem"]: row for row in ask("bench", "5,8,9")}
    assert "SyntaxError" in rows[5]["refused"] and "of memory" in rows[8]["refused"] and rows[9]["refused"] is None
    assert rows[9]["status"] == "unsolved" and "zeros" in rows[9]["degenerate"]


def test_a_search_that_failed_is_tried_again(ask, tmp_path):
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho >> "$0.calls"\necho \'{"error": {"message": "no worker"}}\'\nexit 1\n')
    program.chmod(0o755)
    for calls in (1, 2):
        (result,) = ask("solve", program=str(program))
        assert (result["status"], result["reason"]) == ("unsolved", "no worker")
        assert len((tmp_path / "program.calls").read_text().splitlines()) == calls


DIES_AT_THE_SECOND = """#!{python}
import json, os, sys
models = json.load(open(sys.argv[2]))
for step in ("make its tasks", "search"):
    for number, model in enumerate(models):
        print(json.dumps({{"event": "model", "run_dir": model["run_dir"], "step": step}}), flush=True)
        if step == "search":
            if "/002/" in model["run_dir"]:
                print("no event", flush=True)
                os._exit(9)
            print(json.dumps({{"event": "model_done", "run_dir": model["run_dir"], "summary": {{}}}}), flush=True)
"""


def test_where_the_program_dies_its_problem_has_failed_and_the_rest_goes_on(ask, tmp_path):
    program = tmp_path / "program"
    program.write_text(DIES_AT_THE_SECOND.format(python=sys.executable))
    program.chmod(0o755)
    results = {result["problem"]: result["reason"] for result in ask("solve", "1,2,3", program=str(program))}
    assert "exit code 9" in results[2]
    assert all("No family" in results[number] for number in (1, 3))


def test_what_cannot_be_solved_says_why(ask):
    results = {result["problem"]: result for result in ask("solve", "5,6,8")}
    assert all(result["status"] == "unsolved" for result in results.values())
    assert "SyntaxError" in results[5]["reason"] and "needs the package" in results[6]["reason"] and "of memory" in results[8]["reason"]
