"""Scores are sums that one can do by hand: eight planted results, and the table that they make."""

import json
import math

import pytest
from kernelbench_checkout import write_checkout

from autokernel.kernelbench import __main__ as command
from autokernel.kernelbench import score, steps
from autokernel.kernelbench.run_directory import RunDirectory, write_json

NUMBERS = range(1, 9)


def planted(number, family, *, kb=None, strict=None, nulls=(), eager_ms=10.0, compile_ms=5.0, setup="ready", solve=None):
    setup = {"status": setup, "reason": "it needs the network", "title": f"problem {number}", "file": f"{number}_p.py", "family": family if setup == "ready" else None}
    times = {"eager": {"mean": eager_ms}, "compile": {"mean": compile_ms} if compile_ms else {"error": "no"}}
    return {"setup": setup, "solve": solve, "nulls": {"passing": list(nulls)}, "baselines": {"times": times} if kb else None, "kb": kb, "strict": strict}


def kb(runtime_ms=-1.0, compiled=True, correct=True, **metadata):
    return {"compiled": compiled, "correctness": correct, "runtime": runtime_ms, "runtime_stats": {}, "metadata": metadata}


def strict(speedup=None, verdict="kept", compiled=True, correct=True):
    return {"compiled": compiled, "correct": correct, "speedup": speedup, "verdict": verdict}


# eager needs 10 ms and torch.compile 5 ms but where something else is said
PLANTED = {
    1: planted(1, "matmul", kb=kb(2.5), strict=strict(4.0)),  # 4x eager, 2x the best
    2: planted(2, "matmul", kb=kb(10.0), strict=strict(1.0, "slower")),  # as fast as eager: not more than 1
    3: planted(3, "softmax", kb=kb(12.5), strict=strict(0.8, "slower")),  # slower: more than 0.5, not more than 0.8
    4: planted(4, "softmax", kb=kb(compiled=False, correct=False, compilation_error="nvcc says no"), strict=strict(None, "does_not_compile", False, False)),
    5: planted(5, "softmax", kb=kb(correct=False, correctness_issue="Output mismatch"), strict=strict(None, "wrong", True, False)),
    6: planted(6, "loss", kb=kb(0.1), strict=strict(100.0), nulls=["zeros"]),  # degenerate
    7: planted(7, "loss", solve={"reason": "No family of ours is found in its graph."}),  # unsolved
    8: planted(8, "matmul", kb=kb(1.0), strict=strict(None, "cheating(replayed)", True, False), compile_ms=None),  # upstream is taken in; no compile baseline
}
STATUS = {1: "faster", 2: "not faster", 3: "not faster", 4: "failed build", 5: "wrong", 6: "faster", 7: "unsolved", 8: "correct for kb alone"}


@pytest.fixture
def rows():
    return [score.row_of(1, number, PLANTED[number]) for number in NUMBERS]


def test_each_result_has_its_word(rows):
    assert {row["number"]: row["status"] for row in rows} == STATUS
    assert rows[3]["reason"] == "nvcc says no" and rows[6]["reason"].startswith("No family")
    assert score.row_of(4, 1, planted(1, "x", setup="refused"))["status"] == "refused"


def test_the_table_is_the_one_computed_by_hand(rows):
    totals = score.summarise(rows)["all"]
    # Seven problems count: all but the degenerate one. By kb 1, 2, 3 and 8 are correct: 4x, 1x, 0.8x, 10x against eager; 2x, 0.5x, 0.4x, 10x against the best.
    upstream = totals["kb"]
    assert (upstream["problems"], upstream["judged"], upstream["built"], upstream["correct"]) == (7, 6, 5, 4)
    eager, best = upstream["against"]["eager"], upstream["against"]["best"]
    assert eager["fast_p"] == {"0": 4 / 7, "0.5": 4 / 7, "0.8": 3 / 7, "1": 2 / 7, "1.5": 2 / 7, "2": 2 / 7, "3": 2 / 7, "5": 1 / 7}
    assert best["fast_p"] == {"0": 4 / 7, "0.5": 2 / 7, "0.8": 2 / 7, "1": 2 / 7, "1.5": 2 / 7, "2": 1 / 7, "3": 1 / 7, "5": 1 / 7}
    assert math.isclose(eager["geometric_mean"], (4 * 1 * 0.8 * 10) ** 0.25) and math.isclose(eager["geometric_mean_of_faster"], (4 * 10) ** 0.5)
    assert math.isclose(best["geometric_mean"], (2 * 0.5 * 0.4 * 10) ** 0.25)
    # By the strict verdict 8 is not correct.
    strictly = totals["strict"]
    assert (strictly["judged"], strictly["built"], strictly["correct"]) == (6, 5, 3)
    assert strictly["against"]["eager"]["fast_p"]["1"] == 1 / 7 and strictly["against"]["best"]["fast_p"]["1.5"] == 1 / 7


def test_degenerate_problems_are_counted_apart(rows):
    totals = score.summarise(rows)
    assert totals["all"]["kb"]["degenerate"] == {"problems": 1, "correct": 1}
    assert totals["all"]["kb"]["with_degenerate"]["eager"]["5"] == 2 / 8
    assert totals["families"]["loss"]["kb"]["problems"] == 1 and totals["families"]["loss"]["kb"]["judged"] == 0
    assert totals["families"]["loss"]["kb"]["against"]["eager"]["geometric_mean"] is None


def test_families_and_levels_add_up(rows):
    totals = score.summarise(rows + [score.row_of(2, 1, PLANTED[1])])
    assert totals["levels"]["1"]["kb"]["problems"] + totals["levels"]["2"]["kb"]["problems"] == totals["all"]["kb"]["problems"]
    assert sum(each["kb"]["correct"] for each in totals["families"].values()) == totals["all"]["kb"]["correct"]


def test_a_strict_verdict_that_could_not_be_had_is_none():
    row = score.row_of(1, 1, {**PLANTED[1], "strict": {"verdict": "unavailable", "reason": "no judge"}})
    assert row["strict"] is None and row["status"] == "faster"


# --- the command on a run directory


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.require_same({"device": "cpu", "precision": "float32"})
    for number, results in PLANTED.items():
        for step, result in results.items():
            if result is not None:
                run.write(1, number, step, result)
    return run


def request(run, verb, **more):
    given = {"verb": verb, "source": "", "level": "", "problems": "", "run_dir": run.root, "backend": "cpu", "precision": "float32", "experiments": 1,
             "program": "", "evaluation_s": 60, "json": True}
    return json.dumps({**given, **more})


def test_score_writes_a_table_a_page_and_what_the_benchmarks_scripts_read(run, capsys):
    assert command.main(request(run, "score")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((run_file(run, "score.json")).read_text()) and len(printed["problems"]) == 8
    evaluations = json.loads(run_file(run, "level1/eval_results.json").read_text())
    assert list(evaluations) == ["1", "2", "3", "4", "5", "6", "8"]
    assert set(evaluations["1"][0]) == {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
    assert json.loads(run_file(run, "timing/baseline_time_torch.json").read_text())["level1"]["1_p.py"] == {"mean": 10.0}
    assert command.main(request(run, "score", json=False)) == 0
    assert "verdict strict, against eager" in capsys.readouterr().out


def test_the_page_escapes_what_comes_from_outside(run):
    write_json(run.file(1, 5, "setup.json"), {**PLANTED[5]["setup"], "title": "<script>alert(1)</script>"})
    command.main(request(run, "score"))
    page = run_file(run, "kernelbench.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page and "nvcc says no" in page


def test_a_directory_without_a_run_and_one_of_another_device_are_said(run, tmp_path, capsys):
    assert command.main(request(RunDirectory(tmp_path / "none"), "score")) == 1
    assert "no KernelBench run" in json.loads(capsys.readouterr().out)["error"]["message"]
    checkout = write_checkout(tmp_path / "checkout")
    assert command.main(request(run, "setup", source=str(checkout), precision="float16")) == 1
    assert "another directory" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_result_that_was_cut_off_is_made_again(run):
    with open(run.file(1, 1, "kb.json"), "w", encoding="utf-8") as file:
        file.write('{"compiled": tr')
    assert run.read(1, 1, "kb") is None and steps.content_hash(run.solution(1, 1)) is None


def run_file(run, name):
    from pathlib import Path
    return Path(run.root) / name
