"""Whether an output is as good as PyTorch's own: the error budget of docs/formats/judge.md, in PyTorch."""

import math

import torch

_K = 16.0
_NORM_FACTOR = 4.0
_LEAST_NORM_ELEMENTS = 256
_LEAST_ROW = 256  # elements over which eager's error is averaged: a model's last dim may be 1
_CHUNK = 1 << 24
_ASSUMED_ULPS = 64.0  # eager's error where nothing in float64 is there to measure it


class Expected:
    """One output of the reference: in the working precision, and in float64 where that is known."""

    def __init__(self, eager, wide):
        self.eager = eager
        self.wide = wide if eager.is_floating_point() else None


def compare(name, got, expected):
    """None, or the evidence of what is wrong with `got`: the worst element, how many fail, or the norm."""
    if not got.is_floating_point():
        return _compare_exactly(name, got, expected.eager)
    sums = {"error": 0.0, "eager": 0.0, "half_ulps": 0.0}
    failing, worst = 0, None
    row = _row(got.shape)
    for begin, ours, eager, wide in _chunks(row, got, expected):
        error, budget, wrong = _errors(ours, eager, wide, got.dtype, row, sums)
        count = int(wrong.sum())
        failing += count
        if count:
            excess = torch.where(wrong, (error / budget).nan_to_num(math.inf, math.inf), -1.0)
            at = int(excess.argmax())
            if worst is None or excess[at].item() > worst[0]:
                worst = (excess[at].item(), begin + at, ours[at].item(), (eager if wide is None else wide)[at].item(), error[at].item(), budget[at].item())
    if failing:
        _, at, ours, reference, error, budget = worst
        place = [int(i) for i in torch.unravel_index(torch.tensor(at), got.shape)]
        described = {"index": place, "got": _number(ours), "expected": _number(reference), "error": _number(error), "budget": _number(budget)}
        return {"tensor": name, "failing_elements": failing, "elements": got.numel(), "worst": described}
    allowed = _NORM_FACTOR * max(math.sqrt(sums["eager"]), math.sqrt(sums["half_ulps"]))
    if got.numel() >= _LEAST_NORM_ELEMENTS and math.sqrt(sums["error"]) > allowed:
        return {"tensor": name, "norm": {"error": math.sqrt(sums["error"]), "budget": allowed}}
    return None


def passing_null_answers(expected, inputs, others):
    """Names of answers that know nothing and would pass: a task that they pass proves little. `others`: the outputs for other data."""
    answers = {
        "zeros": [torch.zeros_like(each.eager) for each in expected],
        "ones": [torch.ones_like(each.eager) for each in expected],
        "mean": [torch.full_like(other, _mean(other)) for other in others],
        "answer to other data": others,
    }
    for position, tensor in enumerate(inputs):
        if isinstance(tensor, torch.Tensor) and all(tensor.shape == e.eager.shape and tensor.dtype == e.eager.dtype for e in expected):
            answers[f"copy of input {position}"] = [tensor] * len(expected)
    return [name for name, answer in answers.items() if all(compare("", a, e) is None for a, e in zip(answer, expected))]


def _compare_exactly(name, got, eager):
    wrong = got != eager
    failing = int(wrong.sum())
    if not failing:
        return None
    place = [int(i) for i in wrong.nonzero()[0]]
    at = tuple(place)
    return {
        "tensor": name,
        "failing_elements": failing,
        "elements": got.numel(),
        "worst": {"index": place, "got": got[at].item(), "expected": eager[at].item()},
    }


def _row(shape):
    """Elements in a row: trailing dims, until they are enough to average over."""
    row = 1
    for size in reversed(shape):
        if row >= _LEAST_ROW:
            break
        row *= size
    return max(row, 1)


def _chunks(row, got, expected):
    step = max(row, _CHUNK // row * row)
    flat = [None if each is None else each.reshape(-1) for each in (got, expected.eager, expected.wide)]
    for begin in range(0, got.numel(), step):
        yield (begin, *(None if each is None else each[begin : begin + step].double() for each in flat))


def _errors(ours, eager, wide, dtype, row, sums):
    """(error, budget, whether it is wrong) of each element of a chunk; adds to the sums of squares."""
    reference = eager if wide is None else wide.to(dtype).double().where(~wide.to(dtype).isfinite(), wide)
    half_ulp = _half_ulp(reference, dtype)
    finite = ours.isfinite() & reference.isfinite() & eager.isfinite()
    eager_error = (eager - reference).abs() if wide is not None else _ASSUMED_ULPS * torch.finfo(dtype).eps * _rms_of_rows(reference, finite, row)
    rms = _rms_of_rows(eager_error, finite, row)
    budget = _K * torch.maximum(torch.maximum(half_ulp, eager_error), rms)
    error = (ours - reference).abs()
    same = ((ours == reference) | (ours == eager)) | (ours.isnan() & (reference.isnan() | eager.isnan()))
    wrong = torch.where(finite, error > budget, ~same)
    for name, values in (("error", error), ("eager", eager_error), ("half_ulps", half_ulp)):
        sums[name] += float(values[finite].square().sum())
    return error, budget, wrong


def _rms_of_rows(values, finite, row):
    squares = values.where(finite, 0.0).square().reshape(-1, row)
    return (squares.mean(1, keepdim=True).sqrt()).expand(-1, row).reshape(-1)


def _half_ulp(values, dtype):
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(values.where(values.isfinite(), 0.0))
    least = info.smallest_normal * info.eps / 2
    return torch.clamp(torch.ldexp(torch.full_like(values, info.eps / 4), exponent), min=least)


def _mean(tensor):
    mean = tensor.double().mean().item() if tensor.numel() else 0.0
    return mean if tensor.is_floating_point() else round(mean)


def _number(value):
    return value if isinstance(value, int) or math.isfinite(value) else str(value)
