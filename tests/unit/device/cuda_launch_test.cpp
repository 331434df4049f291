// A launch against a driver that only writes down what it is asked for.
#include "device/cuda/launch.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "fakes/recording_driver.h"

namespace ak::device::cuda {
namespace {

using fakes::recording;

kernel::ConcreteLaunch rows_launch() {
  kernel::ConcreteLaunch launch;
  launch.kernel = "rows";
  launch.grid = {64, 1, 1};
  launch.block = {256, 1, 1};
  return launch;
}

class CudaLaunch : public ::testing::Test {
 protected:
  void SetUp() override { recording().kernels["rows"] = {.static_shared_bytes = 1 << 10, .registers = 64, .local_bytes = 16}; }

  CUfunction function(const kernel::ConcreteLaunch& launch) { return function_for(launch, nullptr, 227 << 10, driver_); }

  const Driver& driver_ = fakes::recording_driver();
};

TEST_F(CudaLaunch, the_driver_says_what_a_kernel_takes) {
  kernel::ConcreteLaunch launch = rows_launch();
  launch.shared_bytes = 4 << 10;
  const KernelUse use = use_of(launch, function(launch), 2048, driver_);
  EXPECT_EQ(use, (KernelUse{"rows", 64, 16, 1 << 10, 4 << 10, 4, 0.5}));
  launch.shared_bytes = 199 << 10;
  EXPECT_EQ(use_of(launch, function(launch), 2048, driver_).blocks_per_sm, 1) << "shared memory allows no second block";
}

kernel::ConcreteTensorMap boxes() {
  return {.name = "boxes",
          .tensor = {.kind = kernel::Argument::Kind::tensor, .name = "x"},
          .dtype = Dtype::bfloat16,
          .shape = {7, 100},
          .strides = {128, 1},
          .box = {4, 64},
          .swizzle_bytes = 128};
}

TEST_F(CudaLaunch, a_tensor_map_counts_dims_from_the_fastest) {
  const CUtensorMap map = encode(boxes(), 0x1230, driver_);
  const std::vector<uint64_t> seen(map.opaque, map.opaque + 9);
  EXPECT_EQ(seen, (std::vector<uint64_t>{0x1230, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, CU_TENSOR_MAP_SWIZZLE_128B, 100, 7, 256, 64, 4}));
}

TEST_F(CudaLaunch, a_tensor_map_of_nothing_describes_nothing_and_one_of_anything_needs_its_place) {
  kernel::ConcreteTensorMap map = boxes();
  EXPECT_THROW(encode(map, 0x1238, driver_), Error) << "no multiple of 16";
  map.shape[0] = 0;
  EXPECT_EQ(encode(map, 0x1238, driver_).opaque[0], 0u);
  map = boxes();
  map.tensor.kind = kernel::Argument::Kind::null;
  EXPECT_EQ(encode(map, 0, driver_).opaque[0], 0u);
}

TEST_F(CudaLaunch, a_parameter_for_a_tensor_map_has_128_bytes) {
  kernel::ConcreteLaunch launch = rows_launch();
  launch.arguments = {{.kind = kernel::Argument::Kind::tensor_map, .name = "boxes"}};
  recording().kernels["rows"].parameters = {8};
  EXPECT_THROW(function(launch), Error);
  recording().kernels["rows"].parameters = {128};
  EXPECT_NO_THROW(function(launch));
}

}  // namespace
}  // namespace ak::device::cuda
