"""The real program on small models: every test here runs the built `autokernel`."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AUTOKERNEL_BUILD", ROOT / "build" / "release")) / "bin" / "autokernel"

TINY_MODEL = '''
import torch
from torch import nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Tiny(nn.Module):
    """Rows of numbers to probabilities."""

    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(192)
        self.up = nn.Linear(192, 256)

    def forward(self, x):
        return F.softmax(self.up(self.norm(x)), dim=-1)


class Branching(nn.Module):
    """What it does depends on the data."""

    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(192)

    def forward(self, x):
        y = self.norm(x)
        if y.sum() > 0:
            y = y * 2
        return F.softmax(y, dim=-1)


class Reversed(nn.Module):
    """Nothing that a family computes."""

    def forward(self, x):
        return torch.cumsum(x, 0).flip(0)


class NotANumber(Tiny):
    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.up.weight[0, 0] = float("nan")


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        raise ValueError("the author's own mistake")


def example():
    return Tiny().eval(), (torch.randn(64, 192),)
'''


class Program:
    """Runs `autokernel` in a directory of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.model = directory / "tiny.py"
        self.model.write_text(TINY_MODEL)
        self.run_dir = directory / "run"
        self.environment = dict(os.environ, AUTOKERNEL_HOME=str(ROOT), XDG_CACHE_HOME=os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))

    def start(self, *arguments, **options):
        command = [str(PROGRAM), *(str(argument) for argument in arguments)]
        return subprocess.Popen(command, cwd=self.directory, env=self.environment, stdin=subprocess.DEVNULL, text=True, **options)

    def __call__(self, *arguments, timeout=400):
        with self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                process.out, process.err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return process

    def ok(self, *arguments, **options):
        result = self(*arguments, **options)
        assert result.returncode == 0, result.err + result.out
        return result

    def last_json(self, *arguments, **options):
        return json.loads(self.ok(*arguments, "--json", **options).out.strip().splitlines()[-1])

    def run_tiny(self, *arguments, model="Tiny", device="cpu"):
        return self.last_json("run", f"{self.model}:{model}", "--input-shape", "64,192", "--device", device, "--run-dir", self.run_dir, "--rounds", "5", "--min-share", "0", *arguments)

    def extract(self):
        """A task of every region that is found, whatever part of the time it took in the profile."""
        return self.ok("extract", "--run-dir", self.run_dir, "--top", "40", "--min-share", "0")

    def tasks(self):
        return {path.name.split("_")[0]: path.name for path in (self.run_dir / "tasks").iterdir()}

    def journal(self):
        return [json.loads(line)["record"] for line in (self.run_dir / "journal.jsonl").read_text().splitlines()]


@pytest.fixture
def program(tmp_path):
    assert PROGRAM.exists(), f"build first: {PROGRAM} is missing"
    return Program(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run on the CPU, shared by tests that only look."""
    assert PROGRAM.exists(), f"build first: {PROGRAM} is missing"
    shared = Program(tmp_path_factory.mktemp("finished"))
    shared.summary = shared.run_tiny("--experiments", "9")
    return shared
