"""Runs every small case of a family's stages through Triton's interpreter, and prints a line for each that differs from float64.

Usage: TRITON_INTERPRET=1 python triton_interpreted.py FAMILY DTYPE
"""

import inspect
import math
import pathlib
import sys
import warnings

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "python"), str(pathlib.Path(__file__).resolve().parent)]

import torch  # noqa: E402
import triton_plans as plans  # noqa: E402

LARGEST = 3 << 14  # elements; the interpreter is slow
TOLERANCE = {"float32": 2e-5, "float16": 4e-3}


def main(family, dtype):
    kernel = plans.Kernel(family)
    warnings.simplefilter("ignore")
    ran = 0
    for number, (dims, options, layout, point) in enumerate(cases(kernel)):
        torch.manual_seed(number)
        tensors = make_tensors(kernel, dims, options, layout, dtype)
        if sum(t.numel() for t in tensors.values() if t is not None) > LARGEST:
            continue
        plans.interpreted(kernel, tensors, dims, options, dtype, point)
        ran += 1
        for name, error in differences(kernel, tensors, options).items():
            if not error < TOLERANCE[dtype]:
                print(f"WRONG {dims} {options} {layout} {point}: {name} is off by {error:.2e}")
    print(f"{ran} cases")


def cases(kernel):
    """The edges and the sweep with the first spelling's options, one edge with those of each other, one with each other value of each tunable.

    Where programs hold rows of some length, a longer row with the options of each, too.
    """
    stages = kernel.family["stages"]
    options = [dict(pairs) for pairs in dict.fromkeys(tuple(spelling.get("options", {}).items()) for spelling in kernel.family["spelling"])]
    every = [({n: v for n, v in case.items() if n != "layout"}, case.get("layout", "contiguous")) for case in stages["edges"] + stages["sweep"]]
    for dims, layout in every:
        yield dims, options[0], layout, {}
    strided = next(case for case in every if case[1] == "strided")
    for other in options[1:]:
        yield strided[0], other, strided[1], {}
    for point in points(kernel):
        yield strided[0], options[0], strided[1], point
    if "HOLD" in kernel.tunables:
        hold = min(kernel.tunables["HOLD"]["values"])
        for each in options:
            yield {"M": 2, "N": hold + 905}, each, "strided", {"HOLD": hold}


def points(kernel):
    for name, tunable in kernel.tunables.items():
        for value in tunable["values"]:
            if value != tunable["default"]:
                yield {name: value}


def make_tensors(kernel, dims, options, layout, dtype):
    names = {**kernel.family.get("options", {}), **options, **dims}
    tensors = {}
    for tensor in kernel.family["tensor"]:
        shape = [plans.evaluate(size, names) for size in tensor["shape"]]
        if "optional" in tensor and not plans.evaluate(tensor["optional"], names):
            tensors[tensor["name"]] = None
        elif tensor["role"] == "index":
            tensors[tensor["name"]] = indices(shape, plans.evaluate(tensor["range"], names), plans.DTYPES[tensor.get("dtype", "int64")])
        elif tensor["role"] == "output":
            kind = plans.DTYPES[tensor.get("dtype", dtype)]
            tensors[tensor["name"]] = torch.full(shape, float("nan") if kind.is_floating_point else -7, dtype=kind)
        else:
            tensors[tensor["name"]] = laid_out(shape, layout if tensor["role"] == "data" and len(shape) > 1 else "contiguous", plans.DTYPES[dtype])
    return tensors


def indices(shape, limit, dtype):
    values = torch.randint(0, max(1, limit), shape).to(dtype)
    if dtype == torch.int64 and values.numel() > 2:
        values[1] = -100  # ignored
    return values


def laid_out(shape, layout, dtype):
    """NaN lies between the elements."""
    if layout == "strided":
        storage = torch.full([*shape[:-1], shape[-1] + 3], float("nan"), dtype=dtype)
        storage[..., : shape[-1]] = torch.randn(shape)
        return storage[..., : shape[-1]]
    if layout == "transposed":
        return torch.randn([*shape[:-2], shape[-1], shape[-2]]).to(dtype).transpose(-1, -2)
    return torch.randn(shape).to(dtype)


def differences(kernel, tensors, options):
    """Of each output: the largest error against float64, as a part of the element, the mean and the least normal number; infinite where NaN are elsewhere."""
    outputs = [t["name"] for t in kernel.family["tensor"] if t["role"] == "output" and tensors[t["name"]] is not None]
    inputs = {n: t.double() if t is not None and t.is_floating_point() else t for n, t in tensors.items() if n not in outputs}
    known = {**inputs, **kernel.family.get("scalars", {}), **kernel.family.get("options", {}), **options}
    expected = kernel.reference(**{name: known[name] for name in inspect.signature(kernel.reference).parameters if name in known})
    found = {}
    for name, wanted in zip(outputs, expected if isinstance(expected, tuple) else (expected,)):
        kind = tensors[name].dtype
        least = torch.finfo(kind).smallest_normal if kind.is_floating_point else 1
        got, wanted = tensors[name].double(), wanted.double()
        error = ((got - wanted).abs() / (wanted.abs() + wanted.abs().nanmean() + least)).nan_to_num(0)
        same = got.shape == wanted.shape and bool((got.isnan() == wanted.isnan()).all())
        found[name] = (error.max().item() if error.numel() else 0.0) if same else math.inf
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
