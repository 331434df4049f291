// Launches a cubin on PyTorch's current stream, by the driver that the machine has.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "host.h"

// Its declaration is guarded by USE_CUDA; the function is in every PyTorch for CUDA.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace autokernel_host {

constexpr int64_t alignment_bytes = 256;  // of scratch: what cuMemAlloc gives

/// The functions of libcuda.so.1 that are used.
struct Driver {
  decltype(&::cuInit) Init;
  decltype(&::cuDeviceGet) DeviceGet;
  decltype(&::cuDevicePrimaryCtxRetain) DevicePrimaryCtxRetain;
  decltype(&::cuCtxPushCurrent) CtxPushCurrent;
  decltype(&::cuCtxPopCurrent) CtxPopCurrent;
  decltype(&::cuThreadExchangeStreamCaptureMode) ThreadExchangeStreamCaptureMode;
  decltype(&::cuModuleLoadData) ModuleLoadData;
  decltype(&::cuModuleGetFunction) ModuleGetFunction;
  decltype(&::cuFuncSetAttribute) FuncSetAttribute;
  decltype(&::cuMemsetD8Async) MemsetD8Async;
  decltype(&::cuLaunchKernelEx) LaunchKernelEx;
  decltype(&::cuGetErrorString) GetErrorString;
};

inline const Driver& driver() {
  static const Driver found = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    STD_TORCH_CHECK(library != nullptr, "libcuda.so.1 cannot be opened");
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      STD_TORCH_CHECK(function != nullptr, "the NVIDIA driver is too old: it has no ", name);
    };
    Driver d{};
    find(d.Init, "cuInit");
    find(d.DeviceGet, "cuDeviceGet");
    find(d.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    find(d.CtxPushCurrent, "cuCtxPushCurrent_v2");
    find(d.CtxPopCurrent, "cuCtxPopCurrent_v2");
    find(d.ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
    find(d.ModuleLoadData, "cuModuleLoadData");
    find(d.ModuleGetFunction, "cuModuleGetFunction");
    find(d.FuncSetAttribute, "cuFuncSetAttribute");
    find(d.MemsetD8Async, "cuMemsetD8Async");
    find(d.LaunchKernelEx, "cuLaunchKernelEx");
    find(d.GetErrorString, "cuGetErrorString");
    d.Init(0);
    return d;
  }();
  return found;
}

inline void check(CUresult result, const char* what, const char* kernel) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().GetErrorString(result, &text);
  STD_TORCH_CHECK(false, kernel, ": cannot ", what, ": ", text == nullptr ? "unknown error" : text);
}

/// A plan's launches on one GPU. Never unloaded: a graph may hold them.
struct Loaded {
  CUcontext context = nullptr;
  std::vector<CUfunction> prepares, launches;
};

/// What a plan keeps between calls: its module on each GPU.
struct CudaState {
  std::mutex mutex;
  std::map<int, Loaded> devices;
};

class CurrentContext {
 public:
  CurrentContext(CUcontext context, const char* kernel) { check(driver().CtxPushCurrent(context), "use the GPU's context", kernel); }
  ~CurrentContext() {
    CUcontext popped;
    driver().CtxPopCurrent(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

inline std::vector<CUfunction> find_functions(CUmodule module, const std::vector<Launch>& launches) {
  std::vector<CUfunction> functions;
  for (const Launch& launch : launches) {
    CUfunction function = nullptr;
    check(driver().ModuleGetFunction(&function, module, launch.kernel), "find the kernel in its module", launch.kernel);
    if (launch.shared_bytes > 0)
      check(driver().FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(launch.shared_bytes)),
            "have its shared memory", launch.kernel);
    if (launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > 8)
      check(driver().FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), "have its cluster", launch.kernel);
    functions.push_back(function);
  }
  return functions;
}

inline const Loaded& loaded_on(const Plan& plan, CudaState& state, int index) {
  const std::lock_guard lock(state.mutex);
  const auto known = state.devices.find(index);
  if (known != state.devices.end()) return known->second;
  CUdevice device = 0;
  Loaded loaded;
  check(driver().DeviceGet(&device, index), "find the GPU", plan.name);
  check(driver().DevicePrimaryCtxRetain(&loaded.context, device), "use the GPU", plan.name);
  const CurrentContext current(loaded.context, plan.name);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // another thread may be capturing a graph
  driver().ThreadExchangeStreamCaptureMode(&mode);
  CUmodule module = nullptr;
  const CUresult result = driver().ModuleLoadData(&module, plan.image);
  driver().ThreadExchangeStreamCaptureMode(&mode);
  check(result, "load its module on this GPU", plan.name);
  loaded.prepares = find_functions(module, plan.prepares);
  loaded.launches = find_functions(module, plan.launches);
  return state.devices.emplace(index, std::move(loaded)).first->second;
}

/// Buffers in one piece of memory of PyTorch's caching allocator, which orders its reuse by stream.
struct Memory {
  std::vector<CUdeviceptr> addresses;
  std::vector<Tensor> owner;

  Memory(const std::vector<Scratch>& wanted, const Tensor& beside, CUstream stream, const char* kernel) {
    int64_t bytes = 0;
    for (const Scratch& each : wanted) bytes += (each.bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
    if (bytes == 0) return;
    owner.push_back(empty({"scratch", ScalarType::Byte, {bytes}, {1}}, beside));
    auto address = reinterpret_cast<CUdeviceptr>(owner[0].data_ptr());
    for (const Scratch& each : wanted) {
      addresses.push_back(address);
      if (each.zeroed) check(driver().MemsetD8Async(address, 0, static_cast<size_t>(each.bytes), stream), "zero scratch", kernel);
      address += static_cast<CUdeviceptr>((each.bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes);
    }
  }
};

inline void launch_kernel(const Launch& launch, CUfunction function, const std::vector<void*>& tensors, const Memory& scratch,
                          const Memory& prepared, bool may_overlap, CUstream stream) {
  if (launch.blocks() == 0) return;
  std::vector<uint64_t> values;
  for (const Argument& argument : launch.arguments) {
    const auto index = static_cast<size_t>(argument.integer_or_index);
    switch (argument.kind) {
      case Argument::scratch: values.push_back(scratch.addresses[index]); break;
      case Argument::prepared: values.push_back(prepared.addresses[index]); break;
      default: values.push_back(value_of(argument, tensors));
    }
  }
  std::vector<void*> arguments;
  for (uint64_t& value : values) arguments.push_back(&value);

  CUlaunchAttribute attributes[3] = {};
  unsigned count = 0;
  if (launch.cooperative) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count++].value.cooperative = 1;
  }
  if (launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > 1) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count++].value.clusterDim = {static_cast<unsigned>(launch.cluster[0]), static_cast<unsigned>(launch.cluster[1]),
                                            static_cast<unsigned>(launch.cluster[2])};
  }
  if (launch.overlap && may_overlap) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(launch.grid[0]);
  config.gridDimY = static_cast<unsigned>(launch.grid[1]);
  config.gridDimZ = static_cast<unsigned>(launch.grid[2]);
  config.blockDimX = static_cast<unsigned>(launch.block[0]);
  config.blockDimY = static_cast<unsigned>(launch.block[1]);
  config.blockDimZ = static_cast<unsigned>(launch.block[2]);
  config.sharedMemBytes = static_cast<unsigned>(launch.shared_bytes);
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check(driver().LaunchKernelEx(&config, function, arguments.data(), nullptr), "launch", launch.kernel);
}

/// Weights are prepared in each call: nothing here can tell that they were overwritten in place.
inline void call_on_cuda(const Plan& plan, CudaState& state, const std::vector<Tensor>& inputs, const std::vector<void*>& tensors) {
  const int index = inputs[0].get_device_index();
  for (const Tensor& input : inputs)
    STD_TORCH_CHECK(input.get_device_index() == index, plan.name, ": its inputs are on several GPUs");
  void* current_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(index, &current_stream) == 0, "PyTorch did not name its current stream");
  const auto stream = static_cast<CUstream>(current_stream);
  const Loaded& loaded = loaded_on(plan, state, index);
  const CurrentContext current(loaded.context, plan.name);
  const Memory scratch(plan.scratch, inputs[0], stream, plan.name), prepared(plan.prepared, inputs[0], stream, plan.name);
  for (size_t i = 0; i < plan.prepares.size(); ++i)
    launch_kernel(plan.prepares[i], loaded.prepares[i], tensors, scratch, prepared, true, stream);
  for (size_t i = 0; i < plan.launches.size(); ++i)
    launch_kernel(plan.launches[i], loaded.launches[i], tensors, scratch, prepared, i > 0 || plan.prepares.empty(), stream);
}

}  // namespace autokernel_host
