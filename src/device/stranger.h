// Somebody else on a device.
#pragma once

#include <cstdint>
#include <string>

namespace ak::device {

/// A process that uses the device and is not of this run.
struct Stranger {
  int64_t pid = 0;
  std::string name;          // of its program; empty where it is not to be seen
  int64_t memory_bytes = 0;  // of the device; 0: not known
};

}  // namespace ak::device
