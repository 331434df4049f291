// Attributes of the device, by the names that kernel files use.
#include "device/cuda/facts.h"

#include <utility>

namespace ak::device::cuda {
namespace {

constexpr std::pair<const char*, CUdevice_attribute> named[] = {
    {"sm_count", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"max_threads", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"shared_per_block", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"registers_per_sm", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"threads_per_sm", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"shared_per_sm", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR}};

int attribute(CUdevice device, CUdevice_attribute which, const Driver& from) {
  int value = 0;
  check(from.cuDeviceGetAttribute(&value, which, device), "ask for an attribute of the device", from);
  return value;
}

/// 90 for 9.0.
int compute_capability(CUdevice device, const Driver& from) {
  return 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, from) +
         attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, from);
}

}  // namespace

Bindings facts(CUdevice device, const Driver& from) {
  Bindings values;
  for (const auto& [name, which] : named) values[name] = attribute(device, which, from);
  values["compute_capability"] = compute_capability(device, from);
  return values;
}

std::string bus_id(CUdevice device, const Driver& from) {
  char id[32] = "";
  check(from.cuDeviceGetPCIBusId(id, sizeof id, device), "ask where the device is", from);
  return id;
}

std::string architecture(CUdevice device, const Driver& from) { return "sm_" + std::to_string(compute_capability(device, from)); }

}  // namespace ak::device::cuda
