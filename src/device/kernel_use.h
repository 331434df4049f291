// What a kernel takes of a GPU's multiprocessor.
#pragma once

#include <cstdint>
#include <string>

namespace ak::device {

struct KernelUse {
  std::string kernel;
  int64_t registers = 0;                                      // of a thread
  int64_t local_bytes = 0;                                    // of a thread: spilled registers and arrays that are indexed at run time
  int64_t static_shared_bytes = 0, dynamic_shared_bytes = 0;  // of a block
  int64_t blocks_per_sm = 0;                                  // at the same time
  double occupancy = 0;                                       // threads of these blocks against those that the multiprocessor can hold

  bool operator==(const KernelUse&) const = default;
};

}  // namespace ak::device
