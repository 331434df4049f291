"""Gated MLP of a transformer block, and the ways models write it."""
import torch
import torch.nn.functional as F


def _squared_relu(x):
    return F.relu(x).square()


def _gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


_ACTIVATIONS = {1: F.gelu, 2: _gelu_tanh, 3: F.relu, 4: F.silu, 5: _squared_relu}


def _gated(activation, x, gate, up, down):
    return F.linear(activation(F.linear(x, gate)) * F.linear(x, up), down)


def reference(x, gate, up, down, ACTIVATION=4):
    return _gated(_ACTIVATIONS[ACTIVATION], x, gate, up, down)


def swiglu(x, gate, up, down):
    return _gated(F.silu, x, gate, up, down)


def geglu(x, gate, up, down):
    return _gated(F.gelu, x, gate, up, down)


def geglu_tanh(x, gate, up, down):
    return _gated(_gelu_tanh, x, gate, up, down)


def reglu(x, gate, up, down):
    return _gated(F.relu, x, gate, up, down)


def squared_reglu(x, gate, up, down):
    return _gated(_squared_relu, x, gate, up, down)


def swiglu_sigmoid(x, gate, up, down):
    hidden = F.linear(x, gate)
    return F.linear(hidden * torch.sigmoid(hidden) * F.linear(x, up), down)


def swiglu_matmul(x, gate, up, down):
    return (F.silu(x @ gate) * (x @ up)) @ down
