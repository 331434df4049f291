// The cubins of a compiled module: one of CUDA C++, one a kernel of Triton.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ak::device::cuda {

/// In the order of ConcreteLaunch::image.
/// errors: it cannot be read. Whether the cubins are whole is for load_module() to say.
std::vector<std::string> read_images(const std::filesystem::path& module);

}  // namespace ak::device::cuda
