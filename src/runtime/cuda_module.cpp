// Loads cubins, and checks launches against the kernels in them.
#include "runtime/cuda_module.h"

#include <array>
#include <limits>

#include "core/error.h"
#include "device/cuda/facts.h"

namespace ak::runtime {

using namespace device::cuda;
using kernel::Argument;
using kernel::ConcreteLaunch;

namespace {

constexpr int64_t max_grid[] = {std::numeric_limits<int32_t>::max(), 65535, 65535};  // CUDA C++ programming guide, compute capabilities
constexpr int64_t portable_cluster = 8;                                              // blocks; the same

int64_t product(const std::array<int64_t, 3>& extents) { return extents[0] * extents[1] * extents[2]; }

size_t parameter_bytes(Argument::Kind kind) { return kind == Argument::Kind::real ? sizeof(float) : sizeof(uint64_t); }

}  // namespace

PrimaryContext::PrimaryContext(int index, const Driver& driver) : driver_(driver), index_(index) {
  check(driver.cuDeviceGet(&device_, index), "find the GPU of a kernel", driver);
  check(driver.cuDevicePrimaryCtxRetain(&context_, device_), "use the GPU of a kernel", driver);
}

PrimaryContext::~PrimaryContext() { driver_.cuDevicePrimaryCtxRelease(device_); }

void PrimaryContext::leave() const noexcept {
  CUcontext popped;
  driver_.cuCtxPopCurrent(&popped);
}

CurrentContext::CurrentContext(const PrimaryContext& context) : context_(context) {
  check(context.enter(), "switch to the GPU of a kernel", context.driver());
}

BesideCapture::BesideCapture(const Driver& driver) : driver_(driver) {
  check(driver.cuThreadExchangeStreamCaptureMode(&mode_), "work beside the capture of a graph", driver);
}

BesideCapture::~BesideCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }

DeviceMemory::DeviceMemory(int64_t size_bytes, const PrimaryContext& context) : context_(context) {
  const Driver& driver = context.driver();
  if (size_bytes > 0) check(driver.cuMemAlloc(&address_, static_cast<size_t>(size_bytes)), "allocate prepared weights", driver);
}

DeviceMemory::~DeviceMemory() {
  if (address_ == 0 || context_.enter() != CUDA_SUCCESS) return;  // where the process is ending, the driver has freed all
  context_.driver().cuMemFree(address_);
  context_.leave();
}

CudaModule::CudaModule(const std::string& image, const PrimaryContext& context)
    : context_(context), driver_(context.driver()), shared_per_block_(facts(context.device(), driver_).at("shared_per_block")) {
  check(driver_.cuModuleLoadData(&module_, image.data()), "load a kernel", driver_);
}

CudaModule::~CudaModule() {
  if (context_.enter() != CUDA_SUCCESS) return;
  driver_.cuModuleUnload(module_);
  context_.leave();
}

CUfunction CudaModule::function_for(const ConcreteLaunch& launch) const {
  CUfunction function = nullptr;
  check(driver_.cuModuleGetFunction(&function, module_, launch.kernel.c_str()), ("find kernel " + launch.kernel).c_str(), driver_);
  check_parameters(launch, function);
  check_extents(launch, function);
  allow_shared(launch, function);
  if (product(launch.cluster) > portable_cluster)
    check(driver_.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), "allow a large cluster", driver_);
  return function;
}

void CudaModule::check_parameters(const ConcreteLaunch& launch, CUfunction function) const {
  size_t count = 0, offset = 0, size = 0;
  for (; driver_.cuFuncGetParamInfo(function, count, &offset, &size) == CUDA_SUCCESS; ++count) {
    if (count < launch.arguments.size() && size != parameter_bytes(launch.arguments[count].kind))
      throw Error("argument " + std::to_string(count) + " of " + launch.kernel + " is not of the type that the plan gives");
  }
  if (launch.arguments.size() != count)
    throw Error("the plan gives " + launch.kernel + " " + std::to_string(launch.arguments.size()) + " arguments, it takes " +
                std::to_string(count));
}

void CudaModule::check_extents(const ConcreteLaunch& launch, CUfunction function) const {
  for (size_t i = 0; i < 3; ++i) {
    if (launch.grid[i] > max_grid[i]) throw Error("the grid of " + launch.kernel + " is too large");
    if (launch.cluster[i] < 1 || launch.grid[i] % launch.cluster[i] != 0)
      throw Error("the grid of " + launch.kernel + " is no multiple of its cluster");
    if (launch.block[i] > attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK))
      throw Error("the block of " + launch.kernel + " is too large");
  }
  if (product(launch.block) > attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK))
    throw Error("the block of " + launch.kernel + " is too large");
}

/// Another launch of the same kernel may have asked for more.
void CudaModule::allow_shared(const ConcreteLaunch& launch, CUfunction function) const {
  if (launch.shared_bytes > shared_per_block_ - attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES))
    throw Error(launch.kernel + " asks for more shared memory than a block of this GPU can have");
  if (launch.shared_bytes <= attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)) return;
  check(driver_.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(launch.shared_bytes)),
        "allow a kernel its shared memory", driver_);
}

int CudaModule::attribute(CUfunction function, CUfunction_attribute which) const {
  int value = 0;
  check(driver_.cuFuncGetAttribute(&value, which, function), "ask for an attribute of a kernel", driver_);
  return value;
}

}  // namespace ak::runtime
