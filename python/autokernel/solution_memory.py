"""Memory that the judge of a Python solution shares with a sandboxed child: one arena a child, in which inputs and outputs lie.

On the CPU the arena is a sealed file in memory, which the child inherits; on CUDA the judge owns an allocation and the child maps it.
"""

import ctypes
import functools
import math
import mmap
import os

import torch

from autokernel.errors import environment_error

ARENA_FD = 5
_ARENA_BYTES = 1 << 40  # of addresses; memory is taken page by page as it is written
_ALIGNMENT = 512
_F_ADD_SEALS, _SEALS = 1033, 1 | 2 | 4  # no more seals, no shrinking, no growing: a child cannot pull the memory from under the judge


# --- descriptions of tensors, as both sides send them


def describe_tensor(tensor):
    """Dtype, shape and strides, as JSON."""
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "strides": list(tensor.stride())}


def span_bytes(description):
    """Bytes from the first to the last element of a description."""
    shape, strides = description["shape"], description["strides"]
    elements = 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    return elements * dtype_of(description).itemsize


def dtype_of(description):
    return getattr(torch, description["dtype"])


def elements_of(description):
    return math.prod(description["shape"])


def place(descriptions, begin=0):
    """(offset of each description in an arena, end)."""
    offsets = []
    for description in descriptions:
        offsets.append(begin)
        begin += -(-span_bytes(description) // _ALIGNMENT) * _ALIGNMENT
    return offsets, begin


def views(arena, descriptions, offsets):
    """Tensors over the bytes of an arena."""
    result = []
    for description, offset in zip(descriptions, offsets):
        flat = arena[offset : offset + span_bytes(description)].view(dtype_of(description))
        result.append(flat.as_strided(description["shape"], description["strides"]))
    return result


# --- arenas


class HostArena:
    """The judge's side on the CPU: hand `fd` down as ARENA_FD."""

    def __init__(self):
        self.fd = os.memfd_create("autokernel-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, _ARENA_BYTES)
        _libc().fcntl(self.fd, _F_ADD_SEALS, _SEALS)
        self.bytes = _map(self.fd)
        self.host_bytes = 0

    def require(self, size_bytes):
        """What a child needs to know to map it."""
        self.host_bytes = max(self.host_bytes, size_bytes)
        return {"kind": "host"}

    def close(self):
        self.bytes = None
        os.close(self.fd)


class CudaArena:
    """The judge's side on a CUDA device: an allocation of the judge's own context."""

    fd = None
    host_bytes = 0

    def __init__(self, device):
        self.device = device
        self.bytes = None
        self.pointer = None

    def require(self, size_bytes):
        """Make it at least this large; what a child needs to know to map it. Views of a smaller one are void."""
        if self.bytes is None or len(self.bytes) < size_bytes:
            self.close()
            pointer = ctypes.c_uint64()
            if _cuda().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(max(size_bytes, 1))):
                raise torch.OutOfMemoryError(f"the device has no {size_bytes / 1e9:.1f} GB for inputs and outputs")
            self.pointer = pointer
            self.bytes = _over(pointer.value, size_bytes, self.device)
        handle = _Handle()
        _check(_cuda().cuIpcGetMemHandle(ctypes.byref(handle), self.pointer), "share memory between processes")
        return {"kind": "cuda", "handle": bytes(handle.reserved).hex(), "bytes": len(self.bytes)}

    def close(self):
        if self.pointer is not None:
            torch.cuda.synchronize(self.device)
            self.bytes = None
            _cuda().cuMemFree_v2(self.pointer)
            self.pointer = None


class MappedArena:
    """The child's side of either."""

    def __init__(self):
        self.bytes = None
        self._known = None

    def map(self, description, device):
        """The arena's bytes as a tensor; the mapping before is given up where it is another."""
        if description == self._known:
            return self.bytes
        if description["kind"] == "host":
            self.bytes = _map(ARENA_FD)
        else:
            pointer = ctypes.c_uint64()
            handle = _Handle.from_buffer_copy(bytes.fromhex(description["handle"]))
            _check(_cuda().cuIpcOpenMemHandle_v2(ctypes.byref(pointer), handle, 1), "map the judge's memory")
            self.bytes = _over(pointer.value, description["bytes"], device)
        self._known = description
        return self.bytes


def _map(fd):
    return torch.frombuffer(mmap.mmap(fd, _ARENA_BYTES), dtype=torch.uint8)


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


class _Pointer:
    def __init__(self, address, size_bytes):
        self.__cuda_array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None}


def _over(address, size_bytes, device):
    return torch.as_tensor(_Pointer(address, size_bytes), device=device)


def _check(result, what):
    if result:
        raise environment_error(f"The CUDA driver cannot {what}: error {result}.")


@functools.cache
def _cuda():
    torch.zeros(1, device="cuda")  # the primary context exists and is current
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def _libc():
    return ctypes.CDLL(None, use_errno=True)
