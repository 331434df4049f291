"""Layers of an exported package, where this file is layers/softmax.py: forwards that take the place of a model's own."""
import torch.nn.functional as F
from torch import nn

from ..functions import softmax


class Softmax(nn.Module):
    """For torch.nn.Softmax over the last dimension; over another one it is PyTorch's own."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input):
        if self.dim not in (-1, input.dim() - 1):
            return F.softmax(input, self.dim)
        return softmax(input)


class LogSoftmax(nn.Module):
    """For torch.nn.LogSoftmax over the last dimension; over another one it is PyTorch's own."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input):
        if self.dim not in (-1, input.dim() - 1):
            return F.log_softmax(input, self.dim)
        return softmax(input, log=1)
