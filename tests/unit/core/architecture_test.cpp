// Which code runs on which processor.
#include "core/architecture.h"

#include <gtest/gtest.h>

namespace ak {
namespace {

const std::string server =
    "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu vme avx sse4_2 avx512f avx2 fma ibrs smep hypervisor bmi2\nbugs\t: "
    "spectre_v1\n\nprocessor\t: 1\nflags\t\t: avx\n";

TEST(Architecture, is_the_machine_and_the_sets_that_a_compiler_uses) {
  EXPECT_EQ(architecture_from("x86_64", server), "x86_64 avx avx2 avx512f bmi2 fma sse4_2");
  EXPECT_EQ(architecture_from("aarch64", "processor : 0\nFeatures\t: fp asimd sve i8mm cpuid\n"), "aarch64 asimd i8mm sve");
  EXPECT_EQ(architecture_from("riscv64", ""), "riscv64");
  EXPECT_EQ(architecture_from("x86_64", "flags"), "x86_64");
}

TEST(Architecture, what_a_smaller_processor_lacks_is_named) {
  EXPECT_EQ(missing_instructions("x86_64 avx avx512f avx512_bf16 fma", "x86_64 avx avx2 fma"), "avx512_bf16 avx512f");
  EXPECT_EQ(missing_instructions("x86_64 avx fma", "aarch64 asimd"), "avx fma x86_64");
}

TEST(Architecture, code_for_a_smaller_processor_runs_on_a_larger_one) {
  EXPECT_EQ(missing_instructions("x86_64 avx fma", architecture_from("x86_64", server)), "");
  EXPECT_EQ(missing_instructions(host_architecture(), host_architecture()), "");
  EXPECT_EQ(missing_instructions("", host_architecture()), "");
}

}  // namespace
}  // namespace ak
