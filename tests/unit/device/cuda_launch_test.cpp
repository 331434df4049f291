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

}  // namespace
}  // namespace ak::device::cuda
