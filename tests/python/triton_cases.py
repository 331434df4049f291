"""Runs every hard case through Triton's interpreter, and saves what comes out: {name: [(point, output)]}, or the error as text.

Usage: TRITON_INTERPRET=1 python triton_cases.py FILE
"""

import pathlib
import sys
import traceback
import warnings

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "python"), str(pathlib.Path(__file__).resolve().parent)]

import torch  # noqa: E402
import triton_plans as plans  # noqa: E402
from hard_cases import CASES, asked  # noqa: E402
from triton_interpreted import LARGEST, points  # noqa: E402

UNTOUCHED = -7.0  # which no right answer holds; some hold NaN


def main(path):
    warnings.simplefilter("ignore")
    found = {}
    for name, (family, settings, inputs, _, _) in CASES.items():
        try:
            found[name] = list(outputs(plans.Kernel(family), settings, inputs))
        except Exception:
            found[name] = traceback.format_exc()
    torch.save(found, path)


def outputs(kernel, settings, inputs):
    """(point, output) at the default point and, of a case that is small enough for the interpreter, at each other that launches something else."""
    dtype, dims, options, scalars = asked(kernel.family, settings, inputs)
    strides = {name: tensor.stride() for name, tensor in inputs.items()}
    small = sum(tensor.numel() for tensor in inputs.values()) <= LARGEST
    seen = []
    for point in [{}, *(points(kernel) if small else ())]:
        names = kernel.names(dims, {**kernel.defaults(), **point}, options, dtype, strides)
        launches = [without_unused(kernel, launch) for launch in kernel.launches(names)]
        if kernel.allows(names) and launches not in seen:
            seen.append(launches)
            tensors = {**inputs, **absent_and_outputs(kernel, inputs, {**dims, **options}, dtype)}
            plans.interpreted(kernel, tensors, dims, options, dtype, point, scalars)
            yield point, next(tensor for name, tensor in tensors.items() if tensor is not None and name not in inputs)


def without_unused(kernel, launch):
    """What a program can tell a launch from another by."""
    parameters = kernel.source.parameters(launch["kernel"])[1]
    return launch["kernel"], launch["grid"], [launch["constexprs"][name] for name in parameters]


def absent_and_outputs(kernel, inputs, names, dtype):
    made = {}
    for tensor in kernel.family["tensor"]:
        if tensor["name"] in inputs:
            continue
        if "optional" in tensor and not plans.evaluate(tensor["optional"], names):
            made[tensor["name"]] = None
        else:
            made[tensor["name"]] = torch.full([plans.evaluate(size, names) for size in tensor["shape"]], UNTOUCHED, dtype=plans.DTYPES[tensor.get("dtype", dtype)])
    return made


if __name__ == "__main__":
    main(*sys.argv[1:])
