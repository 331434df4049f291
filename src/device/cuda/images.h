// The cubins of a compiled module: one of CUDA C++, one a kernel of Triton.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ak::device::cuda {

/// In the order of ConcreteLaunch::image.
/// errors: neither a cubin nor a module of Triton's (docs/formats/triton.md).
std::vector<std::string> read_images(const std::filesystem::path& module);

}  // namespace ak::device::cuda
