// What a GPU says of itself, under the names of kernel files.
#include "device/cuda/facts.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ak::device::cuda {
namespace {

Driver answering() {
  Driver fake;
  fake.cuDeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice device) {
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                     : 1000 * device + which;
    return device < 0 ? 101 : int{CUDA_SUCCESS};
  };
  fake.cuGetErrorString = [](CUresult, const char** text) {
    *text = "invalid device ordinal";
    return int{CUDA_SUCCESS};
  };
  return fake;
}

TEST(CudaFacts, are_the_attributes_of_that_device) {
  const Bindings expected = {{"sm_count", 2016},         {"max_threads", 2001},    {"shared_per_block", 2097}, {"l2_bytes", 2038},
                             {"registers_per_sm", 2082}, {"threads_per_sm", 2039}, {"shared_per_sm", 2081},    {"compute_capability", 90}};
  EXPECT_EQ(facts(2, answering()), expected);
}

TEST(CudaFacts, an_architecture_is_written_as_compilers_take_it) { EXPECT_EQ(architecture(0, answering()), "sm_90"); }

TEST(CudaFacts, the_drivers_refusal_is_an_error_with_its_words) {
  try {
    facts(-1, answering());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "CUDA: cannot ask for an attribute of the device: invalid device ordinal");
  }
}

}  // namespace
}  // namespace ak::device::cuda
