"""`bench --suite`: rows are measured in slices, and the next slice goes on."""

import pytest


def test_a_suite_is_searched_row_by_row_and_goes_on(program):
    arguments = ("bench", "--suite", "nine", "--device", "null", "--families", "softmax,matmul", "--run-dir", program.run_dir)
    first = program.last_json(*arguments, "--trials", "2")
    assert {row["family"] for row in first["rows"]} == {"softmax", "matmul"}
    assert all(row["trials"] == 2 and row["baselines_us"] for row in first["rows"])
    second = program.last_json(*arguments, "--trials", "3", "--shapes", "256x1024")
    assert [(row["shape"], row["trials"]) for row in second["rows"]] == [("256x1024", 5)]
    assert len([record for record in program.journal() if record["type"] == "baseline"]) == len(first["rows"])


def test_a_row_has_every_baseline_the_floor_and_an_interval(program):
    result = program.ok(
        "bench", "--suite", "nine", "--device", "cpu", "--families", "softmax", "--shapes", "256x1024", "--trials", "2", "--minutes", "5",
        "--run-dir", program.run_dir,
    )
    header, row, mean = (line.split("\t") for line in result.out.strip().splitlines())
    cells = dict(zip(header, row))
    assert all(float(cells[name]) > 0 for name in ("eager", "library", "compile", "best", "ours", "floor"))
    assert float(cells["ci_low"]) <= float(cells["best/ours"]) <= float(cells["ci_high"])
    assert float(cells["ours/floor"]) == pytest.approx(float(cells["ours"]) / float(cells["floor"]), rel=0.01)
    assert mean[1] == cells["best/ours"]


def test_the_state_file_goes_on_in_another_directory(program):
    arguments = ("bench", "--suite", "nine", "--device", "null", "--families", "softmax", "--trials", "2", "--state", "state")
    program.ok(*arguments, "--run-dir", "one")
    assert (program.directory / "state").stat().st_size < 16 << 20
    second = program.last_json(*arguments, "--run-dir", "two")
    assert all(row["trials"] == 4 for row in second["rows"])
    back = program.last_json(*arguments, "--run-dir", "one")
    assert all(row["trials"] == 6 for row in back["rows"])


def test_rows_that_do_not_fit_are_told(program):
    result = program.ok("bench", "--suite", "nine", "--device", "null", "--families", "softmax", "--minutes", "0.1", "--run-dir", program.run_dir)
    assert "3 rows are not measured: the time is over (--minutes, now 0.1)" in result.err
    assert "0 of 3 rows" in result.out
