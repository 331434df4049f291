// Finds the driver's functions in libcuda.so.1.
#include "device/cuda/driver.h"

#include <dlfcn.h>

#include "core/error.h"

namespace ak::device::cuda {
namespace {

void* find(void* library, const char* name) {
  void* function = ::dlsym(library, name);
  if (function == nullptr) throw Error(std::string("the CUDA driver has no ") + name, "install a driver for CUDA 12.4 or newer");
  return function;
}

Driver open_driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error("there is no CUDA driver (libcuda.so.1) on this machine", "install NVIDIA's driver, or use --device cpu");
  Driver driver;
#define AK_CUDA_FIND(name, symbol, parameters) driver.name = reinterpret_cast<CUresult(*) parameters>(find(library, symbol));
  AK_CUDA_DRIVER(AK_CUDA_FIND)
#undef AK_CUDA_FIND
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) {
    const char* text = nullptr;
    driver.cuGetErrorString(result, &text);
    throw Error(std::string("the CUDA driver does not start: ") + (text != nullptr ? text : std::to_string(result)),
                "run nvidia-smi, or use --device cpu");
  }
  return driver;
}

}  // namespace

const Driver& driver() {
  static const Driver opened = open_driver();
  return opened;
}

int count() {
  try {
    int devices = 0;
    return driver().cuDeviceGetCount(&devices) == CUDA_SUCCESS ? devices : 0;
  } catch (const Error&) {
    return 0;
  }
}

std::string text_of(CUresult result, const Driver& from) {
  const char* text = nullptr;
  from.cuGetErrorString(result, &text);
  return text != nullptr ? text : "CUDA error " + std::to_string(result);
}

bool is_fault_of_a_kernel(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED: return true;
    default: return false;
  }
}

void check(CUresult result, const char* what, const Driver& from) {
  if (result != CUDA_SUCCESS) throw Error(std::string("CUDA: cannot ") + what + ": " + text_of(result, from));
}

}  // namespace ak::device::cuda
