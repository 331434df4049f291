"""The checkout's own scripts: the wrapper's decisions, and the include order."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
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
    assert ak.venv_version("torch") is None, "metadata left over by an interrupted removal is no package"
    (site / "torch").mkdir()
    assert ak.venv_version("torch") == version
    assert ak.venv_version("pytest") is None


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
