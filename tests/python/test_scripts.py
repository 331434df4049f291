"""The checkout's own scripts: the wrapper's decisions, the include order, and how measurements are run."""

import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path):
    loader = importlib.machinery.SourceFileLoader(Path(path).stem + "_script", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


ak = load(ROOT / "ak")
includes = load(ROOT / "scripts" / "check_includes.py")


@pytest.mark.parametrize(
    ("version", "enough"), [("2.11.0", True), ("2.15.0+cpu", True), ("3.0", True), ("2.9.1", False), ("1.13.0+cu117", False), (None, False)]
)
def test_torch_versions_are_compared_as_numbers(version, enough):
    assert ak.recent_enough(version) is enough


@pytest.mark.parametrize("version", ["2.11.0+cpu", "2.4.0"])
def test_the_version_in_the_environment_is_read_from_metadata(tmp_path, monkeypatch, version):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / f"torch-{version}.dist-info").mkdir(parents=True)
    (site / f"torch-{version}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    monkeypatch.setattr(ak, "VENV", tmp_path)
    assert ak.venv_version("torch", "torch") is None, "metadata left over by an interrupted removal is no package"
    (site / "torch").mkdir()
    assert ak.venv_version("torch", "torch") == version
    assert ak.venv_version("pytest", "pytest") is None


JUNIT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"/><testcase name="c"><failure message="x"/></testcase>
<testcase name="d"><error message="x"/></testcase><testcase name="e"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


def test_outcome_counts_cases(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(JUNIT)
    assert ak.outcome(report, False) == (2, 2, 1)


def test_a_run_that_dies_without_a_report_counts_as_failed(tmp_path):
    assert ak.outcome(tmp_path / "none.xml", False) == (0, 1, 0)
    assert ak.outcome(tmp_path / "none.xml", True) == (0, 0, 0)


def test_missing_packages_without_root_say_what_to_do(monkeypatch):
    monkeypatch.setattr(ak.shutil, "which", lambda name: "/usr/bin/" + name)
    monkeypatch.setattr(ak, "missing_packages", lambda groups: {"tests": ["libgtest-dev"]})
    monkeypatch.setattr(ak, "root_prefix", lambda: None)
    with pytest.raises(ak.SetupError, match="apt-get install .*libgtest-dev"):
        ak.ensure_packages({"tests": ["libgtest-dev"]})


def test_a_python_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("AUTOKERNEL_PYTHON", "/nowhere/python")
    with pytest.raises(ak.SetupError, match="/nowhere/python"):
        ak.ensure_python(with_pytest=False)


def test_help_sets_nothing_up(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ak, "BUILD", tmp_path)
    monkeypatch.setattr(ak, "set_up", None)
    assert ak.main(["--help"]) == 0
    assert "./ak demo" in capsys.readouterr().out


def test_usage_is_printed_without_a_command():
    done = subprocess.run([sys.executable, str(ROOT / "ak")], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0
    assert "./ak demo" in done.stdout


@pytest.mark.parametrize(
    ("folder", "other", "allowed"),
    [
        ("core", "core", True),
        ("core", "judge", False),
        ("judge", "core", True),
        ("judge", "search", False),
        ("graph", "kernel", True),
        ("kernel", "graph", False),
        ("graph", "store", False),
        ("cli", "report", True),
        ("report", "cli", False),
        ("runtime", "graph", True),
        ("runtime", "store", False),
        ("cli", "runtime", False),
    ],
)
def test_include_order(folder, other, allowed):
    assert includes.may_include(folder, other) is allowed


def test_a_wrong_include_is_found_with_its_line(tmp_path):
    for folder in ("core", "judge"):
        (tmp_path / "src" / folder).mkdir(parents=True)
    (tmp_path / "src" / "judge" / "a.h").write_text('#include "core/error.h"\n#include <vector>\n')
    (tmp_path / "src" / "core" / "b.cpp").write_text('// comment\n#include "core/b.h"\n  #  include "judge/a.h"\n')
    assert includes.violations(tmp_path / "src") == ["src/core/b.cpp:3: core may not include judge"]


def test_tiers_of_the_playbook_are_six_and_complete():
    tomllib = pytest.importorskip("tomllib")
    tiers = tomllib.loads((ROOT / "playbook" / "tiers.toml").read_text())["tier"]
    assert [tier["number"] for tier in tiers] == [1, 2, 3, 4, 5, 6]
    for tier in tiers:
        low, high = tier["typical_gain"]
        assert 1.0 < low < high
        assert tier["cpu"] and tier["gpu"] and tier["what"] and tier["when"]


# --- scripts/measure.py, in a process of its own: it ends whatever descends from it

MEASURE = f"""
import sys
sys.path.insert(0, {str(ROOT / "scripts")!r})
import measure, measure_processes
from measure_jobs import Job

measure_processes.GRACE_S = 0.1


def job(name, program, limit_s=100, **more):
    words = [sys.executable, "-c", program]
    return Job(name, "what it is for", limit_s, lambda setting: [("out.txt", [*words, setting.file("note"), f"{{setting.seconds:.0f}}"])],
               lambda folder: (folder / "out.txt").read_text().split()[-1], **more)


JOBS = [
    job("works", "print('ran', 42)"),
    job("fails", "import sys; print('numbers'); sys.exit('the reason')"),
    job("leaves", "import subprocess, sys; p = subprocess.Popen(['sleep', '1000'], start_new_session=True); print(p.pid); open(sys.argv[1], 'w').write(str(p.pid))"),
    job("endless", "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\\nwhile True: time.sleep(1)", limit_s=0.3),
    job("hangs", "import os, sys, time\\nopen(sys.argv[1] + '.new', 'w').write(str(os.getpid())); os.rename(sys.argv[1] + '.new', sys.argv[1])\\nwhile True: time.sleep(1)"),
    job("lacks", "", missing=lambda setting: "there is no such thing"),
    job("slices", "import sys; print(sys.argv[2])", limit_s=300, least_s=1, budgeted=True),
]
sys.exit(measure.main(sys.argv[1:], JOBS))
"""


@pytest.fixture
def measure(tmp_path):
    """measure(*words): (exit code, {job: [result, time, numbers]}, standard error)"""
    program = tmp_path / "build" / "bin" / "autokernel"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 0.0\n")
    program.chmod(0o755)

    def run(*words):
        done = subprocess.run([*run.command, *words], capture_output=True, text=True)
        rows = [re.split(r"  +", line, maxsplit=3) for line in done.stdout.partition("\n\n")[2].splitlines()[1:-1]]
        return done.returncode, {row[0]: row[1:] for row in rows}, done.stderr

    run.out = tmp_path / "out"
    run.command = [sys.executable, "-c", MEASURE, "--device", "cuda", "--out", str(run.out), "--build", str(tmp_path / "build")]
    return run


def test_measured_jobs_are_reported_ended_and_not_repeated(measure):
    code, found, _ = measure("--jobs", "works,fails,leaves,endless,lacks")
    assert code == 1 and {name: row[0] for name, row in found.items()} == {
        "works": "passed", "fails": "failed", "leaves": "passed", "endless": "out of time", "lacks": "skipped"}
    assert found["works"][2] == "42" and "the reason" in found["fails"][2] and found["lacks"][2] == "there is no such thing"
    assert "1 processes were left over" in found["leaves"][2]
    assert not Path("/proc", (measure.out / "leaves" / "note").read_text()).exists()
    code, found, said = measure("--jobs", "works,fails,endless")
    assert code == 1 and "works: passed already" in said and "fails: failed already" in said and found["endless"][0] == "out of time"
    assert measure("--jobs", "works", "--again")[2].count("at most 100 s") == 1


def test_a_measured_job_that_does_not_fit_is_not_begun_and_slices_go_on(measure):
    code, found, _ = measure("--jobs", "works,slices", "--minutes", "1")
    assert code == 3 and found["works"][0] == "not begun" and found["slices"][0] == "unfinished" and float(found["slices"][2]) <= 60
    code, found, _ = measure("--jobs", "works,slices")
    assert code == 0 and found["slices"][0] == "passed" and float(found["slices"][2]) > 290
    assert measure("--jobs", "works", "--device", "cpu")[2].endswith("name another folder with --out\n")


def test_who_ends_the_measurement_ends_its_job(measure):
    note = measure.out / "hangs" / "note"
    with subprocess.Popen([*measure.command, "--jobs", "hangs"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not note.exists():
            time.sleep(0.02)
        process.terminate()
    assert process.returncode == 130 and not Path("/proc", note.read_text()).exists()
    assert '"result": "unfinished"' in (measure.out / "results.json").read_text()


def test_an_unknown_job_is_an_error_that_names_the_known(measure):
    code, _, said = measure("--jobs", "works,flies")
    assert code == 2 and "there is no job flies; the jobs are works, fails" in said
