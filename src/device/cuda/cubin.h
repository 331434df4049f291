// Machine code for a GPU, looked at before the driver is: it takes an address without a size, and reads on past the end of what is cut off.
#pragma once

#include <string>
#include <string_view>

#include "device/cuda/driver.h"

namespace ak::device::cuda {

/// Why `image` is no whole cubin; empty where it is one.
std::string fault_of(std::string_view image);

/// "sm_90": what a whole cubin was compiled for.
std::string architecture_of(std::string_view image);

/// Load a cubin into the current context.
/// errors: what is no whole cubin, or for another architecture; what the driver refuses.
CUmodule load_module(std::string_view image, const Driver& from = driver());

}  // namespace ak::device::cuda
