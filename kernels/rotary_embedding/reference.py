"""Rotary position embedding: the oracle, and the ways in which models write it.

A spelling's labels in family.toml say where the positions are; the functions broadcast, so one serves several layouts of x and tables.
"""
import torch


def reference(x, k, cos, sin, INTERLEAVED, HALF_TABLE, BACKWARD, PAIR):
    if PAIR:
        return tuple(turn(each, cos, sin, INTERLEAVED, HALF_TABLE, BACKWARD) for each in (x, k))
    return turn(x, cos, sin, INTERLEAVED, HALF_TABLE, BACKWARD)


def turn(x, cos, sin, INTERLEAVED, HALF_TABLE, BACKWARD):
    rotary = cos.shape[-1] * (2 if HALF_TABLE else 1)
    turned, rest = x[..., :rotary], x[..., rotary:]

    def pair(columns):
        return (columns[..., 0::2], columns[..., 1::2]) if INTERLEAVED else columns.split(rotary // 2, dim=-1)

    first, second = pair(turned)
    cos_first, cos_second = (cos, cos) if HALF_TABLE else pair(cos)
    sin_first, sin_second = (sin, sin) if HALF_TABLE else pair(sin)
    if BACKWARD:
        sin_first, sin_second = -sin_first, -sin_second
    new_first, new_second = first * cos_first - second * sin_first, second * cos_second + first * sin_second
    whole = torch.stack((new_first, new_second), -1).flatten(-2) if INTERLEAVED else torch.cat((new_first, new_second), -1)
    return torch.cat((whole, rest), -1)


# Tables with a column an element.


def rotate_half(x):
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def half(x, cos, sin):
    return (x * cos) + (rotate_half(x) * sin)


def half_chunk(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return (x * cos) + (torch.cat((-second, first), dim=-1) * sin)


def half_partial(x, cos, sin):
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    return torch.cat(((turned * cos) + (rotate_half(turned) * sin), rest), dim=-1)


def interleaved(x, cos, sin):
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return (x * cos) + (turned * sin)


def interleaved_partial(x, cos, sin):
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    return torch.cat((interleaved(turned, cos, sin), rest), dim=-1)


# Tables with a column a pair.


def half_pairs(x, cos, sin):
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def half_pairs_chunk(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def half_pairs_backward(x, cos, sin):
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((first * cos + second * sin, first * (-sin) + second * cos), dim=-1)


def half_pairs_backward_chunk(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos + second * sin, first * (-sin) + second * cos), dim=-1)


def half_pairs_partial(x, cos, sin):
    rotary = 2 * cos.shape[-1]
    turned, rest = x[..., :rotary], x[..., rotary:]
    first, second = turned.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def interleaved_pairs(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def interleaved_pairs_view(x, cos, sin):
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


def interleaved_pairs_unbind(x, cos, sin):
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


# Queries and keys.


def half_of_both(x, k, cos, sin):
    return half(x, cos, sin), half(k, cos, sin)


def half_partial_of_both(x, k, cos, sin):
    return half_partial(x, cos, sin), half_partial(k, cos, sin)


def half_pairs_of_both(x, k, cos, sin):
    return half_pairs(x, cos, sin), half_pairs(k, cos, sin)


def interleaved_pairs_of_both(x, k, cos, sin):
    return interleaved_pairs(x, cos, sin), interleaved_pairs(k, cos, sin)


def interleaved_pairs_unbind_of_both(x, k, cos, sin):
    return interleaved_pairs_unbind(x, cos, sin), interleaved_pairs_unbind(k, cos, sin)
