"""A model in which every family occurs: each is found, and its starter passes all five stages of the judge."""

import json

import pytest

MODEL = '''
import torch
from torch import nn
import torch.nn.functional as F


class Everything(nn.Module):
    """Embedded ids through one of each, to the loss of predicting them."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(96, 64)
        self.norm_weight = nn.Parameter(torch.rand(64) + 0.5)
        self.q, self.k, self.v = (nn.Linear(64, 64, bias=False) for _ in range(3))
        self.gate, self.up, self.down = nn.Linear(64, 160, bias=False), nn.Linear(64, 160, bias=False), nn.Linear(160, 64, bias=False)
        self.norm = nn.LayerNorm(64)
        self.mixer = nn.Linear(64, 80)
        self.head = nn.Linear(80, 96)
        angle = torch.outer(torch.arange(48.0), 100.0 ** (-torch.arange(0, 16, 2) / 16))
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def rotate(self, x):
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * self.sin

    def forward(self, ids):
        batch, length = ids.shape
        x = self.tokens(ids)
        y = F.rms_norm(x, (64,), self.norm_weight, 1e-6)
        q, k, v = (linear(y).view(batch, length, 4, 16).transpose(1, 2) for linear in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(batch, length, 64)
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        x = F.softmax(self.mixer(self.norm(x)), dim=-1)
        x = x - x.mean(dim=-1, keepdim=True)
        return F.cross_entropy(self.head(x).view(-1, 96), ids.view(-1))
'''

FAMILIES = {"matmul", "softmax", "layernorm", "rmsnorm", "flash_attention", "fused_mlp", "cross_entropy", "rotary_embedding", "reduce"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_family_is_found_and_its_starter_passes_all_stages(program, dtype):
    model = program.directory / "everything.py"
    model.write_text(MODEL)
    program.ok("prepare", f"{model}:Everything", "--input-shape", "2,48", "--dtype", dtype, "--run-dir", program.run_dir)
    program.extract()
    tasks = {"_".join(path.name.split("_")[:-1]): path.name for path in (program.run_dir / "tasks").iterdir()}
    assert set(tasks) == FAMILIES
    for family, task in sorted(tasks.items()):
        result = program("bench", task, "--run-dir", program.run_dir, "--note", "the starter", "--json")
        reply = json.loads(result.out.strip().splitlines()[-1])
        assert (family, reply["verdict"]) == (family, "kept"), reply["evidence"]
        assert reply["evidence"]["stages"] == [1, 2, 3, 4, 5]
