// Kernels that the host has itself: for floors, ceilings and the cost of a launch, measured on the same path as a candidate.
#pragma once

#include <cstdint>

namespace ak::device::cpu {

/// kernels/include/autokernel/cpu.h publishes these; version 1 of the layout.
struct KernelParameter {
  int32_t kind, size_bytes;
};
struct KernelRecord {
  int32_t version, parameter_count;
  const KernelParameter* parameters;
  void (*call)(int64_t block, int64_t worker, void* scratch, void* const* arguments);
};

/// Names of the built-in kernels:
/// `builtin.empty`();
/// `builtin.read`(source, bytes): block b reads its 64 KiB;
/// `builtin.copy`, `builtin.stream`(source, read bytes, target, write bytes, blocks): block b reads and writes its share, through or past
/// the caches; `builtin.multiply`(rounds): 2 * 16 * 16 * rounds floating-point operations a block.
const KernelRecord* builtin_kernel(const char* name);

}  // namespace ak::device::cpu
