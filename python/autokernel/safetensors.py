"""Writes and reads files in safetensors layout: a length, a JSON header, the bytes."""

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
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def write(path, tensors, metadata):
    """Write {name: tensor} and {key: text}; a dtype that the layout lacks is stored as raw bytes. Returns the file's size."""
    header, offset, parts = {"__metadata__": metadata}, 0, []
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        stored = tensor if tensor.dtype in _NAMES else tensor.view(torch.uint8)
        data = _bytes(stored)
        header[name] = {"dtype": _NAMES[stored.dtype], "shape": list(stored.shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = f"{path}.part{os.getpid()}"
    with open(part, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data in parts:
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


def _bytes(tensor):
    if tensor.numel() == 0:
        return b""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
