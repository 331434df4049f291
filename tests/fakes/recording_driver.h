// A CUDA driver without a GPU: it writes down what it is asked for, in order. One device, of compute capability 9.0.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "device/cuda/driver.h"

namespace ak::fakes {

/// The least that is a whole cubin, for "sm_90".
inline std::string cubin() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_ABIVERSION] = 7;
  header.e_machine = EM_CUDA;
  header.e_flags = 0x5a005a;
  header.e_phoff = header.e_shoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  return image + std::string(sizeof(Elf64_Phdr), '\0');
}

struct FakeKernel {
  std::vector<size_t> parameters;  // sizes in bytes
  int static_shared_bytes = 0, max_threads = 1024, dynamic_shared_bytes = 48 << 10, registers = 32, local_bytes = 0;
};

struct RecordedLaunch {
  std::string kernel;
  device::cuda::CUlaunchConfig config;
  std::vector<device::cuda::CUlaunchAttribute> attributes;
  std::vector<uint64_t> arguments;  // of a larger one the first bytes
  std::map<size_t, device::cuda::CUtensorMap> maps;
  std::string context;
};

/// What the fake knows and saw. Function pointers carry no state, so there is one.
struct RecordingDriver {
  std::map<std::string, FakeKernel> kernels;
  std::vector<std::string> log;  // "launch scale", "memset 0x1000 512", "alloc 256", …
  std::vector<RecordedLaunch> launches;
  std::vector<std::string> contexts;  // the stack of this thread
  bool capturing = false;
  int failing_launch = 0;  // the result of the next launches
  unsigned long long next_address = 0x10000000;
  std::map<unsigned long long, size_t> allocated;
  int retained = 0, modules = 0;
};

inline RecordingDriver& recording() {
  static RecordingDriver state;
  return state;
}

/// A fresh recording, and the driver that writes it.
inline const device::cuda::Driver& recording_driver() {
  using namespace device::cuda;
  constexpr int no_context = 201, not_found = CUDA_ERROR_NOT_FOUND, ok = CUDA_SUCCESS;
  recording() = {};
  static Driver fake;
  fake.cuGetErrorString = [](CUresult result, const char** text) {
    *text = result == CUDA_ERROR_NOT_FOUND ? "named symbol not found" : result == no_context ? "invalid device context" : "failed";
    return ok;
  };
  fake.cuDeviceGet = [](CUdevice* device, int index) { return *device = index, index == 0 ? ok : 101; };
  fake.cuDeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice) {
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR            ? 9
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR          ? 0
             : which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 227 << 10
             : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT              ? 132
                                                                              : 1024;
    return ok;
  };
  fake.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    ++recording().retained;
    *context = reinterpret_cast<CUcontext>(uintptr_t{1});
    return ok;
  };
  fake.cuDevicePrimaryCtxRelease = [](CUdevice) { return --recording().retained, ok; };
  fake.cuCtxPushCurrent = [](CUcontext) { return recording().contexts.push_back("primary"), ok; };
  fake.cuCtxPopCurrent = [](CUcontext*) { return recording().contexts.pop_back(), ok; };
  fake.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    recording().log.push_back(*mode == CU_STREAM_CAPTURE_MODE_RELAXED ? "relaxed" : "global");
    *mode = *mode == CU_STREAM_CAPTURE_MODE_RELAXED ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_RELAXED;
    return ok;
  };
  fake.cuModuleLoadData = [](CUmodule* module, const void* image) {
    if (recording().contexts.empty()) return no_context;
    if (std::strncmp(static_cast<const char*>(image),
                     "\x7f"
                     "ELF",
                     4) != 0)
      return int{CUDA_ERROR_INVALID_IMAGE};
    ++recording().modules;
    *module = reinterpret_cast<CUmodule>(uintptr_t{2});
    return ok;
  };
  fake.cuModuleUnload = [](CUmodule) { return recording().contexts.empty() ? no_context : (--recording().modules, ok); };
  fake.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) {
    const auto found = recording().kernels.find(name);
    if (found == recording().kernels.end()) return not_found;
    *function = reinterpret_cast<CUfunction>(&*found);
    return ok;
  };
  using Named = std::pair<const std::string, FakeKernel>;
  fake.cuFuncGetParamInfo = [](CUfunction function, size_t index, size_t* offset, size_t* size) {
    const auto& parameters = reinterpret_cast<Named*>(function)->second.parameters;
    if (index >= parameters.size()) return int{CUDA_ERROR_INVALID_VALUE};
    *offset = 0;
    *size = parameters[index];
    return ok;
  };
  fake.cuFuncGetAttribute = [](int* value, CUfunction_attribute which, CUfunction function) {
    const FakeKernel& kernel = reinterpret_cast<Named*>(function)->second;
    *value = which == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES               ? kernel.static_shared_bytes
             : which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? kernel.dynamic_shared_bytes
             : which == CU_FUNC_ATTRIBUTE_NUM_REGS                      ? kernel.registers
             : which == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES              ? kernel.local_bytes
                                                                        : kernel.max_threads;
    return ok;
  };
  fake.cuFuncSetAttribute = [](CUfunction function, CUfunction_attribute which, int value) {
    auto& [name, kernel] = *reinterpret_cast<Named*>(function);
    if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) kernel.dynamic_shared_bytes = value;
    recording().log.push_back("set " + name + " " + std::to_string(which) + " " + std::to_string(value));
    return ok;
  };
  fake.cuOccupancyMaxActiveBlocksPerMultiprocessor = [](int* blocks, CUfunction function, int threads, size_t dynamic_shared_bytes) {
    const FakeKernel& kernel = reinterpret_cast<Named*>(function)->second;
    const int shared = kernel.static_shared_bytes + static_cast<int>(dynamic_shared_bytes);
    *blocks = std::min({2048 / threads, 65536 / (kernel.registers * threads), (228 << 10) / std::max(shared, 1)});
    return ok;
  };
  fake.cuTensorMapEncodeTiled = [](CUtensorMap* map, CUtensorMapDataType type, uint32_t rank, void* address, const uint64_t* shape,
                                   const uint64_t* strides_bytes, const uint32_t* box, const uint32_t*, CUtensorMapInterleave,
                                   CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    size_t at = 0;  // what the real one hides
    for (const uint64_t value :
         {uint64_t{reinterpret_cast<uintptr_t>(address)}, static_cast<uint64_t>(type), uint64_t{rank}, static_cast<uint64_t>(swizzle)})
      map->opaque[at++] = value;
    for (uint32_t dim = 0; dim < rank; ++dim) map->opaque[at++] = shape[dim];
    for (uint32_t dim = 0; dim + 1 < rank; ++dim) map->opaque[at++] = strides_bytes[dim];
    for (uint32_t dim = 0; dim < rank; ++dim) map->opaque[at++] = box[dim];
    return ok;
  };
  fake.cuMemAlloc = [](CUdeviceptr* address, size_t bytes) {
    if (recording().contexts.empty()) return no_context;
    *address = recording().next_address;
    recording().next_address += 1 << 20;
    recording().allocated[*address] = bytes;
    recording().log.push_back("alloc " + std::to_string(bytes));
    return ok;
  };
  fake.cuMemFree = [](CUdeviceptr address) {
    return recording().contexts.empty() ? no_context : (recording().allocated.erase(address), ok);
  };
  fake.cuMemsetD8Async = [](CUdeviceptr address, unsigned char value, size_t bytes, CUstream) {
    recording().log.push_back("memset " + std::to_string(address) + " " + std::to_string(value) + " " + std::to_string(bytes));
    return ok;
  };
  fake.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = recording().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return ok;
  };
  fake.cuStreamSynchronize = [](CUstream) { return recording().log.push_back("synchronize"), recording().capturing ? 900 : ok; };
  fake.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
    const auto& [name, kernel] = *reinterpret_cast<Named*>(function);
    RecordedLaunch launch{name, *config, {config->attributes, config->attributes + config->attribute_count}, {}, {}, {}};
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      launch.arguments.push_back(0);
      std::memcpy(&launch.arguments.back(), arguments[i], std::min(kernel.parameters[i], sizeof(uint64_t)));
      if (kernel.parameters[i] == sizeof(CUtensorMap)) std::memcpy(&launch.maps[i], arguments[i], sizeof(CUtensorMap));
    }
    launch.context = recording().contexts.empty() ? "none" : recording().contexts.back();
    recording().log.push_back("launch " + name);
    recording().launches.push_back(std::move(launch));
    return recording().failing_launch;
  };
  return fake;
}

}  // namespace ak::fakes
