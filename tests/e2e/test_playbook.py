"""The instructions for an editor of kernels: every command in them runs, in their order, on a small model."""

import os
import re
import subprocess

from conftest import PROGRAM, ROOT

SHORTER = [(r"--minutes [\d.]+", "--minutes 0.05"), (r"--tune \d+", "--tune 2"), (r"--experiments \d+", "--experiments 1")]


def commands():
    """Lines of the shell blocks of playbook/program.md, with budgets that suit a test."""
    text = (ROOT / "playbook" / "program.md").read_text()
    lines = [line.strip() for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.S | re.M) for line in block.splitlines()]
    for pattern, replacement in SHORTER:
        lines = [re.sub(pattern, replacement, line) for line in lines]
    return [line for line in lines if line]


def test_the_playbook_names_every_step_of_the_loop():
    named = {line.split()[1] for line in commands()}
    assert named == {"doctor", "prepare", "profile", "extract", "next", "bench", "optimize", "verify", "report", "run"}


def test_every_command_of_the_playbook_runs(program):
    environment = dict(program.environment, PATH=f"{PROGRAM.parent}:{os.environ['PATH']}")
    environment.update(RUN=str(program.run_dir), MODEL=f"{program.model}:example")
    for line in commands():
        if "$TASK" in line:
            environment["TASK"] = sorted(program.tasks().values())[0]
        done = subprocess.run(["bash", "-c", line], cwd=program.directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        judged_and_not_kept = 3
        fine = (0, judged_and_not_kept) if line.startswith("autokernel bench") else (0,)
        assert done.returncode in fine, f"{line}\n{done.stdout}\n{done.stderr}"
    trials = [record for record in program.journal() if record["type"] == "trial"]
    notes = {record["note"] for record in trials}
    assert any("rows in pairs" in note for note in notes) and any("how large is the noise" in note for note in notes), notes
    assert (program.run_dir / "report.html").stat().st_size > 1000
