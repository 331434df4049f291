"""What a user gets wrong: a clear error, what to do next, and nothing lost."""

import json
import os
import sys

import pytest


def failed(program, *arguments):
    result = program(*arguments)
    assert result.returncode != 0, result.out
    assert "internal error" not in result.err
    return result.err


def run(program, model, *arguments):
    return failed(program, "run", model, "--run-dir", program.run_dir, "--experiments", "1", *arguments)


def test_a_model_file_that_is_not_there(program):
    assert "nowhere.py" in run(program, "nowhere.py:Model", "--input-shape", "1,8")


def test_a_class_that_is_not_there_lists_what_is(program):
    error = run(program, f"{program.model}:Missing", "--input-shape", "64,192")
    assert "Missing" in error and "Tiny" in error


def test_the_users_own_traceback_is_shown_once(program):
    error = run(program, f"{program.model}:Broken", "--input-shape", "64,192")
    assert error.count("Traceback") == 1
    assert error.count("raise ValueError") == 1
    assert "autokernel/models.py" not in error


def test_a_wrong_input_shape(program):
    error = run(program, f"{program.model}:Tiny", "--input-shape", "64,191")
    assert "64" in error and "191" in error


@pytest.mark.parametrize(("arguments", "words"), [
    (("--input-shape", "64,x"), "64,x"),
    (("--input-shape", "64,192", "--dtype", "float13"), "float13"),
    (("--input-shape", "64,192", "--device", "tpu"), "tpu"),
    (("--input-shape", "64,192", "--device", "cuda"), "--device cpu"),
])
def test_words_that_make_no_sense(program, arguments, words):
    assert words in run(program, f"{program.model}:Tiny", *arguments)


def test_usage_errors_have_their_own_code(program):
    assert program("run").returncode == 2
    unknown = program("no-such-command")
    assert unknown.returncode == 2
    assert "no-such-command" in unknown.err and "optimize" in unknown.err
    assert program("--help").returncode == 0


def test_an_error_is_the_last_line_for_a_program_too(program):
    result = program("run", "nowhere.py:Model", "--input-shape", "1,8", "--json")
    assert result.returncode == 1
    error = json.loads(result.out.splitlines()[-1])["error"]
    assert "nowhere.py" in error["message"] and "file.py:Class" in error["what_to_do"]


def test_a_model_that_does_not_load_is_not_the_run_to_go_on_with(program):
    failed(program, "run", f"{program.model}:Missing", "--input-shape", "64,192")
    assert "autokernel run" in failed(program, "profile")


def test_a_run_without_tasks_says_how_to_get_them(program):
    program.ok("prepare", f"{program.model}:Tiny", "--input-shape", "64,192", "--run-dir", program.run_dir)
    for command in (["next"], ["optimize", "--experiments", "1"], ["verify"], ["bench", "matmul"]):
        assert "autokernel extract" in failed(program, *command, "--run-dir", program.run_dir)


def test_a_model_in_which_nothing_is_matched_ends_well_and_says_so(program):
    result = program.ok("run", f"{program.model}:Reversed", "--input-shape", "64,192", "--run-dir", program.run_dir, "--experiments", "1", "--rounds", "3", "--json")
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert any("none of the families" in line.get("text", "") for line in lines)
    assert lines[-1]["tasks"] == [] and lines[-1]["trials"] == 0 and lines[-1]["end_to_end"]["replaced"] == []


def test_a_model_without_a_colon(program):
    assert "file.py:Class" in run(program, str(program.model))


def test_nan_in_the_weights_is_said_and_not_fatal(program):
    result = program.ok("prepare", f"{program.model}:NotANumber", "--input-shape", "64,192", "--run-dir", program.run_dir)
    assert "NaN" in result.err + result.out


def test_a_data_dependent_model_falls_back_and_says_so(program):
    result = program.ok("prepare", f"{program.model}:Branching", "--input-shape", "64,192", "--run-dir", program.run_dir)
    assert "dynamo" in (result.err + result.out).lower()
    graph = json.loads((program.run_dir / "graph.json").read_text())
    assert graph["capture"] == "dynamo" and len(graph["graphs"]) >= 2


def test_a_run_directory_of_another_version(program):
    program.ok("prepare", f"{program.model}:Tiny", "--input-shape", "64,192", "--run-dir", program.run_dir)
    toml = program.run_dir / "run.toml"
    toml.write_text(toml.read_text().replace("format = 1", "format = 99"))
    error = failed(program, "profile", "--run-dir", program.run_dir)
    assert "99" in error and "--run-dir" in error


def test_another_model_in_the_same_directory(program):
    program.ok("prepare", f"{program.model}:Tiny", "--input-shape", "64,192", "--run-dir", program.run_dir)
    assert "another" in run(program, f"{program.model}:Tiny", "--input-shape", "32,192")


def test_no_compiler(program):
    program.environment.update(CXX="/nonexistent/g++", PATH="/nonexistent", AUTOKERNEL_PYTHON=os.environ.get("AUTOKERNEL_PYTHON", sys.executable))
    result = program("doctor")
    assert result.returncode != 0
    assert "/nonexistent/g++" in result.out + result.err
    assert "install g++" in result.out


def test_no_torch(program, tmp_path):
    fake = tmp_path / "python-without-torch"
    fake.write_text("#!/bin/sh\nexec /usr/bin/python3 -I -S \"$@\"\n")
    fake.chmod(0o755)
    program.environment["AUTOKERNEL_PYTHON"] = str(fake)
    error = run(program, f"{program.model}:Tiny", "--input-shape", "64,192")
    assert "torch" in error and "AUTOKERNEL_PYTHON" in error


def test_a_full_disk_is_said_and_loses_nothing(program):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = program.directory / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=600k tmpfs {small} 2>/dev/null") != 0:
        pytest.skip("no mounts in this environment")
    try:
        error = failed(program, "run", f"{program.model}:Tiny", "--input-shape", "64,192", "--device", "null", "--run-dir", small / "run", "--experiments", "100000")
        assert "No space left" in error and "resume" in error
        lines = (small / "run" / "journal.jsonl").read_text().splitlines() if (small / "run" / "journal.jsonl").exists() else []
        assert all(json.loads(line)["record"]["type"] for line in lines)
    finally:
        os.system(f"umount {small}")


def test_no_run_here(program):
    assert "autokernel run" in failed(program, "next")


def test_an_unknown_task_lists_the_known(finished):
    error = failed(finished, "bench", "nothing_12345678", "--run-dir", finished.run_dir, "--note", "x")
    assert "matmul_" in error
