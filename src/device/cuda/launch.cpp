// Checks a launch against the kernel that it names.
#include "device/cuda/launch.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/error.h"

namespace ak::device::cuda {

using kernel::Argument;
using kernel::ConcreteLaunch;

namespace {

constexpr int64_t max_grid[] = {std::numeric_limits<int32_t>::max(), 65535, 65535};  // CUDA C++ programming guide, compute capabilities
constexpr int64_t portable_cluster = 8;                                              // blocks; the same

int64_t product(const std::array<int64_t, 3>& extents) { return extents[0] * extents[1] * extents[2]; }

static_assert(sizeof(CUtensorMap) == Argument::tensor_map_bytes);

CUtensorMapDataType data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case Dtype::float32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case Dtype::float16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case Dtype::bfloat16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case Dtype::int64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case Dtype::int32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case Dtype::int16: return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case Dtype::int8:
    case Dtype::uint8:
    case Dtype::boolean: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
  AK_CHECK(false, "every dtype has a type in a tensor map");
}

CUtensorMapSwizzle swizzle_of(int64_t bytes) {
  return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
         : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                       : CU_TENSOR_MAP_SWIZZLE_NONE;
}

int attribute(CUfunction function, CUfunction_attribute which, const Driver& from) {
  int value = 0;
  check(from.cuFuncGetAttribute(&value, which, function), "ask for an attribute of a kernel", from);
  return value;
}

void check_parameters(const ConcreteLaunch& launch, CUfunction function, const Driver& from) {
  size_t count = 0, offset = 0, size = 0;
  for (; from.cuFuncGetParamInfo(function, count, &offset, &size) == CUDA_SUCCESS; ++count) {
    if (count < launch.arguments.size() && static_cast<int64_t>(size) != launch.arguments[count].parameter_bytes())
      throw Error("argument " + std::to_string(count) + " of " + launch.kernel + " is not of the type that the plan gives");
  }
  if (launch.arguments.size() != count)
    throw Error("the plan gives " + launch.kernel + " " + std::to_string(launch.arguments.size()) + " arguments, it takes " +
                std::to_string(count));
}

void check_extents(const ConcreteLaunch& launch, CUfunction function, const Driver& from) {
  for (size_t i = 0; i < 3; ++i) {
    if (launch.grid[i] > max_grid[i]) throw Error("the grid of " + launch.kernel + " is too large");
    if (launch.cluster[i] < 1 || launch.grid[i] % launch.cluster[i] != 0)
      throw Error("the grid of " + launch.kernel + " is no multiple of its cluster");
    if (launch.block[i] > attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, from))
      throw Error("the block of " + launch.kernel + " is too large");
  }
  if (product(launch.block) > attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, from))
    throw Error("the block of " + launch.kernel + " is too large");
}

/// Another launch of the same kernel may have asked for more.
void allow_shared(const ConcreteLaunch& launch, CUfunction function, int64_t shared_per_block, const Driver& from) {
  if (launch.shared_bytes > shared_per_block - attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, from))
    throw Error(launch.kernel + " asks for more shared memory than a block of this GPU can have");
  if (launch.shared_bytes <= attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, from)) return;
  check(from.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(launch.shared_bytes)),
        "allow a kernel its shared memory", from);
}

CUlaunchAttribute flag(CUlaunchAttributeID id) {
  CUlaunchAttribute attribute{};
  attribute.id = id;
  attribute.value.flag = 1;
  return attribute;
}

CUlaunchAttribute cluster_of(const ConcreteLaunch& launch) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.cluster = {static_cast<unsigned>(launch.cluster[0]), static_cast<unsigned>(launch.cluster[1]),
                             static_cast<unsigned>(launch.cluster[2])};
  return attribute;
}

}  // namespace

CUfunction function_for(const ConcreteLaunch& launch, CUmodule module, int64_t shared_per_block, const Driver& from) {
  CUfunction function = nullptr;
  check(from.cuModuleGetFunction(&function, module, launch.kernel.c_str()), ("find kernel " + launch.kernel).c_str(), from);
  check_parameters(launch, function, from);
  check_extents(launch, function, from);
  allow_shared(launch, function, shared_per_block, from);
  if (product(launch.cluster) > portable_cluster)
    check(from.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), "allow a large cluster", from);
  return function;
}

CUtensorMap encode(const kernel::ConcreteTensorMap& map, CUdeviceptr address, const Driver& from) {
  CUtensorMap encoded{};
  const bool empty = std::ranges::find(map.shape, 0) != map.shape.end();
  if (map.tensor.kind == Argument::Kind::null || empty) return encoded;
  if (address % kernel::bulk_alignment_bytes != 0)
    throw Error(map.tensor.name + " lies at no multiple of 16 bytes, as its tensor map needs", "give it in contiguous memory of its own");
  // The driver counts dims from the fastest, and has no stride for that one.
  const std::vector<uint64_t> shape(map.shape.rbegin(), map.shape.rend());
  const std::vector<uint32_t> box(map.box.rbegin(), map.box.rend()), steps(shape.size(), 1);
  std::vector<uint64_t> strides_bytes;
  for (size_t dim = map.strides.size() - 1; dim-- > 0;)
    strides_bytes.push_back(static_cast<uint64_t>(map.strides[dim] * size_bytes(map.dtype)));
  check(from.cuTensorMapEncodeTiled(&encoded, data_type(map.dtype), static_cast<uint32_t>(shape.size()), reinterpret_cast<void*>(address),
                                    shape.data(), strides_bytes.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                    swizzle_of(map.swizzle_bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        ("describe " + map.tensor.name + " for bulk copies").c_str(), from);
  return encoded;
}

KernelUse use_of(const ConcreteLaunch& launch, CUfunction function, int64_t threads_per_sm, const Driver& from) {
  const auto threads = static_cast<int>(product(launch.block));
  int blocks_per_sm = 0;
  check(from.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, function, threads, static_cast<size_t>(launch.shared_bytes)),
        "ask for the occupancy of a kernel", from);
  return {.kernel = launch.kernel,
          .registers = attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, from),
          .local_bytes = attribute(function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, from),
          .static_shared_bytes = attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, from),
          .dynamic_shared_bytes = launch.shared_bytes,
          .blocks_per_sm = blocks_per_sm,
          .occupancy = static_cast<double>(blocks_per_sm) * threads / static_cast<double>(threads_per_sm)};
}

std::vector<CUlaunchAttribute> attributes_of(const ConcreteLaunch& launch) {
  std::vector<CUlaunchAttribute> attributes;
  if (launch.cluster != std::array<int64_t, 3>{1, 1, 1}) attributes.push_back(cluster_of(launch));
  if (launch.cooperative) attributes.push_back(flag(CU_LAUNCH_ATTRIBUTE_COOPERATIVE));
  if (launch.overlap) attributes.push_back(flag(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
  return attributes;
}

CUlaunchConfig config_of(const ConcreteLaunch& launch) {
  const auto number = [](int64_t value) { return static_cast<unsigned>(value); };
  return {number(launch.grid[0]),
          number(launch.grid[1]),
          number(launch.grid[2]),
          number(launch.block[0]),
          number(launch.block[1]),
          number(launch.block[2]),
          number(launch.shared_bytes),
          nullptr,
          nullptr,
          0};
}

}  // namespace ak::device::cuda
