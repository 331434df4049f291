"""Softmax attention, and the ways models write it."""
import torch
import torch.nn.functional as F


def reference(q, k, v, mask=None, bool_mask=None, scale=1.0, CAUSAL=0, HAS_MASK=0, BOOL_MASK=0, SCALE=0, SAFE=1):
    """SDPA, and its rows that see no key made NaN where the model's softmax is unguarded."""
    factor = {0: None, 1: scale, 2: 1.0 / scale if SCALE == 2 else None}[SCALE]
    seen = None if bool_mask is None else (bool_mask if BOOL_MASK == 1 else ~bool_mask)
    if mask is not None and seen is not None:
        mask = mask.masked_fill(~seen, float("-inf"))
    elif seen is not None:
        mask = seen
    if CAUSAL and mask is not None:
        future = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        mask = mask & ~future if mask.dtype == torch.bool else mask.masked_fill(future, float("-inf"))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=bool(CAUSAL) and mask is None, scale=factor,
                                         enable_gqa=q.shape[1] != k.shape[1])
    if SAFE or mask is None:
        return out
    blind = ~mask.any(-1) if mask.dtype == torch.bool else (mask == float("-inf")).all(-1)
    return out.masked_fill(blind.unsqueeze(-1), float("nan"))


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def sdpa_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def sdpa_scale(q, k, v, scale):
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def sdpa_causal_scale(q, k, v, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def sdpa_gqa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def sdpa_gqa_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def _repeat_kv(x, heads):
    batch, groups, length, width = x.shape
    repeats = heads // groups
    return x[:, :, None, :, :].expand(batch, groups, repeats, length, width).reshape(batch, groups * repeats, length, width)


def sdpa_repeat_kv(q, k, v):
    return F.scaled_dot_product_attention(q, _repeat_kv(k, q.shape[1]), _repeat_kv(v, q.shape[1]))


def sdpa_repeat_kv_causal(q, k, v):
    return F.scaled_dot_product_attention(q, _repeat_kv(k, q.shape[1]), _repeat_kv(v, q.shape[1]), is_causal=True)


def sdpa_mask(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def sdpa_bool(q, k, v, bool_mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bool_mask)


# One function for each way a mask broadcasts; the labels in family.toml tell them apart.
sdpa_mask_full = sdpa_mask_batch = sdpa_mask_one = sdpa_mask_keys = sdpa_mask_plain = sdpa_mask
sdpa_bool_full = sdpa_bool_batch = sdpa_bool_one = sdpa_bool_keys = sdpa_bool_plain = sdpa_bool


def _multiplied(q, k, scale):
    return (q @ k.transpose(-2, -1)) * scale


def _divided(q, k, scale):
    return (q @ k.transpose(-2, -1)) / scale


def _softmax_tril(scores, v):
    length, keys = scores.shape[-2:]
    seen = torch.tril(torch.ones(length, keys, device=scores.device))
    return F.softmax(scores.masked_fill(seen == 0, float("-inf")), dim=-1) @ v


def _softmax_triu(scores, v):
    length, keys = scores.shape[-2:]
    hidden = torch.triu(torch.full((length, keys), float("-inf"), device=scores.device), diagonal=1)
    return F.softmax(scores + hidden, dim=-1) @ v


def _softmax_hidden(scores, v, hidden):
    return F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v


def _softmax_future(scores, v):
    length, keys = scores.shape[-2:]
    return _softmax_hidden(scores, v, torch.triu(torch.ones(length, keys, dtype=torch.bool, device=scores.device), diagonal=1))


def softmax_multiplied(q, k, v, scale):
    return F.softmax(_multiplied(q, k, scale), dim=-1) @ v


def softmax_divided(q, k, v, scale):
    return F.softmax(_divided(q, k, scale), dim=-1) @ v


def softmax_scaled_q(q, k, v, scale):
    return F.softmax((q * scale) @ k.transpose(-2, -1), dim=-1) @ v


def softmax_multiplied_tril(q, k, v, scale):
    return _softmax_tril(_multiplied(q, k, scale), v)


def softmax_divided_tril(q, k, v, scale):
    return _softmax_tril(_divided(q, k, scale), v)


def softmax_multiplied_triu(q, k, v, scale):
    return _softmax_triu(_multiplied(q, k, scale), v)


def softmax_divided_triu(q, k, v, scale):
    return _softmax_triu(_divided(q, k, scale), v)


def softmax_multiplied_future(q, k, v, scale):
    return _softmax_future(_multiplied(q, k, scale), v)


def softmax_divided_future(q, k, v, scale):
    return _softmax_future(_divided(q, k, scale), v)


def softmax_multiplied_mask(q, k, v, mask, scale):
    return F.softmax(_multiplied(q, k, scale) + mask, dim=-1) @ v


def softmax_divided_mask(q, k, v, mask, scale):
    return F.softmax(_divided(q, k, scale) + mask, dim=-1) @ v


def softmax_multiplied_hidden(q, k, v, bool_mask, scale):
    return _softmax_hidden(_multiplied(q, k, scale), v, bool_mask)


def softmax_divided_hidden(q, k, v, bool_mask, scale):
    return _softmax_hidden(_divided(q, k, scale), v, bool_mask)


softmax_multiplied_mask_full = softmax_multiplied_mask_batch = softmax_multiplied_mask_one = softmax_multiplied_mask
softmax_multiplied_mask_keys = softmax_multiplied_mask_plain = softmax_multiplied_mask
softmax_divided_mask_full = softmax_divided_mask_batch = softmax_divided_mask_one = softmax_divided_mask
softmax_divided_mask_keys = softmax_divided_mask_plain = softmax_divided_mask
softmax_multiplied_hidden_one = softmax_multiplied_hidden_plain = softmax_multiplied_hidden_batch = softmax_multiplied_hidden
softmax_divided_hidden_one = softmax_divided_hidden_plain = softmax_divided_hidden_batch = softmax_divided_hidden
