"""Matrix product with an optional bias, activation and residual, and the ways models write it."""
import math

import torch
import torch.nn.functional as F


def _new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def _gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


_ACTIVATIONS = {0: lambda x: x, 1: F.gelu, 2: _gelu_tanh, 3: F.relu, 4: F.silu}


def reference(x, weight, bias=None, residual=None, HAS_BIAS=0, HAS_RESIDUAL=0, ACTIVATION=0):
    out = _ACTIVATIONS[ACTIVATION](F.linear(x, weight, bias))
    return out if residual is None else residual + out


def linear(x, weight):
    return F.linear(x, weight)


def linear_bias(x, weight, bias):
    return F.linear(x, weight, bias)


def matmul(x, weight):
    return x @ weight


def matmul_bias(x, weight, bias):
    return x @ weight + bias


def matmul_t(x, weight):
    return x @ weight.t()


def mm(x, weight):
    return torch.mm(x, weight)


def addmm(x, weight, bias):
    return torch.addmm(bias, x, weight)


def linear_gelu(x, weight):
    return F.gelu(F.linear(x, weight))


def linear_bias_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias))


def linear_gelu_tanh(x, weight):
    return _gelu_tanh(F.linear(x, weight))


def linear_bias_gelu_tanh(x, weight, bias):
    return _gelu_tanh(F.linear(x, weight, bias))


def linear_new_gelu(x, weight):
    return _new_gelu(F.linear(x, weight))


def linear_bias_new_gelu(x, weight, bias):
    return _new_gelu(F.linear(x, weight, bias))


def linear_relu(x, weight):
    return F.relu(F.linear(x, weight))


def linear_bias_relu(x, weight, bias):
    return F.relu(F.linear(x, weight, bias))


def linear_silu(x, weight):
    return F.silu(F.linear(x, weight))


def linear_bias_silu(x, weight, bias):
    return F.silu(F.linear(x, weight, bias))


def addmm_gelu(x, weight, bias):
    return F.gelu(torch.addmm(bias, x, weight))


def addmm_gelu_tanh(x, weight, bias):
    return _gelu_tanh(torch.addmm(bias, x, weight))


def addmm_new_gelu(x, weight, bias):
    return _new_gelu(torch.addmm(bias, x, weight))


def linear_residual(x, weight, residual):
    return residual + F.linear(x, weight)


def linear_bias_residual(x, weight, bias, residual):
    return residual + F.linear(x, weight, bias)
