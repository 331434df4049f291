"""Softmax and log-softmax: the oracle, and the ways in which models write them."""
import torch
import torch.nn.functional as F


def reference(x, scale, LOG, DIVIDE):
    scaled = x / scale if DIVIDE else x * scale
    return F.log_softmax(scaled, dim=-1) if LOG else F.softmax(scaled, dim=-1)


def functional(x):
    return F.softmax(x, dim=-1)


def functional_float32(x):
    return F.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


def upcast(x):
    return F.softmax(x.float(), dim=-1).type_as(x)


def first_dim(x):
    return F.softmax(x, dim=-2)


def scaled(x, scale):
    return F.softmax(x * scale, dim=-1)


def scaled_float32(x, scale):
    return F.softmax(x * scale, dim=-1, dtype=torch.float32).to(x.dtype)


def divided(x, scale):
    return F.softmax(x / scale, dim=-1)


def divided_float32(x, scale):
    return F.softmax(x / scale, dim=-1, dtype=torch.float32).to(x.dtype)


def shifted_max(x):
    e = torch.exp(x - x.max(dim=-1, keepdim=True)[0])
    return e / e.sum(dim=-1, keepdim=True)


def shifted_amax(x):
    e = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return e / e.sum(dim=-1, keepdim=True)


def shifted_logsumexp_exp(x):
    return torch.exp(x - torch.logsumexp(x, dim=-1, keepdim=True))


def log_functional(x):
    return F.log_softmax(x, dim=-1)


def log_functional_float32(x):
    return F.log_softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


def log_upcast(x):
    return F.log_softmax(x.float(), dim=-1).type_as(x)


def log_first_dim(x):
    return F.log_softmax(x, dim=-2)


def log_shifted(x):
    shifted = x - x.max(dim=-1, keepdim=True)[0]
    return shifted - torch.log(torch.exp(shifted).sum(dim=-1, keepdim=True))


def log_of_logsumexp(x):
    return x - torch.logsumexp(x, dim=-1, keepdim=True)
