// A plan's launch on a device: its kernel, found and checked, and what cuLaunchKernelEx takes.
#pragma once

#include <vector>

#include "device/cuda/driver.h"
#include "device/kernel_use.h"
#include "kernel/launch_plan.h"

namespace ak::device::cuda {

/// The kernel of a launch, allowed the shared memory and the cluster that the launch asks for. The module's context is current.
/// `shared_per_block`: of the device, bytes.
/// errors: no such kernel, other parameters than the plan gives, more threads or shared memory than there are, a grid that is too large.
CUfunction function_for(const kernel::ConcreteLaunch& launch, CUmodule module, int64_t shared_per_block, const Driver& from = driver());

/// The descriptor of a tensor that lies at `address`; all zeros where it has no elements or is absent.
/// errors: an address that is no multiple of 16 bytes; what the driver refuses.
CUtensorMap encode(const kernel::ConcreteTensorMap& map, CUdeviceptr address, const Driver& from = driver());

/// What the kernel of a launch takes of a multiprocessor. `threads_per_sm`: of the device.
KernelUse use_of(const kernel::ConcreteLaunch& launch, CUfunction function, int64_t threads_per_sm, const Driver& from = driver());

/// Without stream and attributes.
CUlaunchConfig config_of(const kernel::ConcreteLaunch& launch);
/// The one that lets a launch overlap with its predecessor comes last.
std::vector<CUlaunchAttribute> attributes_of(const kernel::ConcreteLaunch& launch);

}  // namespace ak::device::cuda
