// Finds the functions in libnvidia-ml.so.1, and asks them.
#include "device/cuda/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "core/file.h"

namespace ak::device::cuda {
namespace {

constexpr int most_generations = 64;  // between a process and its ancestor

std::optional<NvmlFunctions> open_library() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  NvmlFunctions functions;
  bool whole = true;
#define AK_NVML_FIND(name, symbol, parameters)                                             \
  functions.name = reinterpret_cast<nvmlReturn_t(*) parameters>(::dlsym(library, symbol)); \
  whole = whole && functions.name != nullptr;
  AK_NVML(AK_NVML_FIND)
#undef AK_NVML_FIND
  if (!whole || functions.nvmlInit() != NVML_SUCCESS) return std::nullopt;
  return functions;
}

std::string name_of(unsigned pid) {
  std::string name = read_file_if_exists("/proc/" + std::to_string(pid) + "/comm").value_or("");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

bool descends(pid_t process, pid_t family, const std::function<pid_t(pid_t)>& parent) {
  for (int i = 0; i < most_generations && process > 0; ++i) {
    if (process == family) return true;
    process = parent(process);
  }
  return false;
}

}  // namespace

const NvmlFunctions* nvml() {
  static const std::optional<NvmlFunctions> opened = open_library();
  return opened ? &*opened : nullptr;
}

std::optional<Nvml> Nvml::open(const std::string& bus_id, const NvmlFunctions* from) {
  nvmlDevice_t device = nullptr;
  if (from == nullptr || from->nvmlDeviceGetHandleByPciBusId(bus_id.c_str(), &device) != NVML_SUCCESS) return std::nullopt;
  return Nvml(*from, device);
}

std::vector<Stranger> Nvml::processes() const {
  std::vector<nvmlProcessInfo_t> infos(16);
  nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
  for (int attempt = 0; attempt < 4 && result == NVML_ERROR_INSUFFICIENT_SIZE; ++attempt) {
    auto count = static_cast<unsigned>(infos.size());
    result = from_->nvmlDeviceGetComputeRunningProcesses(device_, &count, infos.data());
    infos.resize(result == NVML_SUCCESS ? count : 2 * std::max<size_t>(count, infos.size()));
  }
  if (result != NVML_SUCCESS) return {};
  std::vector<Stranger> processes;
  for (const nvmlProcessInfo_t& info : infos) {
    const bool known = info.usedGpuMemory != ~0ULL;
    processes.push_back({info.pid, name_of(info.pid), known ? static_cast<int64_t>(info.usedGpuMemory) : 0});
  }
  return processes;
}

std::string Nvml::driver_version() const {
  char version[96] = "";  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE is 80
  return from_->nvmlSystemGetDriverVersion(version, sizeof version) == NVML_SUCCESS ? version : "?";
}

std::vector<Stranger> strangers(const std::vector<Stranger>& processes, pid_t self, pid_t family,
                                const std::function<pid_t(pid_t)>& parent) {
  const auto is_self = [&](const Stranger& process) { return process.pid == self; };
  if (std::ranges::none_of(processes, is_self)) return {};
  std::vector<Stranger> others;
  for (const Stranger& process : processes) {
    if (!is_self(process) && !descends(static_cast<pid_t>(process.pid), family, parent)) others.push_back(process);
  }
  return others;
}

}  // namespace ak::device::cuda
