"""The verdict `kb` does what the benchmark's own evaluation does, mistakes included."""

import math

import pytest
from kernelbench_checkout import PROBLEMS, renamed

from autokernel.kernelbench import protocol

FINE, DROPPED, INTEGERS, DEGENERATE = "1_Probabilities", "2_Dropped", "3_Integers", "9_Degenerate"


def evaluate(name, solution, tmp_path, **more):
    return protocol.evaluate(PROBLEMS[name], solution, "cpu", "float32", "cuda", str(tmp_path), **{"timed": 2, **more})


def test_a_copy_of_the_reference_is_correct_and_timed(tmp_path):
    record = evaluate(FINE, renamed(FINE), tmp_path)
    assert record["compiled"] and record["correctness"] and record["metadata"]["correctness_trials"] == "(5 / 5)"
    assert record["runtime"] == record["runtime_stats"]["mean"] > 0 and record["runtime_stats"]["num_trials"] == 2
    assert record["ref_runtime"] == record["ref_runtime_stats"]["mean"] > 0


def test_a_wrong_element_in_one_trial_of_five_is_wrong(tmp_path):
    everywhere = evaluate(FINE, renamed(FINE, "y * 1.01"), tmp_path)
    assert everywhere["compiled"] and not everywhere["correctness"] and everywhere["runtime"] == -1.0
    assert everywhere["metadata"]["correctness_issue"] == "Output mismatch" and len(everywhere["metadata"]["max_difference"]) == 5
    once = evaluate(FINE, "seen = []\n" + renamed(FINE, "y + (seen.append(0) or len(seen) == 3)"), tmp_path)
    assert not once["correctness"] and once["metadata"]["correctness_trials"] == "(4 / 5)"


@pytest.mark.parametrize(
    "change, field, text",
    [("y.unsqueeze(0)", "correctness_issue", "shape mismatch"), ("y.half()", "runtime_error", "Half"), ("1 / 0", "runtime_error_name", "ZeroDivisionError"),
     ("y.tolist()", "runtime_error", "list"), ("float('nan') * y", "correctness_issue", "Output mismatch")],
)
def test_what_is_no_tensor_like_the_references_is_not_correct(change, field, text, tmp_path):
    record = evaluate(FINE, renamed(FINE, change), tmp_path)
    assert record["compiled"] and not record["correctness"] and text in record["metadata"][field]


@pytest.mark.parametrize(
    "solution, field, text",
    [("class ModelNew(:\n", "compilation_error_name", "SyntaxError"), ("x = 1\n", "compilation_error_name", "SyntaxError"),
     ("raise OSError('nvcc is missing')", "compilation_error", "nvcc is missing"),
     ("class ModelNew:\n    pass\n", "other_error", "ModelNew() takes no arguments")],
)
def test_what_does_not_build_is_not_compiled(solution, field, text, tmp_path):
    record = evaluate(FINE, solution, tmp_path)
    assert not record["compiled"] and not record["correctness"] and text in record["metadata"][field]


def test_random_outputs_and_integer_inputs_fail_even_for_a_copy(tmp_path):
    assert not evaluate(DROPPED, renamed(DROPPED), tmp_path)["correctness"]
    assert "other_error" in evaluate(INTEGERS, renamed(INTEGERS), tmp_path)["metadata"]


def test_the_namespace_is_shared_as_the_benchmark_has_it(tmp_path):
    assert evaluate(FINE, "class ModelNew(Model):\n    pass\n", tmp_path, timed=0)["correctness"]


def test_a_solution_may_come_as_a_module(tmp_path):
    record = protocol.evaluate(PROBLEMS[FINE], renamed(FINE), "cpu", "float32", "triton", str(tmp_path), timed=0)
    assert record["correctness"]


def test_half_precision_has_the_wider_tolerance(tmp_path):
    slightly = renamed(FINE, "y * 1.004")
    assert not evaluate(FINE, slightly, tmp_path, timed=0)["correctness"]
    assert protocol.evaluate(PROBLEMS[FINE], slightly, "cpu", "bfloat16", "cuda", str(tmp_path), timed=0)["correctness"]


@pytest.mark.parametrize("factor, marked", [(0, True), (math.inf, False)])
def test_a_speed_up_beyond_belief_is_marked(tmp_path, monkeypatch, factor, marked):
    monkeypatch.setattr(protocol, "EXCESSIVE_SPEEDUP", factor)
    record = protocol.evaluate(PROBLEMS[FINE], renamed(FINE), "cpu", "float32", "cuda", str(tmp_path), timed=2)
    assert record["correctness"] and record["metadata"].get("excessive_speedup", False) == marked


def test_times_have_three_digits():
    machine = protocol.Machine("cpu", "float32")
    assert protocol.stats([1.23456, 1.23456], machine) == {"mean": 1.23, "std": 0.0, "min": 1.23, "max": 1.23, "num_trials": 2, "hardware": "CPU", "device": "cpu"}


def test_baselines_are_eager_and_compiled():
    times = protocol.measure_baselines(PROBLEMS[FINE], "cpu", "float32", timed=2)
    assert times["eager"]["mean"] > 0 and ("mean" in times["compile"] or "error" in times["compile"])


def test_answers_that_compute_nothing_pass_only_where_the_problem_is_degenerate():
    assert protocol.passing_null_candidates(PROBLEMS[FINE], "cpu", "float32") == []
    assert set(protocol.passing_null_candidates(PROBLEMS[DEGENERATE], "cpu", "float32")) == {"another seed's output", "the mean of another seed's output", "zeros"}
