"""Problems become tasks without being computed; what cannot says why, and nothing ends the program."""

import json
import os
import time

import pytest
import torch
from kernelbench_checkout import PROBLEMS, write_checkout

from autokernel.errors import WorkerError
from autokernel.kernelbench import isolate, setup, steps
from autokernel.kernelbench.problems import as_model, find_problems, parse_numbers
from autokernel.kernelbench.run_directory import RunDirectory


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return write_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def results(checkout, tmp_path_factory):
    """{number: result of set_up} of level 1, as the command does it."""
    run = RunDirectory(tmp_path_factory.mktemp("run"))
    problems = find_problems(str(checkout), (1,))
    return {problem.number: result for problem, result in steps.set_up_all(run, problems, steps.Options())}


def test_lists_the_problems_of_a_level_by_number(checkout):
    problems = find_problems(str(checkout), (1, 2))
    assert [problem.number for problem in problems if problem.level == 1] == list(range(1, len(PROBLEMS) + 1))
    assert [problem.title for problem in problems if problem.level == 2] == ["Probabilities"]


def test_numbers_are_ranges_and_lists():
    assert parse_numbers("1-3,36") == {1, 2, 3, 36} and parse_numbers("") is None
    for wrong in ("a", "3-1", "1-", "1..3"):
        with pytest.raises(WorkerError, match="1-20,36"):
            parse_numbers(wrong)


def test_a_folder_that_is_no_checkout_and_a_number_that_is_not_there_are_said(checkout, tmp_path):
    with pytest.raises(WorkerError, match="no checkout"):
        find_problems(str(tmp_path))
    with pytest.raises(WorkerError, match="no problem 99"):
        find_problems(str(checkout), (1,), {1, 99})


def test_what_is_fine_is_captured_with_its_shapes(results):
    fine = results[1]
    assert fine["status"] == "ready" and fine["notes"] == []
    assert fine["inputs"] == [{"dtype": "float32", "shape": [12, 24]}] and fine["outputs"] == [{"dtype": "float32", "shape": [12, 20]}]
    assert fine["family"] == "matmul + epilogue" and fine["memory"]["parameters"] == 4 * (24 * 20 + 20 + 20)


@pytest.mark.parametrize("number, kinds", [(2, {"random"}), (3, {"integer_inputs"}), (4, {"several_outputs"}), (13, set())])
def test_what_may_stand_in_the_way_is_noted(results, number, kinds):
    assert results[number]["status"] == "ready" and {note["kind"] for note in results[number]["notes"]} == kinds


@pytest.mark.parametrize(
    "number, why",
    [(5, "SyntaxError"), (6, "needs the package a_package_that_nobody_has"), (7, "needs the network"), (10, "the author made a mistake"), (11, "defines no Model")],
)
def test_what_cannot_be_set_up_says_why(results, number, why):
    assert results[number]["status"] == "refused" and why in results[number]["reason"]


def test_terabytes_are_captured_without_being_allocated_and_then_refused(results):
    large = results[8]
    assert large["status"] == "ready" and large["memory"]["inputs"] == 4 << 40
    assert "of memory" in steps.why_it_does_not_fit(large["memory"], steps.Options())
    assert steps.why_it_does_not_fit(results[1]["memory"], steps.Options()) is None


def test_a_constructor_that_reads_values_is_given_real_ones(results):
    assert results[12]["status"] == "ready"


def test_the_model_of_a_run_stays_in_training_mode_and_has_the_seeds_weights(checkout):
    path = str(checkout / "KernelBench" / "level1" / "13_Trains_its_norm.py")
    model, inputs = as_model(path)
    assert model.eval().training and model.to(torch.float32).eval().norm.training
    again, same = as_model(path)
    assert all(torch.equal(a, b) for a, b in zip(inputs, same)) and list(model.state_dict()) == list(again.state_dict())


def test_a_set_up_problem_is_not_set_up_again_until_its_file_changes(checkout, tmp_path, monkeypatch):
    run, problem = RunDirectory(tmp_path), find_problems(str(checkout), (2,))[0]
    first = steps.set_up(run, problem, steps.Options())
    graph = json.loads((tmp_path / "level2" / "problems" / "001" / "graph.json").read_text())
    assert graph["schema"] == "autokernel.graph/1"
    monkeypatch.setattr(isolate, "_Child", None)
    assert steps.set_up(run, problem, steps.Options()) == first


# --- children


def _allocate():
    kept = []
    while True:
        kept.append(bytearray(64 << 20))


def _die():
    os.kill(os.getpid(), 9)


def _sleep():
    time.sleep(60)


@pytest.mark.parametrize("function, failed", [(_allocate, "out_of_memory"), (_die, "died"), (lambda: 1 / 0, "error"), (_sleep, "timed_out")])
def test_a_child_that_fails_is_a_result(function, failed, tmp_path):
    seconds = 1 if failed == "timed_out" else 60
    answer = isolate.call(function, (), seconds=seconds, memory_bytes=isolate.resident_bytes("self") + (1 << 30), log=str(tmp_path / "log"))
    assert answer["failed"] == failed, answer


def test_a_child_returns_what_its_function_returns_and_logs_what_it_prints(tmp_path):
    answer = isolate.call(lambda a: print("said") or {"a": a}, (3,), seconds=60, memory_bytes=8 << 30, log=str(tmp_path / "log"))
    assert answer == {"result": {"a": 3}} and (tmp_path / "log").read_text() == "said\n"


def _meet(own, other):
    """Ends when the other call has begun, too."""
    own.touch()
    while not other.exists():
        time.sleep(0.01)


def test_calls_run_side_by_side(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    calls = [isolate.Call(_meet, (a, b), str(tmp_path / "log")), isolate.Call(_meet, (b, a), str(tmp_path / "log"))]
    assert sorted(isolate.call_all(calls, seconds=60, memory_bytes=8 << 30, at_once=2)) == [(0, {"result": None}), (1, {"result": None})]


def _alone(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    time.sleep(0.05)
    os.remove(path)


@pytest.mark.parametrize("weight, at_once", [(0.6, 4), (7, 4), (0.1, 1)])
def test_calls_that_are_too_heavy_together_run_one_after_another(weight, at_once, tmp_path):
    calls = [isolate.Call(_alone, (str(tmp_path / "taken"),), str(tmp_path / "log"), weight) for _ in range(4)]
    answers = list(isolate.call_all(calls, seconds=60, memory_bytes=8 << 30, at_once=at_once, capacity=1))
    assert answers == [(position, {"result": None}) for position in range(4)]


def test_a_problem_is_captured_where_and_as_it_will_run(checkout, tmp_path):
    problem = find_problems(str(checkout), (2,))[0]
    result = setup.set_up(problem.path, str(tmp_path / "graph.json"), "cuda", "bfloat16")
    assert result["inputs"][0]["dtype"] == "bfloat16" and not torch.cuda.is_initialized()
    (graph,) = json.loads((tmp_path / "graph.json").read_text())["graphs"]
    assert {meta["dtype"] for node in graph["nodes"] for meta in node.get("out", []) if meta} == {"bfloat16"}
