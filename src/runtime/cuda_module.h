// Machine code for a GPU in the context that PyTorch uses there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "kernel/launch_plan.h"

namespace ak::runtime {

/// The context of a device that everybody in the process shares, PyTorch too.
class PrimaryContext {
 public:
  /// `index`: PyTorch's number of the device.
  /// errors: no such device.
  PrimaryContext(int index, const device::cuda::Driver& driver);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  int index() const { return index_; }
  device::cuda::CUdevice device() const { return device_; }
  const device::cuda::Driver& driver() const { return driver_; }

  /// Make it this thread's, and take that back.
  device::cuda::CUresult enter() const noexcept { return driver_.cuCtxPushCurrent(context_); }
  void leave() const noexcept;

 private:
  const device::cuda::Driver& driver_;
  int index_;
  device::cuda::CUdevice device_ = 0;
  device::cuda::CUcontext context_ = nullptr;
};

/// Makes a context this thread's for as long as it lives.
class CurrentContext {
 public:
  explicit CurrentContext(const PrimaryContext& context);
  ~CurrentContext() { context_.leave(); }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const PrimaryContext& context_;
};

/// Lets this thread allocate and load for as long as it lives, although another thread may be capturing a graph.
class BesideCapture {
 public:
  explicit BesideCapture(const device::cuda::Driver& driver);
  ~BesideCapture();
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;

 private:
  const device::cuda::Driver& driver_;
  device::cuda::CUstreamCaptureMode mode_ = device::cuda::CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// Memory of the device. The context outlives it, and is current while it is made.
class DeviceMemory {
 public:
  /// errors: none left. 0 bytes are no memory.
  DeviceMemory(int64_t size_bytes, const PrimaryContext& context);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  device::cuda::CUdeviceptr address() const { return address_; }

 private:
  const PrimaryContext& context_;
  device::cuda::CUdeviceptr address_ = 0;
};

/// Loaded cubins. The context outlives it, and is current while it is made and asked.
class CudaModule {
 public:
  /// errors: an image that the driver refuses.
  CudaModule(const std::vector<std::string>& images, const PrimaryContext& context);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  /// The kernel of a launch, allowed the shared memory and the cluster that the launch asks for.
  /// errors: no such kernel, other parameters than the plan gives, more threads or shared memory than there are, a grid that is too large.
  device::cuda::CUfunction function_for(const kernel::ConcreteLaunch& launch) const;

 private:
  const PrimaryContext& context_;
  const device::cuda::Driver& driver_;
  int64_t shared_per_block_;
  std::vector<device::cuda::CUmodule> modules_;
};

}  // namespace ak::runtime
