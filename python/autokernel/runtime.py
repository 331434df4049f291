"""The kernels that libautokernel.so calls, and the PyTorch operator that it implements."""

import functools
import json

import torch

from autokernel import library

MAX_INPUTS = 8
MAX_OUTPUTS = 2


def match(graph, patterns, families):
    """The regions of `graph` (an object of graph.json) that `patterns` (objects of patterns.json) match."""
    return library.answer(library.loaded().ak_match(json.dumps(graph).encode(), json.dumps(patterns).encode(), families.encode()))["regions"]


def plan(bundle_directory, call):
    """The launches of a bundle's kernel for a call site, every number evaluated for this machine (docs/formats/bundle.md)."""
    return library.answer(library.loaded().ak_plan(bundle_directory.encode(), json.dumps(call).encode()))


def open_instance(bundle_directory, call):
    """Make the kernel of a bundle ready for a call site; returns the number that the operator takes first."""
    register()
    instance = library.loaded().ak_open(bundle_directory.encode(), json.dumps(call, sort_keys=True).encode())
    if instance < 0:
        raise library.failure()
    _specs[instance] = call
    return instance


def calls(instance):
    """How often the instance was called."""
    return library.loaded().ak_calls(instance)


def weights_changed():
    """To be called after weights were overwritten in place (load_state_dict): kernels on GPUs keep what they prepared of them."""
    library.loaded().ak_weights_changed()


def close_instance(instance):
    library.loaded().ak_close(instance)


def operator(inputs, outputs):
    """The overload for a number of tensors."""
    register()
    return getattr(torch.ops.autokernel, _name(inputs, outputs)).default


# --- the operator: schema and fake here, the CPU implementation in libautokernel.so

_specs = {}  # instance -> what it was opened for
_torch_library = None


def _name(inputs, outputs):
    return f"call{inputs}" if outputs == 1 else f"call{inputs}x{outputs}"


@functools.cache
def register():
    """Define torch.ops.autokernel.call1 … call8 and call1x2 … call8x2 once a process."""
    global _torch_library
    _torch_library = torch.library.Library("autokernel", "FRAGMENT")
    for inputs in range(1, MAX_INPUTS + 1):
        for outputs in range(1, MAX_OUTPUTS + 1):
            tensors = ", ".join(f"Tensor a{i}" for i in range(inputs))
            results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
            name = _name(inputs, outputs)
            _torch_library.define(f"{name}(int instance, {tensors}) -> {results}", tags=_tags())
            torch.library.register_fake(f"autokernel::{name}", _fake, lib=_torch_library)
    if library.loaded().ak_register() != 0:
        raise library.failure()


def _tags():
    return (torch.Tag.needs_exact_strides if hasattr(torch.Tag, "needs_exact_strides") else torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)


def _fake(instance, *tensors):
    call = _specs[instance]
    for tensor, expected in zip(tensors, call["inputs"]):
        _check_layout(tensor, expected)
    results = [tensors[0].new_empty_strided(spec["shape"], spec["strides"], dtype=getattr(torch, spec["dtype"])) for spec in call["outputs"]]
    return results[0] if len(results) == 1 else tuple(results)


def _check_layout(tensor, expected):
    """The kernel's plan holds the strides that the normalised graph had; a tracer that sees others must not use it."""
    same = str(tensor.dtype) == f"torch.{expected['dtype']}" and list(tensor.shape) == expected["shape"]
    strides = zip(tensor.shape, tensor.stride(), expected["strides"])
    if not same or (0 not in expected["shape"] and any(size != 1 and stride != wanted for size, stride, wanted in strides)):
        raise library.RuntimeFailure(f"{expected['name']} is {tensor.dtype} {list(tensor.shape)} {tensor.stride()}, the kernel was opened for {expected}")
