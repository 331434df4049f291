"""Python solutions on a GPU: what only a GPU's streams, events, graphs and compilers make possible, beside honest twins."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from autokernel.solution import SolutionJudge

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 2


def get_inputs():
    return [torch.randn(2048, 4096)]


def get_init_inputs():
    return [4096, 4096]
"""

HEAD = """
import threading, time
import torch
from torch import nn
import triton
import triton.language as tl
kept = {}


@triton.jit
def relu_twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, at < n), 0) * 2, at < n)


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)
        self.side = torch.cuda.Stream()

    def right(self, x):
        return torch.relu(self.linear(x)) * 2

    def forward(self, x):
"""

TIMED = {"rounds": 6, "seconds": 20.0}
PAIRS = {
    "work on another stream": (
        "self.side.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(self.side):\n    return self.right(x)",
        "self.side.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(self.side):\n    y = self.right(x)\n"
        "torch.cuda.current_stream().wait_stream(self.side)\nreturn y",
        "cheating", "clocks disagree", TIMED),
    "replaces the events": (
        "torch.cuda.Event.elapsed_time = lambda a, b: 0.001\nreturn self.right(x)", "torch.cuda.Event()\nreturn self.right(x)",
        "cheating", "tampering with the judge", {}),
    "a thread computes afterwards": (
        "y = torch.empty(2048, 4096, device='cuda')\nthreading.Timer(0.2, lambda: y.copy_(self.right(x))).start()\nreturn y",
        "y = torch.empty(2048, 4096, device='cuda')\nt = threading.Thread(target=lambda: y.copy_(self.right(x)))\nt.start()\nt.join()\nreturn y",
        "wrong", "", {}),
    "products in TF32": (
        "torch.backends.cuda.matmul.allow_tf32 = True\nreturn self.right(x)", "torch.backends.cuda.matmul.allow_tf32 = False\nreturn self.right(x)",
        "wrong", "", {}),
    "a graph of the first inputs": (
        "if 'g' not in kept:\n    self.right(x)\n    kept['x'] = x.clone()\n    torch.cuda.synchronize()\n    kept['g'] = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(kept['g']):\n        kept['y'] = self.right(kept['x'])\nkept['g'].replay()\nreturn kept['y'].clone()",
        "if 'g' not in kept:\n    self.right(x)\n    kept['x'] = x.clone()\n    torch.cuda.synchronize()\n    kept['g'] = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(kept['g']):\n        kept['y'] = self.right(kept['x'])\nkept['x'].copy_(x)\nkept['g'].replay()\nreturn kept['y'].clone()",
        "cheating", "remembered answer", {}),
    "memory of an earlier answer": (
        "if 'n' not in kept:\n    kept['n'] = 1\n    return self.right(x)\nreturn torch.empty(2048, 4096, device='cuda')", "return self.right(x)", "wrong", "", {}),
    "half of a Triton kernel's grid": (
        "h = self.linear(x)\ny = torch.empty_like(h)\nrelu_twice[(h.numel() // 2048,)](h, y, h.numel(), 1024)\nreturn y",
        "h = self.linear(x)\ny = torch.empty_like(h)\nrelu_twice[(h.numel() // 1024,)](h, y, h.numel(), 1024)\nreturn y", "wrong", "", {}),
    "writes out of bounds": (
        "h = self.linear(x)\ny = torch.empty_like(h)\nrelu_twice[(h.numel() // 1024,)](h, y, 1 << 40, 1024 * 1024)\ntorch.cuda.synchronize()\nreturn y",
        "return self.right(x)", "crashed", "", {}),
}


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "reference.py"
    path.write_text(REFERENCE)
    with SolutionJudge(str(path), device="cuda", limits={"call_seconds": 60.0}) as made:
        yield made


def judged(judge, tmp_path, body, **options):
    path = tmp_path / "solution.py"
    path.write_text(HEAD + "".join(f"        {line}\n" for line in body.splitlines()))
    return judge.judge(str(path), **{"rounds": 0, **options})


@pytest.mark.parametrize("name", PAIRS)
def test_a_planted_solution_is_caught_and_its_twin_passes(judge, tmp_path, name):
    planted, twin, verdict, rule, options = PAIRS[name]
    got = judged(judge, tmp_path, planted, **options)
    assert (got["verdict"], got["rule"]) == (verdict, rule), got
    honest = judged(judge, tmp_path, twin, **options)
    assert honest["correct"], honest


def test_gpu_memory_comes_back(judge, tmp_path):
    judged(judge, tmp_path, "return self.right(x)")
    before, _ = torch.cuda.mem_get_info()
    for body in ("kept['m'] = torch.empty(1 << 33, device='cuda')\nreturn self.right(x)", "import os\nos.abort()"):
        judged(judge, tmp_path, body)
    after, _ = torch.cuda.mem_get_info()
    assert after >= before - (64 << 20)
