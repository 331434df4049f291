// Finds PyTorch's C shim in the libtorch that is already loaded.
#include "runtime/torch_shim.h"

#include <dlfcn.h>

#include <string>

#include "core/error.h"

namespace ak::runtime {
namespace {

void* loaded_libtorch() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) throw Error("PyTorch is not loaded in this process", "import torch first");
  return library;
}

void* find(void* library, const char* name) {
  void* function = dlsym(library, name);
  if (function == nullptr) throw Error(std::string("PyTorch's C shim has no ") + name, "use PyTorch 2.11 or newer");
  return function;
}

}  // namespace

TorchShim open_torch_shim() {
  void* library = loaded_libtorch();
  TorchShim shim;
#define AK_TORCH_FIND(name, result, parameters) shim.name = reinterpret_cast<result(*) parameters>(find(library, #name));
  AK_TORCH_SHIM(AK_TORCH_FIND)
  library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) {
    AK_TORCH_CUDA_SHIM(AK_TORCH_FIND)
  }
#undef AK_TORCH_FIND
  return shim;
}

}  // namespace ak::runtime
