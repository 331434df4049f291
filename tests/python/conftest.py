"""Makes the package in python/ importable, and gives tests a small family, a cache of their own and a worker to talk to."""

import json
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

SCALED_FAMILY = """
name = "scaled"
dtypes = ["float32", "float16", "bfloat16"]
[[tensor]]
name = "x"
role = "data"
shape = ["M", "N"]
[[tensor]]
name = "weight"
role = "weight"
shape = ["N"]
optional = "HAS_WEIGHT"
[[tensor]]
name = "picked"
role = "index"
range = "N"
shape = ["M"]
optional = "HAS_PICKED"
[[tensor]]
name = "out"
role = "output"
shape = ["M", "N"]
[scalars]
eps = 1e-6
ignore_index = -100
[options]
HAS_WEIGHT = 1
HAS_PICKED = 0
[[spelling]]
function = "centred"
labels = { x = ["*M", "N"], weight = ["N"], out = ["*M", "N"] }
scalars = ["eps"]
[[spelling]]
function = "columns"
labels = { x = ["N", "M"], weight = ["N", "1"], out = ["N", "M"] }
scalars = ["eps"]
[[spelling]]
function = "halves"
labels = { x = ["*M", "N"], out = ["*M", "N"] }
options = { HAS_WEIGHT = 0 }
[[spelling]]
function = "rows_said"
labels = { x = ["*M", "N"], out = ["*M", "N"] }
options = { HAS_WEIGHT = 0 }
[[spelling]]
function = "ignores_weight"
labels = { x = ["*M", "N"], weight = ["N"], out = ["*M", "N"] }
[[spelling]]
function = "unexplained"
labels = { x = ["*M", "N"], out = ["*M", "N"] }
options = { HAS_WEIGHT = 0 }
"""

SCALED_REFERENCE = """
import torch

def reference(x, weight, eps, HAS_WEIGHT):
    out = (x - x.mean(-1, keepdim=True)) / (x.abs().amax(-1, keepdim=True) + eps)
    return out * weight if HAS_WEIGHT else out

def centred(x, weight, eps):
    return (x - x.mean(-1, keepdim=True)) / (x.abs().amax(-1, keepdim=True) + eps) * weight

def columns(x, weight, eps):
    return (x - x.mean(0, keepdim=True)) / (x.abs().amax(0, keepdim=True) + eps) * weight

def halves(x):
    n = x.shape[-1] // 2
    return torch.cat((-x[..., n:], x[..., :n]), dim=-1)

def rows_said(x):
    return torch.zeros(x.shape) + x.reshape(-1, x.shape[-1]).exp().view(x.shape)

def ignores_weight(x, weight):
    return x * 2

def unexplained(x):
    return x * x.shape[-1] ** -0.5
"""


@pytest.fixture
def families(tmp_path, monkeypatch):
    """A directory with the one family `scaled`; patterns are cached under the test's own directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "kernels" / "scaled"
    folder.mkdir(parents=True)
    (folder / "family.toml").write_text(SCALED_FAMILY)
    (folder / "reference.py").write_text(SCALED_REFERENCE)
    return tmp_path / "kernels"


def scaled_task(dtype="float32", has_weight=True, **more):
    """A task of the family `scaled`."""
    tensors = [
        {"name": "x", "role": "data", "dtype": dtype, "shape": ["M", "N"]},
        {"name": "weight", "role": "weight", "dtype": dtype, "shape": ["N"]},
        {"name": "out", "role": "output", "dtype": dtype, "shape": ["M", "N"]},
    ]
    if not has_weight:
        tensors[1]["absent"] = True
    return {
        "schema": "autokernel.task/1",
        "id": "scaled_00000000",
        "family": "scaled",
        "spelling": "centred",
        "dtype": dtype,
        "tensors": tensors,
        "scalars": {"eps": 1e-6},
        "options": {"HAS_WEIGHT": int(has_weight)},
        "reference": {"kind": "family", "family": "scaled", "function": "reference"},
        **more,
    }


class WorkerClient:
    """The engine's end of the protocol, over real pipes."""

    def __init__(self, environment=None):
        request_read, self.requests = os.pipe()
        self.replies, reply_write = os.pipe()

        def place():
            high = [os.dup(request_read), os.dup(reply_write)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **(environment or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "autokernel.worker"],
            preexec_fn=place,
            close_fds=False,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.close(request_read)
        os.close(reply_write)
        self.number = 0
        self.progress = []
        self.greeting = self.receive()

    def receive(self):
        (length,) = struct.unpack("<I", self._read(4))
        return json.loads(self._read(length))

    def _read(self, size):
        data = b""
        while len(data) < size:
            part = os.read(self.replies, size - len(data))
            if not part:
                raise EOFError("the worker closed its end")
            data += part
        return data

    def ask(self, verb, **arguments):
        """The whole reply to a request."""
        self.number += 1
        body = json.dumps({"id": self.number, "verb": verb, "arguments": arguments}).encode()
        os.write(self.requests, struct.pack("<I", len(body)) + body)
        while True:
            message = self.receive()
            assert message["id"] == self.number
            if "progress" not in message:
                return message
            self.progress.append(message["progress"])

    def result(self, verb, **arguments):
        reply = self.ask(verb, **arguments)
        assert "result" in reply, reply
        return reply["result"]

    def close(self):
        """Close the worker's requests; (exit code, standard output, standard error)."""
        os.close(self.requests)
        output, errors = self.process.communicate(timeout=60)
        os.close(self.replies)
        return self.process.returncode, output.decode(), errors.decode()


@pytest.fixture
def model_file(tmp_path):
    """Writes a Python file and returns its path."""

    def write(text, name="model.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write
