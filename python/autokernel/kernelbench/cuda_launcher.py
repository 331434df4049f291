# Launches machine code through the CUDA driver, on PyTorch's current stream and in its context.
import base64
import ctypes
import struct
import zlib

import torch

from autokernel.kernelbench.launcher import Kernel

MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14  # CUfunction_attribute
CLUSTER, COOPERATIVE, OVERLAP = 4, 2, 6  # CUlaunchAttributeID
PORTABLE_CLUSTER_BLOCKS = 8
DEFAULT_DYNAMIC_SHARED_BYTES = 48 << 10
ALIGNED_BYTES = 16  # of addresses that a kernel may take to be aligned


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [("extents", ctypes.c_uint * 6), ("shared_bytes", ctypes.c_uint), ("queue", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("attribute_count", ctypes.c_uint)]


class CudaKernel(Kernel):
    """`cubin`: base64 of the compressed module; `architecture`: the one that it was compiled for, like sm_90."""

    def __init__(self, cubin, architecture, plan, inputs, outputs, weights):
        super().__init__(plan, inputs, outputs, weights)
        self.cubin, self.architecture = cubin, architecture
        self.device, self.launches = None, {}

    def __call__(self, *tensors):
        with torch.cuda.device(tensors[0].device):  # launches go to the current context
            return super().__call__(*tensors)

    def open(self, device):
        """Load the module where the tensors are."""
        if device == self.device:
            return
        found = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
        if found != self.architecture:
            raise RuntimeError(f"this file has machine code for {self.architecture}, and the tensors are on a GPU of {found}")
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.module = ctypes.c_void_p()
        torch.cuda.current_stream(device).synchronize()  # makes the context
        image = zlib.decompress(base64.b64decode(self.cubin))
        self.check(self.driver.cuModuleLoadData(ctypes.byref(self.module), image), "load the kernels")
        self.launches = {(part, number): Launch(self, launch) for part in ("prepare", "launches") for number, launch in enumerate(self.plan[part])}
        self.device, self.prepared_for = device, None

    def start(self, key, launch, memory):
        self.launches[key].run(memory, self.device)

    def check(self, code, what):
        if code != 0:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA error: cannot {what}: {(text.value or b'unknown').decode()}")


class Launch:
    """One launch with its parameters packed: a call fills in the addresses."""

    def __init__(self, kernel, launch):
        self.kernel, self.name = kernel, launch["kernel"]
        self.function = ctypes.c_void_p()
        kernel.check(kernel.driver.cuModuleGetFunction(ctypes.byref(self.function), kernel.module, self.name.encode()), f"find {self.name}")
        attributes = attributes_of(launch)
        self.attributes = (Attribute * len(attributes))(*attributes)
        self.config = Config((ctypes.c_uint * 6)(*launch["grid"], *launch["block"]), launch["shared"], None, self.attributes, len(attributes))
        self.values = (ctypes.c_uint64 * len(launch["arguments"]))(*map(bits_of, launch["arguments"]))
        address = ctypes.addressof(self.values)
        self.pointers = (ctypes.c_void_p * len(self.values))(*(address + 8 * i for i in range(len(self.values))))
        named = [argument.get("tensor", argument.get("scratch")) for argument in launch["arguments"]]
        units = [ALIGNED_BYTES if argument.get("aligned") else 1 for argument in launch["arguments"]]
        self.addresses = [(i, name, unit) for i, (name, unit) in enumerate(zip(named, units)) if name is not None]
        self.blocks = launch["grid"][0] * launch["grid"][1] * launch["grid"][2]
        self.allow(launch)

    def allow(self, launch):
        """Ask for what a kernel does not have unasked."""
        driver, check = self.kernel.driver, self.kernel.check
        if launch["shared"] > DEFAULT_DYNAMIC_SHARED_BYTES:
            check(driver.cuFuncSetAttribute(self.function, MAX_DYNAMIC_SHARED, launch["shared"]), f"give {self.name} its shared memory")
        x, y, z = launch["cluster"]
        if x * y * z > PORTABLE_CLUSTER_BLOCKS:
            check(driver.cuFuncSetAttribute(self.function, NON_PORTABLE_CLUSTER, 1), f"give {self.name} its cluster")

    def run(self, memory, device):
        if self.blocks == 0:
            return
        for i, name, unit in self.addresses:
            self.values[i] = memory[name].data_ptr()
            if self.values[i] % unit != 0:
                raise ValueError(f"{name} does not lie at a multiple of {unit} bytes, which this file needs")
        self.config.queue = torch.cuda.current_stream(device).cuda_stream
        self.kernel.check(self.kernel.driver.cuLaunchKernelEx(ctypes.byref(self.config), self.function, self.pointers, None), f"launch {self.name}")


def attributes_of(launch):
    attributes = []
    if launch["cluster"] != [1, 1, 1]:
        attributes.append(Attribute(CLUSTER, b"", (ctypes.c_uint * 16)(*launch["cluster"])))
    if launch["cooperative"]:
        attributes.append(Attribute(COOPERATIVE, b"", (ctypes.c_uint * 16)(1)))
    if launch["overlap"]:
        attributes.append(Attribute(OVERLAP, b"", (ctypes.c_uint * 16)(1)))
    return attributes


def bits_of(argument):
    """The bytes of a number, as the lowest of 64 bits; 0 for an address, which a call fills in."""
    if "float" in argument:
        return struct.unpack("<I", struct.pack("<f", argument["float"]))[0]
    return argument.get("int", argument.get("int32", 0)) & (2**64 - 1)
