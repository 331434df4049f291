"""RMSNorm: the oracle, and the ways in which models write it."""
import torch
import torch.nn.functional as F

FLOAT32_EPS = 2.0**-23  # what F.rms_norm(eps=None) adds, for float16 and bfloat16 too


def reference(x, weight, residual, eps, HAS_WEIGHT, HAS_RESIDUAL, HAS_RESIDUAL_OUT, WEIGHT_OFFSET, MACHINE_EPS):
    total = x + residual if HAS_RESIDUAL else x
    gain = weight + 1 if HAS_WEIGHT and WEIGHT_OFFSET else weight
    out = F.rms_norm(total, (x.shape[-1],), gain, FLOAT32_EPS if MACHINE_EPS else eps)
    return (out, total) if HAS_RESIDUAL_OUT else out


def functional(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def functional_no_weight(x, eps):
    return F.rms_norm(x, (x.shape[-1],), None, eps)


def functional_machine_eps(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight)


def functional_machine_eps_no_weight(x):
    return F.rms_norm(x, (x.shape[-1],))


def hf_llama(x, weight, eps):
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def hf_t5(x, weight, eps):
    variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
    return weight * (x * torch.rsqrt(variance + eps)).to(x.dtype)


def llama(x, weight, eps):
    def norm(wide):
        return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)

    return norm(x.float()).type_as(x) * weight


def gemma(x, weight, eps):
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + weight.float())).type_as(x)


def pow_rsqrt(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def pow_rsqrt_no_weight(x, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def product_rsqrt(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def product_rsqrt_no_weight(x, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def square_rsqrt(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def pow_divide(x, weight, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def pow_divide_no_weight(x, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def product_divide(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def square_divide(x, weight, eps):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def pow_reciprocal(x, weight, eps):
    return x * (1.0 / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)) * weight


# After the addition of a residual; the second of each pair is for a sum that is used again.


def residual_spellings(norm):
    def added(x, residual, **others):
        return norm(x + residual, **others)

    def added_and_kept(x, residual, **others):
        total = x + residual
        return norm(total, **others), total

    return added, added_and_kept


functional_residual, functional_residual_out = residual_spellings(functional)
hf_llama_residual, hf_llama_residual_out = residual_spellings(hf_llama)
hf_t5_residual, hf_t5_residual_out = residual_spellings(hf_t5)
llama_residual, llama_residual_out = residual_spellings(llama)
pow_rsqrt_residual, pow_rsqrt_residual_out = residual_spellings(pow_rsqrt)
product_rsqrt_residual, product_rsqrt_residual_out = residual_spellings(product_rsqrt)
pow_divide_residual, pow_divide_residual_out = residual_spellings(pow_divide)
gemma_residual, gemma_residual_out = residual_spellings(gemma)
functional_no_weight_residual, functional_no_weight_residual_out = residual_spellings(functional_no_weight)
functional_machine_eps_residual, functional_machine_eps_residual_out = residual_spellings(functional_machine_eps)
