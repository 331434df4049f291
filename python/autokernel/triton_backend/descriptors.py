"""Tensor maps that the host makes: how this version's own launcher encodes one and what it passes for it, asked with numbers that tell who is who."""

import inspect
import types
from unittest import mock

import triton

_ADDRESS, _EXTENT, _STRIDE = 1 << 30, 1 << 20, 1 << 10  # of the tensor that the launcher is asked about
_SWIZZLE_BYTES = {0: 0, 1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle in the CUDA driver's documentation
_ELEMENTS = {  # by Triton's name: CUtensorMapDataType; copies tell signed integers from unsigned ones no more than bits do
    "fp16": {6}, "fp32": {7}, "fp64": {8}, "bf16": {9}, "i8": {0}, "u8": {0}, "i16": {1}, "i32": {2, 3}, "i64": {4, 5},
}
_UNKNOWN = "tensor maps are passed in a way that this program does not know: make the descriptor in the kernel with tl.make_tensor_descriptor"


class DescriptorError(Exception):
    """What a kernel with tensor maps cannot be launched for."""


def is_descriptor(argument):
    return argument["type"].startswith("tensordesc<")


def describe(arguments, metadata):
    """Of each descriptor among the arguments, in order: {"box", "swizzle", "passes"} of docs/formats/triton.md.

    errors: DescriptorError.
    """
    wanted = [argument for argument in arguments if is_descriptor(argument)]
    encoded = list(getattr(metadata, "tensordesc_meta", None) or [])
    if len(encoded) != len(wanted):
        raise DescriptorError(f"Triton {triton.__version__} makes {len(encoded)} tensor maps of {len(wanted)} descriptors; one that no load or store uses is none")
    return [_describe(argument["type"], each) for argument, each in zip(wanted, encoded)]


def _describe(kind, encoding):
    element, block = kind.removeprefix("tensordesc<").removesuffix(">").rstrip("]").split("[")
    rank = block.count(",") + 1
    tensor = types.SimpleNamespace(
        base=types.SimpleNamespace(data_ptr=lambda: _ADDRESS),
        shape=[_EXTENT + i for i in range(rank)],
        strides=[*(_STRIDE + i for i in range(rank - 1)), 1],
        padding="zero",
        round_f32_to_tf32=False,
    )
    passed, (swizzle, _, data_type, box, *_) = _ask(tensor, encoding)
    if data_type not in _ELEMENTS.get(element, ()) or swizzle not in _SWIZZLE_BYTES or len(box) != rank:
        raise DescriptorError(f"Triton {triton.__version__} encodes {kind} as elements of kind {data_type} with swizzle {swizzle} in boxes of {box}, which this program does not")
    return {"box": list(box), "swizzle": _SWIZZLE_BYTES[swizzle], "passes": [_name(value, tensor) for value in passed]}


def _ask(tensor, encoding):
    """(what the launcher passes, what it gives the driver after the address)"""
    from triton.backends.nvidia import driver

    given = []

    def fill(*values):
        given.append(values)
        return types.SimpleNamespace()

    utilities = types.SimpleNamespace(fill_tma_descriptor=fill, fill_tma_descriptor_tiled=fill)
    no_device = types.SimpleNamespace(runtime=types.SimpleNamespace(driver=types.SimpleNamespace(active=types.SimpleNamespace(utils=utilities))))
    own_memory = mock.patch.object(driver, "TmaDescKernelParam", lambda: types.SimpleNamespace(tma_desc_cpu_ptr=lambda: 0), create=True)  # Triton 3.4's is PyTorch's
    try:
        with mock.patch.object(driver, "triton", no_device), own_memory:
            others = len(inspect.signature(driver.make_tensordesc_arg).parameters) - 2
            passed = driver.make_tensordesc_arg(tensor, encoding, *[None] * others)
        (values,) = given
        told = values[values.index(_ADDRESS) + 1 :]
        if [list(told[4]), list(told[5])] != [tensor.shape, tensor.strides]:
            raise DescriptorError(f"Triton {triton.__version__} describes other extents than the tensor's: {_UNKNOWN}")
        return passed, told
    except (AttributeError, AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DescriptorError(f"Triton {triton.__version__}: {type(error).__name__}: {error}: {_UNKNOWN}") from None


def _name(value, tensor):
    if not isinstance(value, int):
        return {"map": True}
    for name, values in (("shape", tensor.shape), ("stride", tensor.strides)):
        if value in values:
            return {name: values.index(value)}
    raise DescriptorError(f"Triton {triton.__version__} passes {value} for a descriptor: {_UNKNOWN}")
