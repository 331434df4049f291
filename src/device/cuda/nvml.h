// NVIDIA's management library as a list of function pointers, opened at run time: who else is on a GPU. Absent, nobody is known.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/process.h"
#include "device/stranger.h"

namespace ak::device::cuda {

// The library's binary interface, as far as it is used; names and values are its own.
using nvmlReturn_t = int;
using nvmlDevice_t = struct nvmlDevice_st*;
enum : int { NVML_SUCCESS = 0, NVML_ERROR_INSUFFICIENT_SIZE = 7 };
struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;  // bytes; all ones: not known
  unsigned gpuInstanceId, computeInstanceId;
};
static_assert(sizeof(nvmlProcessInfo_t) == 24);

// name, symbol of the library, parameters
#define AK_NVML(X)                                                                                   \
  X(nvmlInit, "nvmlInit_v2", ())                                                                     \
  X(nvmlSystemGetDriverVersion, "nvmlSystemGetDriverVersion", (char*, unsigned))                     \
  X(nvmlDeviceGetHandleByPciBusId, "nvmlDeviceGetHandleByPciBusId_v2", (const char*, nvmlDevice_t*)) \
  X(nvmlDeviceGetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses_v3", (nvmlDevice_t, unsigned*, nvmlProcessInfo_t*))

struct NvmlFunctions {
#define AK_NVML_MEMBER(name, symbol, parameters) nvmlReturn_t(*name) parameters = nullptr;
  AK_NVML(AK_NVML_MEMBER)
#undef AK_NVML_MEMBER
};

/// The library, initialised at the first call; nothing where there is none, or one that lacks a function.
const NvmlFunctions* nvml();

/// One GPU.
class Nvml {
 public:
  /// `bus_id`: as cuDeviceGetPCIBusId gives it. Nothing where the library does not know the device.
  static std::optional<Nvml> open(const std::string& bus_id, const NvmlFunctions* from = nvml());

  /// Processes that have a context on the GPU; none where the library does not say.
  std::vector<Stranger> processes() const;
  std::string driver_version() const;

 private:
  Nvml(const NvmlFunctions& from, nvmlDevice_t device) : from_(&from), device_(device) {}

  const NvmlFunctions* from_;
  nvmlDevice_t device_;
};

/// Of `processes` those that do not descend from `family`. Nobody, where `self` is not among them: then their numbers are those of another
/// namespace, and nothing can be told.
std::vector<Stranger> strangers(const std::vector<Stranger>& processes, pid_t self, pid_t family,
                                const std::function<pid_t(pid_t)>& parent = parent_of);

}  // namespace ak::device::cuda
