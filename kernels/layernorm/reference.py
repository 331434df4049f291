"""LayerNorm: the oracle, and the ways in which models write it."""
import torch
import torch.nn.functional as F


def reference(x, weight, bias, residual, eps, HAS_WEIGHT, HAS_BIAS, HAS_RESIDUAL, HAS_RESIDUAL_OUT):
    total = x + residual if HAS_RESIDUAL else x
    out = F.layer_norm(total, (x.shape[-1],), weight, bias, eps)
    return (out, total) if HAS_RESIDUAL_OUT else out


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


# After the addition of a residual; the second of each pair is for a sum that is used again.


def residual_spellings(norm):
    def added(x, residual, **others):
        return norm(x + residual, **others)

    def added_and_kept(x, residual, **others):
        total = x + residual
        return norm(total, **others), total

    return added, added_and_kept


functional_residual, functional_residual_out = residual_spellings(functional)
functional_no_bias_residual, functional_no_bias_residual_out = residual_spellings(functional_no_bias)
functional_plain_residual, functional_plain_residual_out = residual_spellings(functional_plain)
shared_rsqrt_residual, shared_rsqrt_residual_out = residual_spellings(shared_rsqrt)
twice_sqrt_residual, twice_sqrt_residual_out = residual_spellings(twice_sqrt)
var_sqrt_residual, var_sqrt_residual_out = residual_spellings(var_sqrt)
var_rsqrt_residual, var_rsqrt_residual_out = residual_spellings(var_rsqrt)
