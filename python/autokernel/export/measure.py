"""Calls the exported functions as a user does: are they right, and what do they gain, Python and all?"""

import importlib.util
import sys

import torch

from autokernel import device as devices
from autokernel import fixtures, paired
from autokernel.export.errors import ExportError

ROUNDS = 25
_MAXIMUM_S = 20.0
_BUDGET = 16  # times PyTorch's own error, as the judge allows


def load(directory, name):
    """Import the package in `directory` under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, f"{directory}/__init__.py", submodule_search_locations=[directory])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def measure(package, module):
    """{task: {"speedup", "ci_low", "ci_high", "us", "pytorch_us"}} of every kernel. errors: a kernel that is not called, or is wrong."""
    results = {}
    for function in package.functions:
        for kernel in function.kernels:
            tensors = example(kernel, function)
            results[kernel.name] = _measure(module, function, kernel, tensors)
    return results


def example(kernel, function, seed=0):
    """Random arguments of the sizes and strides that a kernel was made for: {tensor: its value or None}."""
    case = {**kernel.task["workload"][0], "seed": seed}
    made = fixtures.build_inputs(fixtures.Task(kernel.task, function.family), case, torch.device(kernel.device))
    return {tensor["name"]: made.get(tensor["name"]) for tensor in function.tensors}


def _measure(module, function, kernel, tensors):
    dispatch = sys.modules[module.__name__ + "._dispatch"]
    reference = dispatch.REFERENCES[function.name]
    arguments = (tensors, kernel.scalars, kernel.options)
    if dispatch.would_run(function.name, *arguments) != kernel.name:
        raise ExportError(f"the exported function does not call {kernel.name} for the sizes that it was made for")
    with torch.inference_mode():
        _check(kernel, dispatch.run(function.name, *arguments), reference, arguments)
        device = devices.CPU if kernel.device == "cpu" else torch.device(kernel.device)
        samples = paired.interleaved(
            {"exported": lambda: dispatch.run(function.name, *arguments), "pytorch": lambda: reference(*arguments)}, ROUNDS, _MAXIMUM_S, device)
    speedup, low, high = paired.speedup(samples["pytorch"], samples["exported"])
    microseconds = {name: 1e6 * paired.median(values) for name, values in samples.items()}
    return {"speedup": speedup, "ci_low": low, "ci_high": high, "us": microseconds["exported"], "pytorch_us": microseconds["pytorch"]}


def _check(kernel, results, reference, arguments):
    tensors, scalars, options = arguments
    wide = {name: _wide(tensor) for name, tensor in tensors.items()}
    for result, eager, exact in zip(_tuple(results), _tuple(reference(*arguments)), _tuple(reference(wide, scalars, options))):
        ulp = torch.finfo(result.dtype).eps * exact.abs().max()
        allowed = _BUDGET * max((eager.double() - exact).abs().max(), ulp / 2)
        error = (result.double() - exact).abs().max()
        if not error <= allowed:
            raise ExportError(f"the exported {kernel.name} is wrong by {error:.3g}, where {allowed:.3g} is allowed")


def _wide(tensor):
    return tensor.double() if tensor is not None and tensor.is_floating_point() else tensor


def _tuple(results):
    return results if isinstance(results, tuple) else (results,)
