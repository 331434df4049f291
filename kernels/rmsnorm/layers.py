"""Layers of an exported package, where this file is layers/rmsnorm.py: forwards that take the place of a model's own."""
import torch.nn.functional as F
from torch import nn

from ..functions import rmsnorm


class RMSNorm(nn.Module):
    """For torch.nn.RMSNorm."""

    can_torch_compile = True
    has_backward = True

    def forward(self, x):
        if len(self.normalized_shape) != 1:
            return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        if self.eps is None:
            return rmsnorm(x, self.weight, machine_eps=1)
        return rmsnorm(x, self.weight, eps=self.eps)


class LlamaRMSNorm(nn.Module):
    """For LlamaRMSNorm of transformers, and its equals in other models: `weight` and `variance_epsilon`."""

    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states):
        return rmsnorm(hidden_states, self.weight, eps=self.variance_epsilon)
