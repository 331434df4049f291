"""LayerNorm: the oracle, and the ways in which models write it."""
import torch
import torch.nn.functional as F


def reference(x, weight, bias, eps, HAS_WEIGHT, HAS_BIAS):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def functional(x, weight, bias, eps):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def functional_no_bias(x, weight, eps):
    return F.layer_norm(x, (x.shape[-1],), weight, None, eps)


def functional_plain(x, eps):
    return F.layer_norm(x, (x.shape[-1],), None, None, eps)


# Written out. The name says how the variance is had: from x - mean computed once (shared) or twice, or from PyTorch's var; and
# whether the root divides or its reciprocal multiplies.


def shared_sqrt_plain(x, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + eps)


def shared_rsqrt_plain(x, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)


def twice_sqrt_plain(x, eps):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps)


def twice_rsqrt_plain(x, eps):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps)


def var_sqrt_plain(x, eps):
    variance = x.var(-1, keepdim=True, unbiased=False)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps)


def var_rsqrt_plain(x, eps):
    variance = x.var(-1, keepdim=True, unbiased=False)
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + eps)


def var_correction_sqrt_plain(x, eps):
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps)


def var_correction_rsqrt_plain(x, eps):
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + eps)


def var_mean_sqrt_plain(x, eps):
    variance, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps)


def var_mean_rsqrt_plain(x, eps):
    variance, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(variance + eps)


def shared_sqrt(x, weight, bias, eps):
    return shared_sqrt_plain(x, eps) * weight + bias


def shared_rsqrt(x, weight, bias, eps):
    return shared_rsqrt_plain(x, eps) * weight + bias


def twice_sqrt(x, weight, bias, eps):
    return twice_sqrt_plain(x, eps) * weight + bias


def twice_rsqrt(x, weight, bias, eps):
    return twice_rsqrt_plain(x, eps) * weight + bias


def var_sqrt(x, weight, bias, eps):
    return var_sqrt_plain(x, eps) * weight + bias


def var_rsqrt(x, weight, bias, eps):
    return var_rsqrt_plain(x, eps) * weight + bias


def var_correction_sqrt(x, weight, bias, eps):
    return var_correction_sqrt_plain(x, eps) * weight + bias


def var_correction_rsqrt(x, weight, bias, eps):
    return var_correction_rsqrt_plain(x, eps) * weight + bias


def var_mean_sqrt(x, weight, bias, eps):
    return var_mean_sqrt_plain(x, eps) * weight + bias


def var_mean_rsqrt(x, weight, bias, eps):
    return var_mean_rsqrt_plain(x, eps) * weight + bias
