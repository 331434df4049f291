// What expressions of kernel files, and bundles, need to know of a GPU. The driver says it; no table of products.
#pragma once

#include <string>

#include "core/expression.h"
#include "device/cuda/driver.h"

namespace ak::device::cuda {

/// `sm_count`, `max_threads` (of a block), `shared_per_block` (the most that a kernel can opt in to, bytes), `l2_bytes`, `registers_per_sm`
/// (32-bit), `threads_per_sm`, `shared_per_sm` (bytes), `compute_capability` (90 for 9.0).
Bindings facts(CUdevice device, const Driver& from = driver());

/// "0000:17:00.0": by which other libraries know the device.
std::string bus_id(CUdevice device, const Driver& from = driver());

/// "sm_90": machine code made for it runs on the device.
std::string architecture(CUdevice device, const Driver& from = driver());

}  // namespace ak::device::cuda
