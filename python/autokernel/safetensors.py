"""Writes and reads files in safetensors layout: a length, a JSON header, the bytes."""

import ctypes
import functools
import json
import os
import struct

import torch

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_STAGING_BYTES = 32 << 20
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def write(path, tensors, metadata):
    """Write {name: tensor} and {key: text}; a dtype that the layout lacks is stored as raw bytes. Returns the file's size."""
    header, offset, parts = {"__metadata__": metadata}, 0, []
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        stored = tensor if tensor.dtype in _NAMES else tensor.view(torch.uint8)
        size = stored.numel() * stored.element_size()
        header[name] = {"dtype": _NAMES[stored.dtype], "shape": list(stored.shape), "data_offsets": [offset, offset + size]}
        offset += size
        parts.append(stored)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = f"{path}.part{os.getpid()}"
    with open(part, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for stored in parts:
            for data in _pieces(stored):
                file.write(data)
    os.replace(part, path)
    return 8 + len(text) + offset


def read(path):
    """({name: tensor}, metadata) of a file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        body = file.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = torch.frombuffer(bytearray(body[begin:end]), dtype=torch.uint8) if end > begin else torch.empty(0, dtype=torch.uint8)
        tensors[name] = data.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def _pieces(tensor):
    """The bytes of a contiguous tensor, in pieces that are each written before the next is asked for."""
    if tensor.numel() == 0:
        return
    flat = tensor.reshape(-1).view(torch.uint8)
    if flat.device.type == "cpu":
        yield _memory(flat)
        return
    staging = _staging()
    for part in flat.split(len(staging)):
        staged = staging[: len(part)].copy_(part)
        yield _memory(staged)


def _memory(flat):
    """The bytes of a tensor on the CPU, which has to outlive them; without NumPy, which PyTorch does not bring along."""
    return memoryview((ctypes.c_ubyte * flat.numel()).from_address(flat.data_ptr()))


@functools.cache
def _staging():
    """Page-locked memory, through which a device copies several times faster than into any other."""
    return torch.empty(_STAGING_BYTES, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
