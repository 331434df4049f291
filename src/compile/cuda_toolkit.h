// Where NVRTC and CUDA's headers are: PyTorch's own wheels bring both, so no toolkit needs to be installed.
#pragma once

#include <filesystem>
#include <vector>

namespace ak::compile {

struct CudaToolkit {
  std::filesystem::path nvrtc;                             // libnvrtc.so.13 or .12
  std::vector<std::filesystem::path> include_directories;  // the first has cuda_fp16.h

  /// $AUTOKERNEL_CUDA_HOME, else $CUDA_HOME, else the packages of the worker's Python, else /usr/local/cuda.
  /// errors: none of them has both; the text says where it looked.
  static CudaToolkit find();
  /// The same among `homes` alone: each an installed toolkit, or the folder `nvidia` of a Python's packages.
  static CudaToolkit find_in(const std::vector<std::filesystem::path>& homes);
};

}  // namespace ak::compile
