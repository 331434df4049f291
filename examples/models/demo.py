"""The model of `./ak demo`: a small scoring model, written as research code writes its operations.

    autokernel run examples/models/demo.py:example --device cpu

It reads a long sequence of ids and returns how surprising each next id was. The matrix products are narrow and the
sequence is long, so most of eager PyTorch's time goes to everything around the products: attention whose scores are written
out, scaled, masked and normalised in separate passes over (heads, length, length), rotary embedding in strided halves, norms
spelled out in five operations each, and a loss over the vocabulary. There a CPU kernel has something to gain. In a plain
transformer at ordinary widths the products dominate, PyTorch's library is near the limit of the machine, and little is left.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


class LayerNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias


def rotary_tables(length: int, head_width: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines (length, head_width / 2)."""
    frequency = base ** (-torch.arange(0, head_width, 2, dtype=torch.float32) / head_width)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn neighbouring pairs (0, 1), (2, 3), … of the last dimension."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k = self.k(x).view(batch, length, self.heads, -1).transpose(1, 2)
        v = self.v(x).view(batch, length, self.heads, -1).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // self.heads)
        seen = torch.tril(torch.ones(length, length, device=x.device))
        scores = scores.masked_fill(seen == 0, float("-inf"))
        mixed = F.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.norm1 = RMSNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = RMSNorm(width)
        self.mlp = SwiGLU(width, hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Demo(nn.Module):
    """Ids and the ids that follow them, both (batch, length), to the loss of each, (batch * length)."""

    def __init__(self, vocabulary: int = 4096, length: int = 1024, width: int = 256, layers: int = 2, heads: int = 8, hidden: int = 512):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.norm = LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        cos, sin = rotary_tables(length, width // heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")


def example() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """The model and its inputs: ids, and the same ids one step later. The seed is set by the caller."""
    model = Demo()
    length, vocabulary = model.cos.shape[0], model.tokens.num_embeddings
    sequence = torch.randint(vocabulary, (1, length + 1))
    return model.eval(), (sequence[:, :-1].contiguous(), sequence[:, 1:].contiguous())
