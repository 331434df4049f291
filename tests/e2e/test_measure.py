"""What scripts/measure.py runs is spelled as the program has it: options, verbs and files, without a GPU."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROGRAM, ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import measure_jobs  # noqa: E402


def options_of(words):
    """The options that the help of a command of the program has."""
    verbs = [word for word in words[1:3] if not word.startswith("-")] if words[1] == "kernelbench" else words[1:2]
    done = subprocess.run([words[0], *verbs, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_option_of_a_job_is_known(tmp_path, device):
    known = {}
    for job in measure_jobs.JOBS:
        setting = measure_jobs.Setting(device, PROGRAM.parent.parent, tmp_path / job.name, sys.executable, str(tmp_path), 400.0)
        for _, words in job.commands(setting):
            if words[0] == str(PROGRAM):
                command = tuple(word for word in words[:3] if not word.startswith(("-", "/")) or word == words[0])
                known.setdefault(command, options_of(words))
                assert {word for word in words if word.startswith("--")} <= known[command], words
            files = [word.partition(":")[0] for word in words if word.startswith(("tests/", "examples/", str(ROOT / "examples")))]
            assert all((ROOT / file).exists() for file in files), files


def test_the_time_of_search_is_read_from_a_journal(tmp_path):
    lines = [("run", 0), ("trial", 5), ("trial", 65), ("run", 100), ("task", 110), ("trial", 130), ("trial", 160)]
    record = '{{"crc":"0","record":{{"type":"{}","time":"2026-11-30T10:{:02d}:{:02d}.250Z"}}}}'
    (tmp_path / "journal.jsonl").write_text("\n".join(record.format(kind, s // 60, s % 60) for kind, s in lines) + "\n")
    assert measure_jobs.searched_s(tmp_path / "journal.jsonl") == 90
    assert measure_jobs.searched_s(Path(tmp_path / "none")) == 0
