"""Solutions that cheat or fail in one way each, beside an honest twin: {name: (forward and more of ModelNew, its honest twin, verdict, rule, options)}.

The reference is relu(linear(x)) * 2 with x of [64, 256]. A text is the body of `forward(self, x)`, or a whole file where it has a class.
"""

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
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256, 128]
"""

_HEAD = """
import ctypes, gc, os, socket, subprocess, sys, threading, time
import torch
from torch import nn
kept = {}

class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)
        self.calls = 0

    def right(self, x):
        return torch.relu(self.linear(x)) * 2

    def forward(self, x):
        self.calls += 1
"""

_LAZY = """
import torch

class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, module, x):
        made = torch.Tensor._make_subclass(cls, torch.empty(64, 128))
        made.module, made.x = module, x
        return made

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [a.module.right(a.x) if isinstance(a, Lazy) and hasattr(a, "module") else a for a in args]
        return function(*plain, **(kwargs or {}))
"""


def source(body):
    """The file of a solution."""
    return body if "class ModelNew" in body else _HEAD + "".join(f"        {line}\n" for line in body.strip().splitlines())


SLOW = {"rounds": 5, "seconds": 30.0}

PAIRS = {
    "zeros": ("return torch.zeros(64, 128)", "return torch.zeros(64, 128) + self.right(x)", "wrong", "", {}),
    "one element wrong": ("y = self.right(x)\ny[63, 127] += 1e-3\nreturn y", "y = self.right(x)\ny[63, 127] += 0\nreturn y", "wrong", "", {}),
    "computes in half precision": (
        "w, b = self.linear.weight.half(), self.linear.bias.half()\nreturn (torch.relu(nn.functional.linear(x.half(), w, b)) * 2).float()",
        "w, b = self.linear.weight.double(), self.linear.bias.double()\nreturn (torch.relu(nn.functional.linear(x.double(), w, b)) * 2).float()",
        "wrong", "", {}),
    "another dtype": ("return self.right(x).double()", "return self.right(x.double().float()).double().float()", "wrong", "", {}),
    "first answer for all": (
        "if 'y' not in kept:\n    kept['y'] = self.right(x)\nreturn kept['y'].clone()", "kept['y'] = self.right(x)\nreturn kept['y'].clone()",
        "cheating", "remembered answer", {}),
    "remembers by address": (
        "if x.data_ptr() not in kept:\n    kept[x.data_ptr()] = self.right(x)\nreturn kept[x.data_ptr()].clone()",
        "kept[x.data_ptr()] = kept.get(x.data_ptr(), 0) + 1\nreturn self.right(x)", "cheating", "remembered answer", {}),
    "remembers by a few elements": (
        "key = x[0, 0].item()\nif key not in kept:\n    kept.clear()\n    kept[key] = self.right(x)\nreturn kept[key].clone()",
        "key = hash(tuple(x.flatten().tolist()))\nif key not in kept:\n    kept.clear()\n    kept[key] = self.right(x)\nreturn kept[key].clone()",
        "cheating", "remembered answer", {"seeds": 12}),
    "right while it is watched": (
        "return self.right(x) if self.calls <= 5 else torch.relu(self.linear.bias).expand(64, 128) * 2",
        "return self.right(x) if self.calls <= 5 else torch.relu(self.linear.bias + x @ self.linear.weight.T) * 2", "wrong", "", SLOW),
    "changes an input": ("y = self.right(x)\nx[3, 5] = 0\nreturn y", "y = self.right(x)\nx = x.clone()\nx[3, 5] = 0\nreturn y", "changed_input", "", {}),
    "output in an input": (
        "x[:, :128] = self.right(x)\nreturn x[:, :128]", "z = x.clone()\nz[:, :128] = self.right(x)\nreturn z[:, :128]",
        "cheating", "output aliases an input", {}),
    "one buffer for all outputs": (
        "if 'y' not in kept:\n    kept['y'] = torch.empty(64, 128)\nreturn kept['y'].copy_(self.right(x))",
        "if 'y' not in kept:\n    kept['y'] = torch.empty(64, 128)\nreturn kept['y'].copy_(self.right(x)).clone()",
        "cheating", "output aliases an earlier output", {}),
    "changes an output that it gave away": (
        "y = self.right(x)\nif 'y' in kept:\n    kept['y'].zero_()\nkept['y'] = y\nreturn y", "y = self.right(x)\nkept['y'] = y\nreturn y",
        "cheating", "output changes after its call", {}),
    "computes when it is read": (
        _LAZY + _HEAD + "        return Lazy(self, x)\n", _LAZY + _HEAD + "        return Lazy(self, x) * 1\n", "cheating", "lazy output", {}),
    "a thread computes afterwards": (
        "y = torch.empty(64, 128)\nthreading.Timer(0.5, lambda: y.copy_(self.right(x))).start()\nreturn y",
        "y = torch.empty(64, 128)\nt = threading.Thread(target=lambda: y.copy_(self.right(x)))\nt.start()\nt.join()\nreturn y", "wrong", "", {}),
    "replaces the clock": (
        "time.perf_counter_ns = lambda: 0\nreturn self.right(x)", "time.perf_counter_ns()\nreturn self.right(x)", "cheating", "tampering with the judge", {}),
    "turns its own clock back": (
        "host = sys.modules['__main__']\nhost._clock = lambda: 0\ntime.sleep(0.3)\nreturn self.right(x)", "time.sleep(0.3)\nreturn self.right(x)",
        "cheating", "clocks disagree", SLOW),
    "says done before it is": (
        "import json, struct\nbody = json.dumps({'result': {'us': 1.0, 'outputs': [], 'written': True, 'aliases': [], 'patched': []}}).encode()\n"
        "os.write(4, struct.pack('<I', len(body)) + body)\ntime.sleep(0.5)\nreturn self.right(x)",
        "import json, struct\nos.write(1, b'done')\nreturn self.right(x)", "wrong", "", {}),
    "writes on the judge's pipe": ("os.write(4, b'\\xff' * 64)\nreturn self.right(x)", "os.write(2, b'\\xff' * 64)\nreturn self.right(x)", "cheating", "tampering with the judge", {}),
    "ends its process": ("os._exit(0)", "try:\n    sys.exit(0)\nexcept SystemExit:\n    return self.right(x)", "crashed", "", {}),
    "null pointer": ("ctypes.string_at(0)", "ctypes.string_at(b'abc')\nreturn self.right(x)", "crashed", "", {}),
    "endless": ("while True: pass", "while self.calls < 0: pass\nreturn self.right(x)", "timed_out", "", {}),
    "takes all memory": ("kept['m'] = torch.ones(1 << 30)\nreturn self.right(x)", "kept['m'] = torch.ones(1 << 20)\nreturn self.right(x)", "out_of_memory", "", {}),
    "opens a connection": ("socket.create_connection(('127.0.0.1', 9))", "socket.gethostname()\nreturn self.right(x)", "crashed", "", {}),
    "reads the reference": ("open(REFERENCE).read()", "open('/proc/self/stat').read()\nreturn self.right(x)", "crashed", "", {}),
    "does not parse": ("class ModelNew(:", "class ModelNew(__import__('torch').nn.Linear):\n    def forward(self, x):\n        return super().forward(x).relu() * 2\n", "does_not_compile", "", {}),
}
