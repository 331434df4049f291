# Compiles C++ kernels when they are first called, and calls their blocks on the threads of PyTorch.
import ctypes
import os
import struct
import subprocess
import tempfile

import torch

from autokernel.kernelbench.launcher import Kernel

COMPILER = [os.environ.get("CXX", "c++"), "-O3", "-march=native", "-std=c++20", "-fno-exceptions", "-fno-rtti", "-ffp-contract=fast",
            "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"]

# Workers fetch shares of the grid until none is left.
LOOP = r"""
namespace {
struct Work { const ak::KernelRecord* record; void* const* arguments; char* scratch; int64_t scratch_bytes, blocks, share, next; };
void work(int64_t begin, int64_t end, void* context) {
  Work& all = *static_cast<Work*>(context);
  for (int64_t worker = begin; worker < end; ++worker) {
    char* scratch = all.scratch == nullptr ? nullptr : all.scratch + worker * all.scratch_bytes;
    for (int64_t first; (first = __atomic_fetch_add(&all.next, all.share, __ATOMIC_RELAXED)) < all.blocks;) {
      const int64_t last = first + all.share < all.blocks ? first + all.share : all.blocks;
      for (int64_t block = first; block < last; ++block) all.record->call(block, worker, scratch, all.arguments);
    }
  }
}
}
using ParallelFor = int (*)(int64_t, int64_t, int64_t, void (*)(int64_t, int64_t, void*), void*);
extern "C" void run_blocks(const ak::KernelRecord* record, void* const* arguments, char* scratch, int64_t scratch_bytes, int64_t blocks,
                           int64_t workers, ParallelFor parallel_for) {
  const int64_t share = blocks / (workers * 8) > 1 ? blocks / (workers * 8) : 1;
  Work all = {record, arguments, scratch, scratch_bytes, blocks, share, 0};
  if (workers > 1 && parallel_for != nullptr) parallel_for(0, workers, 1, work, &all);
  else work(0, 1, &all);
}
"""


class CpuKernel(Kernel):
    """`source`: C++ that includes nothing; `workers`: threads that the plan was made for."""

    def __init__(self, source, workers, plan, inputs, outputs, weights):
        super().__init__(plan, inputs, outputs, weights)
        self.source, self.workers, self.library = source, workers, None
        own = [scratch for scratch in plan["scratch"] if scratch["per_worker"]]
        self.worker_bytes = -(-own[0]["bytes"] // 64) * 64 if own else 0
        self.worker_zeroed = bool(own) and own[0]["zeroed"]

    def open(self, device):
        if self.library is not None:
            return
        with tempfile.TemporaryDirectory() as folder:
            source, built = os.path.join(folder, "kernel.cpp"), os.path.join(folder, "kernel.so")
            with open(source, "w") as file:
                file.write(self.source + LOOP)
            macros = [f"-D{name}={value}" for name, value in self.plan["macros"]]
            subprocess.run([*COMPILER, *macros, source, "-o", built, "-lm"], check=True)
            self.library = ctypes.CDLL(built)
        torch_library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        threads = getattr(torch_library, "torch_parallel_for", None)
        self.parallel_for = None if threads is None else ctypes.cast(threads, ctypes.c_void_p)

    def start(self, key, launch, memory):
        values = [(ctypes.c_uint64 * 1)(bits_of(argument, memory)) for argument in launch["arguments"]]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        own = torch.empty(self.worker_bytes * self.workers + 64, dtype=torch.uint8) if self.worker_bytes else None
        if self.worker_zeroed:
            own.zero_()
        begin = None if own is None else ctypes.c_void_p(-(-own.data_ptr() // 64) * 64)
        blocks = launch["grid"][0] * launch["grid"][1] * launch["grid"][2]
        record = ctypes.addressof(ctypes.c_char.in_dll(self.library, "ak_kernel_" + launch["kernel"]))
        self.library.run_blocks(ctypes.c_void_p(record), pointers, begin, ctypes.c_int64(self.worker_bytes), ctypes.c_int64(blocks),
                                ctypes.c_int64(min(self.workers, max(1, blocks))), self.parallel_for)


def bits_of(argument, memory):
    """The bytes of an argument, as the lowest of 64 bits."""
    if "float" in argument:
        return struct.unpack("<I", struct.pack("<f", argument["float"]))[0]
    name = argument.get("tensor", argument.get("scratch"))
    return argument.get("int", 0) & (2**64 - 1) if name is None else memory[name].data_ptr()
