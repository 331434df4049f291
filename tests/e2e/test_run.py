"""The main job from a model to a report, resume after a kill, and the loop by hand."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
import uuid
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

COLUMNS = "experiment tag kernel_type throughput_tflops latency_us pct_peak speedup_vs_pytorch correctness peak_vram_mb description".split()


def test_the_main_job_ends_with_a_proven_result(finished):
    summary = finished.summary
    assert summary["device"] == "cpu"
    assert summary["trials"] == 9
    assert {"rmsnorm", "softmax", "matmul"} <= {task["family"] for task in summary["tasks"]}
    for task in summary["tasks"]:
        assert task["shapes"] and task["share_percent"] > 0
        assert sum(task["verdicts"].values()) >= 0
    end = summary["end_to_end"]
    for baseline in ("eager", "torch.compile", "replacement_off"):
        assert 0 < end["vs"][baseline]["ci_low"] <= end["vs"][baseline]["speedup"] <= end["vs"][baseline]["ci_high"]
    assert end["max_error_over_eager_error"] <= 2
    assert end["norm_error_over_eager_error"] <= 1.25
    for replaced in end["replaced"]:
        assert replaced["calls"] > 0


def test_the_run_directory_holds_every_page(finished):
    for name in "run.toml graph.json patterns.json profile.json plan.json journal.jsonl results.tsv verification.json report.html progress.svg".split():
        assert (finished.run_dir / name).stat().st_size > 0, name
    xml.parse(finished.run_dir / "progress.svg")
    html = (finished.run_dir / "report.html").read_text()
    assert "<svg" in html and "http://" not in html.replace("http://www.w3.org", "") and "src=" not in html


def test_the_journal_says_what_confines_candidates_and_compiles(finished):
    records = [record for record in finished.journal() if record["type"] == "isolation"]
    reached = {kind: set(record[kind]) for record in records for kind in ("candidates", "compiles") if kind in record}
    assert "limits" in reached["candidates"] and "limits" in reached["compiles"]
    assert any("g++" in record.get("compiler", "") or "clang" in record.get("compiler", "") for record in records)


def test_results_have_exactly_the_columns_and_one_row_a_trial(finished):
    lines = (finished.run_dir / "results.tsv").read_text().splitlines()
    assert lines[0].split("\t") == COLUMNS
    rows = [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines[1:]]
    assert sorted(int(row["experiment"]) for row in rows if row["experiment"] != "0") == list(range(1, 10))
    assert {row["correctness"] for row in rows} <= {"PASS", "FAIL", "TIMEOUT", "CRASH"}
    assert sum(row["experiment"] == "0" for row in rows) == len(finished.summary["tasks"])


def test_the_same_command_resumes_and_does_nothing_twice(finished):
    before = (finished.run_dir / "results.tsv").read_text()
    summary = finished.run_tiny("--experiments", "9")
    assert summary["trials"] == 9
    assert (finished.run_dir / "results.tsv").read_text() == before


def test_extraction_uses_the_shapes_of_the_model(finished):
    task = json.loads((finished.run_dir / "tasks" / finished.tasks()["rmsnorm"] / "task.json").read_text())
    assert task["workload"][0]["dims"] == {"M": 64, "N": 192}
    assert task["scalars"]["eps"] == pytest.approx(1e-6)


def test_ctrl_c_keeps_what_was_found(program):
    process = program.start("run", f"{program.model}:Tiny", "--input-shape", "64,192", "--run-dir", program.run_dir, "--minutes", "5", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.time() + 200
    while time.time() < deadline and not ((program.run_dir / "results.tsv").exists() and "\n1\t" in (program.run_dir / "results.tsv").read_text()):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    trials = [record for record in program.journal() if record["type"] == "trial"]
    assert trials
    assert program.run_tiny("--experiments", str(len(trials)))["trials"] == len(trials)


def test_no_trial_is_lost_or_counted_twice_over_20_kills(program):
    arguments = ("run", f"{program.model}:Tiny", "--input-shape", "64,192", "--device", "null", "--run-dir", program.run_dir)
    program.ok(*arguments, "--experiments", "3")
    chance = random.Random(7)
    known = {}
    for _ in range(20):
        process = program.start(*arguments, "--experiments", "100000", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.02, 0.6))
        process.kill()
        process.wait()
        lines = (program.run_dir / "journal.jsonl").read_text().splitlines()
        whole = [json.loads(line)["record"] for line in lines if line.endswith("}}")]
        trials = {record["experiment"]: record["kernel_hash"] for record in whole if record["type"] == "trial"}
        assert sorted(trials) == list(range(1, len(trials) + 1))
        assert all(trials[number] == kernel for number, kernel in known.items())
        known = trials
    assert len(known) > 20
    final = program.last_json(*arguments, "--experiments", str(len(known)))
    assert final["trials"] == len(known)
    rows = (program.run_dir / "results.tsv").read_text().splitlines()[1:]
    numbers = [int(row.split("\t")[0]) for row in rows if not row.startswith("0\t")]
    assert sorted(numbers) == sorted(known)


def test_the_engine_stays_small(program):
    process = program.start("run", f"{program.model}:Tiny", "--input-shape", "64,192", "--device", "null", "--run-dir", program.run_dir, "--experiments", "400",
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            status = open(f"/proc/{process.pid}/status").read()
        except OSError:
            break
        peak = max([peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))])
        time.sleep(0.05)
    assert process.returncode == 0
    assert 0 < peak < 200_000  # kB


def edit(program, task, change):
    path = program.run_dir / "tasks" / task / "kernel.cpp"
    text = path.read_text()
    changed = change(text)
    assert changed != text
    path.write_text(changed)
    return path


def bench(program, task, note):
    result = program("bench", task, "--run-dir", program.run_dir, "--note", note, "--json")
    return result.returncode, json.loads(result.out.strip().splitlines()[-1])


def test_a_better_edit_is_kept_and_a_wrong_one_is_wrong(program):
    program.ok("prepare", f"{program.model}:Tiny", "--input-shape", "64,192", "--run-dir", program.run_dir)
    program.extract()
    task = program.tasks()["rmsnorm"]
    path = program.run_dir / "tasks" / task / "kernel.cpp"
    starter = path.read_text()

    edit(program, task, lambda text: text.replace("row < end; ++row) {", "row < end; ++row) {\n    for (volatile int i = 0; i < 50000; ++i) {\n    }", 1))
    slow = path.read_text()
    code, reply = bench(program, task, "waits in every row")
    assert (code, reply["verdict"], reply["evidence"]["stages"]) == (0, "kept", [1, 2, 3, 4, 5]), "the first correct kernel is the incumbent"

    path.write_text(starter)
    code, reply = bench(program, task, "no more waiting")
    assert (code, reply["verdict"]) == (0, "kept")
    assert reply["evidence"]["ci_low"] > 1.01

    edit(program, task, lambda text: text.replace("return normal * (", "return 1.001f * normal * (", 1))
    code, reply = bench(program, task, "a thousandth too large")
    assert (code, reply["verdict"]) == (3, "wrong")
    assert reply["evidence"]["stage"] == 1
    assert reply["evidence"]["worst"]["error"] > reply["evidence"]["worst"]["budget"] > 0
    assert reply["changed"] == {"lines_added": 1, "lines_removed": 1, "tunables": {}}
    assert path.read_text() == starter

    path.write_text(slow)
    code, reply = bench(program, task, "waits again")
    assert (code, reply["verdict"]) == (3, "slower")
    assert [record["verdict"] for record in program.journal() if record["type"] == "trial"] == ["kept", "kept", "wrong", "slower"]
    history = sorted(file.name for file in (program.run_dir / "tasks" / task / "history").iterdir())
    assert history == ["0001.cpp", "0002.cpp", "0003.cpp", "0004.cpp"]


def compiled_with(mark):
    """The modules in the compile cache that hold these bytes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "autokernel" / "compile"
    return {path for path in cache.rglob("*.so") if mark.encode() in path.read_bytes()}


def test_a_winner_that_fails_when_it_is_timed_again_costs_its_place_and_not_the_run(program):
    program.ok("prepare", f"{program.model}:Tiny", "--input-shape", "64,192", "--run-dir", program.run_dir)
    program.extract()
    task, mark = program.tasks()["rmsnorm"], uuid.uuid4().hex

    def marked(text, kind):
        return text + f'\nextern "C" __attribute__((used)) const char {kind}_mark[] = "{kind} {mark}";\n'

    path = edit(program, task, lambda text: marked(text, "right"))
    assert bench(program, task, "right")[1]["verdict"] == "kept"
    edit(program, task, lambda text: marked(text.replace("return normal * (", "return 1.001f * normal * (", 1), "wrong"))
    assert bench(program, task, "wrong")[1]["verdict"] == "wrong"
    assert f"right {mark}" in path.read_text()
    wrong = compiled_with(f"wrong {mark}")  # with both marks
    (right,) = compiled_with(f"right {mark}") - wrong
    shutil.copy(*wrong, right)
    result = program.ok("verify", "--run-dir", program.run_dir, "--rounds", "3")
    assert f"{task}: the winner is refused when it is timed once more (wrong); the baseline is kept" in result.err
    (refusal,) = [record for record in program.journal() if record["type"] == "refusal"]
    assert (refusal["task"], refusal["experiment"], refusal["verdict"]) == (task, 1, "wrong")
    assert json.loads((program.run_dir / "verification.json").read_text())["replaced"] == []


def test_a_bad_plan_names_the_line_and_keeps_the_edit(finished):
    task = finished.tasks()["softmax"]
    path = edit(finished, task, lambda text: text.replace("[[launch]]", "[[launch]]\ncolour = 1", 1))
    edited = path.read_text()
    result = finished("bench", task, "--run-dir", finished.run_dir, "--note", "a key that is none")
    assert result.returncode == 1
    line = edited[: edited.index("colour")].count("\n") + 1
    assert f"kernel.cpp:{line}" in result.err or f"kernel.cpp:{line - 1}" in result.err, result.err
    assert "colour" in result.err
    assert path.read_text() == edited
    finished.ok("optimize", task, "--run-dir", finished.run_dir, "--experiments", "0")
    path.write_text((finished.run_dir / "tasks" / task / "best.cpp").read_text())


def test_bench_is_served_by_the_engine_that_owns_the_run(program):
    owner = program.start("run", f"{program.model}:Tiny", "--input-shape", "64,192", "--device", "null", "--run-dir", program.run_dir, "--experiments", "1000000",
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.time() + 200
        while time.time() < deadline and not ((program.run_dir / "results.tsv").exists() and "\n1\t" in (program.run_dir / "results.tsv").read_text()):
            time.sleep(0.1)
        task = program.tasks()["softmax"]
        reply = json.loads(program("bench", task, "--run-dir", program.run_dir, "--note", "by hand", "--json").out.strip().splitlines()[-1])
        assert reply["experiment"] > 0
        assert owner.poll() is None
    finally:
        owner.send_signal(signal.SIGINT)
        owner.wait(timeout=300)
    assert any(record["type"] == "trial" and record["proposer"] == "hand" and record["experiment"] == reply["experiment"] for record in program.journal())
