"""libautokernel.so through ctypes, and the PyTorch operator that it implements."""

import ctypes
import functools
import glob
import json
import os

import torch

MAX_INPUTS = 8
MAX_OUTPUTS = 2
_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))


class RuntimeFailure(Exception):
    """libautokernel.so is missing, or refused; the text says why."""


def families_directory():
    """Where kernels/<family>/ lie: $AUTOKERNEL_FAMILIES, $AUTOKERNEL_HOME/kernels, beside this package (wheel), or in the checkout."""
    home = os.environ.get("AUTOKERNEL_HOME")
    candidates = (os.environ.get("AUTOKERNEL_FAMILIES"), home and os.path.join(home, "kernels"), os.path.join(_HERE, "kernels"),
                  os.path.join(_ROOT, "kernels"))
    for directory in candidates:
        if directory and os.path.isdir(directory):
            return directory
    raise RuntimeFailure("the directory of kernel families was not found: set AUTOKERNEL_FAMILIES")


def library_path():
    """$AUTOKERNEL_RUNTIME, else beside this file (wheel), else the newest build of the checkout."""
    named = os.environ.get("AUTOKERNEL_RUNTIME")
    if named:
        return named
    built = glob.glob(os.path.join(_ROOT, "build", "[!d]*", "lib", "libautokernel.so"))  # not build/dev: sanitizers cannot be loaded late
    found = glob.glob(os.path.join(_HERE, "libautokernel.so")) + sorted(built, key=os.path.getmtime, reverse=True)
    if not found:
        raise RuntimeFailure("libautokernel.so was not found: build it, or set AUTOKERNEL_RUNTIME to its path")
    return found[0]


@functools.cache
def _library():
    try:
        library = ctypes.CDLL(library_path())
    except OSError as error:
        raise RuntimeFailure(f"libautokernel.so cannot be loaded: {error}") from None
    library.ak_match.argtypes = [ctypes.c_char_p] * 3
    library.ak_match.restype = ctypes.c_void_p
    library.ak_free.argtypes = [ctypes.c_void_p]
    library.ak_free.restype = None
    library.ak_open.argtypes = [ctypes.c_char_p] * 2
    library.ak_open.restype = ctypes.c_int64
    library.ak_plan.argtypes = [ctypes.c_char_p] * 2
    library.ak_plan.restype = ctypes.c_void_p
    library.ak_calls.argtypes = [ctypes.c_int64]
    library.ak_calls.restype = ctypes.c_int64
    library.ak_weights_changed.argtypes = []
    library.ak_weights_changed.restype = None
    library.ak_close.argtypes = [ctypes.c_int64]
    library.ak_close.restype = None
    library.ak_last_error.restype = ctypes.c_char_p
    return library


def _failure():
    return RuntimeFailure(_library().ak_last_error().decode())


def match(graph, patterns, families):
    """The regions of `graph` (an object of graph.json) that `patterns` (objects of patterns.json) match."""
    return _answer(_library().ak_match(json.dumps(graph).encode(), json.dumps(patterns).encode(), families.encode()))["regions"]


def plan(bundle_directory, call):
    """The launches of a bundle's kernel for a call site, every number evaluated for this machine (docs/formats/bundle.md)."""
    return _answer(_library().ak_plan(bundle_directory.encode(), json.dumps(call).encode()))


def _answer(text):
    """The JSON that a function of the library returned, which is freed here."""
    if not text:
        raise _failure()
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        _library().ak_free(text)


def open_instance(bundle_directory, call):
    """Make the kernel of a bundle ready for a call site; returns the number that the operator takes first."""
    register()
    instance = _library().ak_open(bundle_directory.encode(), json.dumps(call, sort_keys=True).encode())
    if instance < 0:
        raise _failure()
    _specs[instance] = call
    return instance


def calls(instance):
    """How often the instance was called."""
    return _library().ak_calls(instance)


def weights_changed():
    """To be called after weights were overwritten in place (load_state_dict): kernels on GPUs keep what they prepared of them."""
    _library().ak_weights_changed()


def close_instance(instance):
    _library().ak_close(instance)


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
    if _library().ak_register() != 0:
        raise _failure()


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
        raise RuntimeFailure(f"{expected['name']} is {tensor.dtype} {list(tensor.shape)} {tensor.stride()}, the kernel was opened for {expected}")
