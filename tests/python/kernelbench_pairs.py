"""Problems of the nine families in the format of KernelBench, each beside solutions that are right or wrong in one way.

`PAIRS` is {name: (reference, solution, what its evaluation says)}, the last one of OUTCOMES. Sizes are small; a solution is the problem's class under
another name, which does the same by other operations, or has its answer y changed.
"""

import textwrap

OUTCOMES = ("correct", "values", "shape", "runtime error", "not built", "not evaluated")
_HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
_ROTATE = "torch.cat((-x[..., 16:], x[..., :16]), dim=-1)"

# family: (constructor's lines, the arguments of forward, the reference's answer, the same by other operations, inputs)
FAMILIES = {
    "matmul": ("self.linear = nn.Linear(96, 48)", "x", "self.linear(x)", "(self.linear.weight @ x.T).T + self.linear.bias", "torch.rand(40, 96)"),
    "softmax": ("pass", "x", "torch.softmax(x, dim=-1)", "(x - x.amax(-1, keepdim=True)).exp() / (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)",
                "torch.randn(33, 100)"),
    "layernorm": (
        "self.norm = nn.LayerNorm(80)", "x", "self.norm(x)",
        "(x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * self.norm.weight + self.norm.bias", "torch.randn(30, 80)"),
    "rmsnorm": ("self.weight = nn.Parameter(torch.rand(80) + 0.5)", "x", "self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))",
                "F.rms_norm(x, (80,), self.weight, 1e-6)", "torch.randn(30, 80)"),
    "flash_attention": (
        "pass", "q, k, v", "torch.softmax(q @ k.transpose(-1, -2) / 4 + torch.full((24, 24), float('-inf'), device=q.device, dtype=q.dtype).triu(1), dim=-1) @ v",
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)", "*(torch.randn(2, 3, 24, 16) for _ in range(3))"),
    "fused_mlp": (
        "self.gate, self.up, self.down = nn.Linear(48, 96, bias=False), nn.Linear(48, 96, bias=False), nn.Linear(96, 48, bias=False)", "x",
        "self.down(F.silu(self.gate(x)) * self.up(x))",
        "(lambda gate, up: self.down(gate * torch.sigmoid(gate) * up))(*(x @ torch.cat((self.gate.weight, self.up.weight)).T).chunk(2, -1))", "torch.randn(20, 48)"),
    "cross_entropy": ("pass", "x, target", "F.cross_entropy(x, target.long())", "(torch.logsumexp(x, -1) - x.gather(1, target.long()[:, None])[:, 0]).mean()",
                      "torch.randn(50, 70), torch.randint(0, 70, (50,)).float()"),
    "rotary_embedding": (
        "angle = torch.outer(torch.arange(24.0), 100.0 ** (-torch.arange(0, 32, 2) / 32)).repeat(1, 2)\nself.register_buffer('cos', angle.cos())\n"
        "self.register_buffer('sin', angle.sin())", "x", f"x * self.cos + {_ROTATE} * self.sin",
        "(lambda a, b: torch.cat((a * self.cos[:, :16] - b * self.sin[:, :16], b * self.cos[:, 16:] + a * self.sin[:, 16:]), -1))(*x.chunk(2, -1))",
        "torch.randn(2, 3, 24, 32)"),
    "reduce": ("pass", "x", "x.sum(1)", "x.mean(1) * x.shape[1]", "torch.rand(12, 40, 30)"),
}

TRITON = _HEAD + """
import triton
import triton.language as tl


@triton.jit
def softmax_row(x, y, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * width + at, at < width, -float("inf"))
    e = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * width + at, e / tl.sum(e, 0), at < width)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        softmax_row[(ROWS,)](x, y, x.shape[1], 128)
        return y
"""


def backend(solution):
    """The benchmark's backend for a solution: one with Triton is imported from a file."""
    return "triton" if "@triton.jit" in solution else "cuda"


def _class(name, constructor, arguments, answer):
    lines = textwrap.indent(constructor, " " * 8)
    return f"{_HEAD}\nclass {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n{lines}\n\n    def forward(self, {arguments}):\n        {answer}\n"


def reference(family):
    """The problem's file."""
    constructor, arguments, answer, _, inputs = FAMILIES[family]
    return f"{_class('Model', constructor, arguments, f'return {answer}')}\n\ndef get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"


def solution(family, then="return y", before="", constructor=None):
    """ModelNew by other operations; `then`: what happens to its answer y, `before`: lines above the class."""
    own, arguments, _, answer, _ = FAMILIES[family]
    return before + _class("ModelNew", f"{own}\n{constructor or 'pass'}", arguments, f"y = {answer}; {then}")


def _planted():
    for family in FAMILIES:
        yield f"{family}: right", (reference(family), solution(family), "correct")
        yield f"{family}: one per cent off", (reference(family), solution(family, "return y * 1.01 + 1e-3"), "values")
    ways = {
        "another shape": ("shape", ("layernorm", "cross_entropy"), {"then": "return y.unsqueeze(0)"}),
        "another dtype": ("runtime error", ("softmax", "matmul"), {"then": "return y.half()"}),
        "NaN": ("values", ("rmsnorm", "flash_attention"), {"then": "return y * float('nan')"}),
        "raises": ("runtime error", ("fused_mlp", "reduce"), {"then": "raise ValueError('no such size')"}),
        "half of it": ("values", ("rotary_embedding", "softmax"), {"then": "y[len(y) // 2 :] = 0; return y"}),
        "right at first": ("values", ("matmul", "reduce"), {"then": "seen.append(0); return y if len(seen) < 3 else y + 1", "before": "seen = []\n"}),
        "raises while it is loaded": ("not built", ("layernorm",), {"before": "raise OSError('the compiler is missing')\n"}),
        "its constructor raises": ("runtime error", ("rmsnorm",), {"constructor": "raise RuntimeError('no image for this device')"}),
        "takes no such arguments": ("not evaluated", ("fused_mlp",), {"constructor": "raise ValueError('a width is missing')"}),
    }
    for way, (outcome, families, change) in ways.items():
        for family in families:
            yield f"{family}: {way}", (reference(family), solution(family, **change), outcome)
    yield "softmax: right, in Triton", (reference("softmax"), TRITON.replace("ROWS", "len(x)"), "correct")
    yield "softmax: half of the grid, in Triton", (reference("softmax"), TRITON.replace("ROWS", "len(x) // 2"), "values")
    yield "flash_attention: does not parse", (reference("flash_attention"), "class ModelNew(:\n", "not built")
    yield "cross_entropy: has no ModelNew", (reference("cross_entropy"), "x = 1\n", "not built")


PAIRS = dict(_planted())


def outcome(record):
    """Which of OUTCOMES a record is, of ours or of the benchmark's."""
    metadata = record["metadata"]
    if not record["compiled"]:
        return "not built" if "compilation_error" in metadata else "not evaluated"
    if record["correctness"]:
        return "correct"
    if "runtime_error" in metadata:
        return "runtime error"
    return "shape" if "shape" in str(metadata.get("correctness_issue")) else "values"
