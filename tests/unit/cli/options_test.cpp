// What `auto` means, and which devices and backends go together.
#include "cli/options.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "device/cuda/driver.h"

namespace ak::cli {
namespace {

store::RunRequest settled(const std::string& device, const std::string& backend) {
  Options options;
  options.request.model = "module:Class";
  options.request.device = device;
  options.request.backend = backend;
  settle_request(options);
  return options.request;
}

std::string error_of(const std::string& device, const std::string& backend) {
  try {
    settled(device, backend);
    return "";
  } catch (const Error& error) {
    return std::string(error.what()) + " " + error.what_to_do();
  }
}

TEST(Options, the_backend_is_the_devices) {
  EXPECT_EQ(settled("cpu", "auto").backend, "cpu");
  EXPECT_EQ(settled("null", "auto").backend, "cpu");
  EXPECT_EQ(settled("auto", "cpu").device, "cpu");
  EXPECT_NE(error_of("cpu", "cuda").find("use --backend cpu"), std::string::npos);
  EXPECT_NE(error_of("cuda", "cpu").find("use --backend cuda"), std::string::npos);
  EXPECT_NE(error_of("cpu", "triton").find("triton"), std::string::npos);
  EXPECT_NE(error_of("auto", "tpu").find("triton, both"), std::string::npos);
  EXPECT_NE(error_of("tpu", "auto").find("tpu"), std::string::npos);
}

TEST(Options, auto_is_the_gpu_where_there_is_one) {
  const bool gpu = device::cuda::count() > 0;
  EXPECT_EQ(settled("auto", "auto").device, gpu ? "cuda" : "cpu");
  EXPECT_EQ(settled("auto", "auto").backend, gpu ? "cuda" : "cpu");
}

TEST(Options, a_gpu_that_is_not_there_is_an_error_with_a_next_step) {
  if (device::cuda::count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_NE(error_of("cuda", "auto").find("use --device cpu"), std::string::npos);
  EXPECT_NE(error_of("auto", "cuda").find("use --device cpu"), std::string::npos);
}

}  // namespace
}  // namespace ak::cli
