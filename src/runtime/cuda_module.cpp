// Loads cubins into the context that PyTorch uses.
#include "runtime/cuda_module.h"

#include "core/error.h"
#include "device/cuda/cubin.h"
#include "device/cuda/facts.h"
#include "device/cuda/launch.h"

namespace ak::runtime {

using namespace device::cuda;
using kernel::ConcreteLaunch;

PrimaryContext::PrimaryContext(int index, const Driver& driver) : driver_(driver), index_(index) {
  check(driver.cuDeviceGet(&device_, index), "find the GPU of a kernel", driver);
  check(driver.cuDevicePrimaryCtxRetain(&context_, device_), "use the GPU of a kernel", driver);
}

PrimaryContext::~PrimaryContext() { driver_.cuDevicePrimaryCtxRelease(device_); }

void PrimaryContext::leave() const noexcept {
  CUcontext popped;
  driver_.cuCtxPopCurrent(&popped);
}

CurrentContext::CurrentContext(const PrimaryContext& context) : context_(context) {
  check(context.enter(), "switch to the GPU of a kernel", context.driver());
}

BesideCapture::BesideCapture(const Driver& driver) : driver_(driver) {
  check(driver.cuThreadExchangeStreamCaptureMode(&mode_), "work beside the capture of a graph", driver);
}

BesideCapture::~BesideCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }

DeviceMemory::DeviceMemory(int64_t size_bytes, const PrimaryContext& context) : context_(context) {
  const Driver& driver = context.driver();
  if (size_bytes > 0) check(driver.cuMemAlloc(&address_, static_cast<size_t>(size_bytes)), "allocate prepared weights", driver);
}

DeviceMemory::~DeviceMemory() {
  if (address_ == 0 || context_.enter() != CUDA_SUCCESS) return;  // where the process is ending, the driver has freed all
  context_.driver().cuMemFree(address_);
  context_.leave();
}

CudaModule::CudaModule(const std::vector<std::string>& images, const PrimaryContext& context)
    : context_(context), driver_(context.driver()), shared_per_block_(facts(context.device(), driver_).at("shared_per_block")) {
  for (const std::string& image : images) modules_.push_back(device::cuda::load_module(image, driver_));
}

CudaModule::~CudaModule() {
  if (context_.enter() != CUDA_SUCCESS) return;
  for (const CUmodule module : modules_) driver_.cuModuleUnload(module);
  context_.leave();
}

CUfunction CudaModule::function_for(const ConcreteLaunch& launch) const {
  return device::cuda::function_for(launch, modules_.at(static_cast<size_t>(launch.image)), shared_per_block_, driver_);
}

}  // namespace ak::runtime
