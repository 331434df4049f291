// The layouts of a toolkit and of the wheels, each tried in each place.
#include "compile/cuda_toolkit.h"

#include <cstdlib>
#include <optional>

#include "bridge/python.h"
#include "core/error.h"

namespace ak::compile {
namespace {

namespace fs = std::filesystem;

struct Layout {
  const char *libraries, *headers, *cccl;  // below a home; cccl: <nv/target>, which the headers of some versions include
};
constexpr Layout layouts[] = {{"lib64", "include", "include/cccl"},
                              {"lib", "include", "include/cccl"},
                              {"cu13/lib", "cu13/include", "cu13/include/cccl"},
                              {"cuda_nvrtc/lib", "cuda_runtime/include", "cuda_cccl/include"}};
constexpr const char* library_names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

std::optional<CudaToolkit> toolkit_in(const fs::path& home) {
  for (const Layout& layout : layouts) {
    if (!fs::exists(home / layout.headers / "cuda_fp16.h")) continue;
    for (const char* name : library_names) {
      const fs::path library = home / layout.libraries / name;
      if (!fs::exists(library)) continue;
      CudaToolkit toolkit{library, {home / layout.headers}};
      if (fs::exists(home / layout.cccl)) toolkit.include_directories.push_back(home / layout.cccl);
      return toolkit;
    }
  }
  return std::nullopt;
}

}  // namespace

CudaToolkit CudaToolkit::find_in(const std::vector<fs::path>& homes) {
  std::string tried;
  for (const fs::path& home : homes) {
    if (auto toolkit = toolkit_in(home)) return *toolkit;
    tried += (tried.empty() ? "" : ", ") + home.string();
  }
  throw Error("NVRTC and CUDA's headers are in none of: " + tried,
              "install them beside PyTorch (pip install nvidia-cuda-nvrtc nvidia-cuda-runtime), or set AUTOKERNEL_CUDA_HOME to a CUDA "
              "toolkit 12 or 13");
}

CudaToolkit CudaToolkit::find() {
  std::vector<fs::path> homes;
  for (const char* variable : {"AUTOKERNEL_CUDA_HOME", "CUDA_HOME"}) {
    if (const char* home = std::getenv(variable); home != nullptr && *home != '\0') homes.emplace_back(home);
  }
  for (const fs::path& packages : bridge::python_package("nvidia")) homes.push_back(packages);
  homes.emplace_back("/usr/local/cuda");
  return find_in(homes);
}

}  // namespace ak::compile
