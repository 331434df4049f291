"""Values for the inputs of a task: each generator is a kind of data that breaks some kernels.

Magnitudes depend on the dtype, so that PyTorch's own result in that dtype still means something. Values are made on the device of the
random generator.
"""

import functools
import math

import torch

from autokernel.errors import user_error

_LARGE = {torch.float16: 100.0, torch.bfloat16: 1e4, torch.float32: 1e4, torch.float64: 1e4}
_OFFSET = {torch.float16: 256.0, torch.bfloat16: 64.0, torch.float32: 1e4, torch.float64: 1e4}  # still resolves a spread of 1
_DECADES = {torch.float16: 2.0, torch.bfloat16: 3.0, torch.float32: 3.0, torch.float64: 3.0}
_MANTISSAS = {torch.float16: (torch.int16, 10), torch.bfloat16: (torch.int16, 7), torch.float32: (torch.int32, 23), torch.float64: (torch.int64, 52)}
_ANY_MANTISSA = 16  # of the factors of an answer
_AT_LEAST_ONE = 1 / math.log(2) - 1  # share of factors in [1, 2), the others being in [1/2, 1): so logarithms cancel out where mantissas are even


def _normal(shape, dtype, random):
    return torch.randn(shape, generator=random, device=random.device)


def _uniform(shape, dtype, random):
    return torch.rand(shape, generator=random, device=random.device) * 2 - 1


def _large(shape, dtype, random):
    return _normal(shape, dtype, random) * _LARGE[dtype]


def _small(shape, dtype, random):
    return _normal(shape, dtype, random) * 1e-3


def _offset(shape, dtype, random):
    return _normal(shape, dtype, random) + _OFFSET[dtype]


def _negative(shape, dtype, random):
    return _normal(shape, dtype, random) - 100


def _positive(shape, dtype, random):
    return _normal(shape, dtype, random).abs() + 1e-2


def _mixed_scale(shape, dtype, random):
    decades = _DECADES[dtype]
    return _normal(shape, dtype, random) * torch.pow(10.0, (torch.rand(shape, generator=random, device=random.device) * 2 - 1) * decades)


def _constant(shape, dtype, random):
    return torch.full(shape, 1234.0 if torch.rand((), generator=random, device=random.device) < 0.5 else -1234.0, device=random.device)


def _zeros(shape, dtype, random):
    return torch.zeros(shape, device=random.device)


def _alternating(shape, dtype, random):
    """300, -300, …: squares and sums overflow float16, the mean does not."""
    signs = 1 - 2 * (torch.arange(math.prod(shape), device=random.device) % 2)
    return signs.reshape(shape) * 300.0


def _denormal(shape, dtype, random):
    return _uniform(shape, dtype, random).double() * torch.finfo(dtype).tiny


def _ties(shape, dtype, random):
    """Five values: the largest and the smallest are in several places of a row that is not short, and where the first is differs."""
    return _normal(shape, dtype, random).round().clamp(-2, 2)


def _infinite(shape, dtype, random):
    """A row of -inf, a row whose first half is -inf, and in every third row from then on one infinity; the rest is normal."""
    values = _normal(shape, dtype, random)
    rows = _rows(values)
    for row in range(min(len(rows), 2)):
        width = rows.shape[1] if row == 0 and len(rows) > 1 else rows.shape[1] // 2
        rows[row, :width] = -math.inf
    chosen = torch.arange(len(rows), device=random.device)[2::3]
    rows[chosen, _pick_each(chosen, rows.shape[1], random)] = torch.where(chosen % 2 == 1, math.inf, -math.inf)
    if len(rows) == 1 and rows.shape[1] == 1:
        rows[0, 0] = math.inf
    return values


def _nan(shape, dtype, random):
    """One NaN in every third row; the other rows must stay clean."""
    values = _normal(shape, dtype, random)
    rows = _rows(values)
    chosen = torch.arange(0, len(rows), 3, device=random.device)
    rows[chosen, _pick_each(chosen, rows.shape[1], random)] = math.nan
    return values


_GENERATORS = {
    "normal": _normal,
    "uniform": _uniform,
    "large": _large,
    "small": _small,
    "offset": _offset,
    "negative": _negative,
    "positive": _positive,
    "mixed_scale": _mixed_scale,
    "constant": _constant,
    "zeros": _zeros,
    "alternating": _alternating,
    "denormal": _denormal,
    "ties": _ties,
    "infinite": _infinite,
    "nan": _nan,
    "some_ignored": _normal,
    "all_ignored": _normal,
}
ONE_TENSOR_ONLY = {"infinite", "nan"}  # special values in every input would leave nothing finite to compare
MAY_BE_SCALED = {"normal", "some_ignored", "uniform", "large", "offset", "negative", "positive", "mixed_scale", "constant", "alternating", "ties"}


def check_generator(name):
    if name not in _GENERATORS:
        raise user_error(f"Unknown generator '{name}': the worker knows {', '.join(_GENERATORS)}.")


def data(name, shape, dtype, random):
    """Values of a data tensor."""
    if dtype == torch.bool:
        return torch.rand(shape, generator=random, device=random.device) < 0.7
    if not dtype.is_floating_point:
        return torch.randint(-100, 100, shape, generator=random, device=random.device).to(dtype)
    values = _GENERATORS[name](tuple(shape), dtype, random).to(dtype)
    return _with_random_ends(values, random) if _GENERATORS[name] is _normal else values


def additive_mask(name, shape, dtype, random):
    """Values that are added to scores, of which every fourth and the first half of every other row hide: -inf. No row is hidden altogether."""
    values = data(name, shape, dtype, random)
    rows = _rows(values)
    hidden = torch.rand(rows.shape, generator=random, device=random.device) < 0.25
    hidden[1::2, : rows.shape[1] // 2] = True
    if rows.numel():
        every = torch.arange(len(rows), device=random.device)
        hidden[every, rows.shape[1] - 1 - _pick_each(every, (rows.shape[1] + 1) // 2, random)] = False
    rows.masked_fill_(hidden, -math.inf)
    return values


def factors(name, shape, dtype, count, random):
    """Values of which `count` are multiplied into an answer. Where others are normal these are around 1, so that products stay within the range."""
    values = data(name, shape, dtype, random)
    if not dtype.is_floating_point or not (_GENERATORS[name] is _normal or name in ONE_TENSOR_ONLY):
        return values
    return torch.where(values.isfinite(), _around_one(shape, dtype, count, random), values)


def _around_one(shape, dtype, count, random):
    """Numbers of either sign, most of them in three blocks around 1, a few of a product with any mantissa.

    A block is numbers that differ in the last bits of their mantissa alone, half of it or more. What the judge changes before it times, that half or here and
    there a mantissa, so tells nothing; and on the whole it makes products neither larger nor smaller, as logarithms cancel out before and after.
    """
    integers, mantissa = _MANTISSAS[dtype]
    block, one = _block_and_one(dtype)
    share = functools.partial(torch.rand, tuple(shape), generator=random, device=random.device)
    drawn = functools.partial(torch.randint, 0, size=tuple(shape), generator=random, device=random.device, dtype=integers)
    below = (share() >= _AT_LEAST_ONE).to(integers)
    bits = one - block * below * (1 + (share() < _share_of_farther_block(dtype)).to(integers)) + drawn(high=block)
    any_mantissa = (bits & ~((1 << mantissa) - 1)) | drawn(high=1 << mantissa)
    values = torch.where(share() < _ANY_MANTISSA / max(count, 1), any_mantissa, bits).view(dtype)
    return torch.where(share() < 0.5, values, -values)


@functools.lru_cache(maxsize=None)
def _share_of_farther_block(dtype):
    """Of the factors below 1, how many are in the second block from there: so that logarithms cancel out."""
    block, one = _block_and_one(dtype)

    def mean_log(first):
        return torch.arange(first, first + block, max(1, block >> 15), dtype=_MANTISSAS[dtype][0]).view(dtype).double().log().mean().item()

    above, near, far = mean_log(one), mean_log(one - block), mean_log(one - 2 * block)
    return (_AT_LEAST_ONE / (1 - _AT_LEAST_ONE) * above + near) / (near - far)


def _block_and_one(dtype):
    """The size of a block, and the bits of 1. Where blocks are narrower than 1/256, products of two are rounded to one side."""
    integers, mantissa = _MANTISSAS[dtype]
    return 1 << max(mantissa // 2, mantissa - 8), torch.ones((), dtype=dtype).view(integers).item()


def _with_random_ends(values, random):
    """Each number with the second half of its mantissa drawn anew. What is timed differs from what is checked in these bits: so neither can be told
    from the other by what PyTorch's generator leaves in them."""
    integers, mantissa = _MANTISSAS[values.dtype]
    bits, low = values.view(integers), (1 << mantissa // 2) - 1
    usual = values.abs() >= torch.finfo(values.dtype).tiny  # not denormal
    drawn = torch.randint(0, low + 1, values.shape, generator=random, device=random.device, dtype=integers)
    return torch.where(usual, (bits & ~low) | drawn, bits).view(values.dtype)


def weight(shape, dtype, random):
    """Values of a weight: around 1 for a vector, of the usual spread 1/sqrt(fan-in) for a matrix."""
    if dtype == torch.bool or not dtype.is_floating_point:
        return data("normal", shape, dtype, random)
    values = torch.randn(tuple(shape), generator=random, device=random.device)
    if len(shape) < 2:
        return (1 + 0.5 * values).to(dtype)
    return (values / math.sqrt(max(shape[-1], 1))).to(dtype)


def index(name, shape, dtype, limit, ignored, random):
    """Integers in [0, limit): first and last and a repetition among them.

    Where the contract has an `ignored` value, `normal` has none of it, `all_ignored` nothing else, any other generator some.
    """
    values = torch.randint(0, max(limit, 1), tuple(shape), generator=random, device=random.device)
    flat = values.view(-1)
    for place, value in ((0, 0), (flat.numel() - 1, max(limit - 1, 0))):
        if flat.numel() > 1:
            flat[place] = value
    if flat.numel() > 3:
        flat[1] = flat[2]
    if ignored is not None and flat.numel():
        flat[flat == ignored] = (ignored + 1) % max(limit, 1)
        flat[_hidden(name, flat.numel(), random)] = ignored
    return values.to(dtype)


def _hidden(name, size, random):
    """Which of `size` indices are ignored."""
    if name in ("normal", "all_ignored"):
        return torch.full((size,), name == "all_ignored", device=random.device)
    hidden = torch.rand(size, generator=random, device=random.device) < 0.125
    if size > 3:
        hidden[_pick(size, random)] = True
    return hidden


def _rows(values):
    """Rows along the last dim that has several places."""
    if values.numel() == 0:
        return values.reshape(0, 1)
    return values.view(-1, next((size for size in reversed(values.shape) if size > 1), 1))


def _pick_each(rows, size, random):
    """A column for each of `rows`."""
    return torch.randint(0, max(size, 1), rows.shape, generator=random, device=random.device)


def _pick(size, random):
    return int(torch.randint(0, size, (), generator=random, device=random.device))
