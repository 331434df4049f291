// What is no whole cubin never reaches the driver.
#include "device/cuda/cubin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "fakes/recording_driver.h"

namespace ak::device::cuda {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& image, const Driver& driver) {
  try {
    load_module(image, driver);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Cubin, one_that_is_cut_off_anywhere_is_found) {
  const std::string whole = fakes::cubin();
  EXPECT_EQ(fault_of(whole), "");
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(fault_of(std::string_view(whole).substr(0, size)), "") << size;
}

TEST(Cubin, what_else_is_no_cubin) {
  EXPECT_THAT(fault_of(std::string(200, 'x')), HasSubstr("no cubin"));
  std::string program = fakes::cubin();
  program[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
  EXPECT_THAT(fault_of(program), HasSubstr("something else than a GPU"));
  std::string huge = fakes::cubin();
  huge.replace(offsetof(Elf64_Ehdr, e_shoff), 8, 8, '\xff');
  EXPECT_THAT(fault_of(huge), HasSubstr("cut off"));
}

TEST(Cubin, names_the_architecture_that_it_was_made_for) {
  std::string image = fakes::cubin();
  EXPECT_EQ(architecture_of(image), "sm_90");
  image[EI_ABIVERSION] = 8;
  const uint32_t flags = 0x900640a;
  image.replace(offsetof(Elf64_Ehdr, e_flags), sizeof flags, reinterpret_cast<const char*>(&flags), sizeof flags);
  EXPECT_EQ(architecture_of(image), "sm_100");
}

TEST(Cubin, a_refusal_says_why) {
  Driver driver = fakes::recording_driver();
  fakes::recording().contexts.push_back("current");
  EXPECT_EQ(error_of(fakes::cubin(), driver), "");
  EXPECT_THAT(error_of(fakes::cubin().substr(0, 100), driver), HasSubstr("ends after 100 bytes"));
  driver.cuModuleLoadData = [](CUmodule*, const void*) { return int{CUDA_ERROR_NO_BINARY_FOR_GPU}; };
  EXPECT_THAT(error_of(fakes::cubin(), driver), HasSubstr("is for sm_90, which this GPU does not run"));
}

TEST(Results, of_a_device_that_is_gone_are_no_candidates_fault) {
  for (const int fault : {700, 702, 710, 714, 715, 716, 717, 718, 719}) EXPECT_TRUE(is_fault_of_a_kernel(fault)) << fault;
  for (const int other : {0, 2, 46, 100, 214, 220, 400, 600, 709, 911, 999}) EXPECT_FALSE(is_fault_of_a_kernel(other)) << other;
}

}  // namespace
}  // namespace ak::device::cuda
