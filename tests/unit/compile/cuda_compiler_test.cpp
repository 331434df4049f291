// NVRTC in its child, behind the cache.
#include "compile/cuda_compiler.h"

#include <gtest/gtest.h>

#include <optional>

#include "core/error.h"
#include "core/file.h"

namespace ak::compile {
namespace {

namespace fs = std::filesystem;

const fs::path judge = fs::path(AK_BINARY_DIR) / "bin" / "autokernel-judge";

const std::string source =
    "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\nextern \"C\" __global__ void fill(T* out) { out[threadIdx.x] = "
    "static_cast<T>(static_cast<float>(VALUE)); }\n";

class CudaCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      compiler.emplace(judge, CudaToolkit::find(), AK_SOURCE_DIR "/kernels/include", cache, "sm_90a");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  TemporaryDirectory directory{"autokernel-test-"};
  const fs::path cache = directory.path() / "cache";
  std::optional<CudaCompiler> compiler;
};

TEST_F(CudaCompilerTest, makes_a_cubin_and_keeps_it) {
  const Source unit{source, {{"T", "__nv_bfloat16"}, {"VALUE", "3"}}};
  const Result first = compiler->compile(unit);
  ASSERT_TRUE(first.compiled) << first.log;
  EXPECT_FALSE(first.from_cache);
  EXPECT_EQ(first.module.extension(), ".cubin");
  EXPECT_EQ(read_file(first.module).substr(0, 4), "\177ELF");
  const Result second = compiler->compile(unit);
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.module, first.module);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache), {}), 1);  // nothing else is left behind
}

TEST_F(CudaCompilerTest, macros_and_the_architecture_count_for_the_key) {
  const CudaCompiler other(judge, CudaToolkit::find(), AK_SOURCE_DIR "/kernels/include", cache, "sm_80");
  const Result a = compiler->compile({source, {{"T", "float"}, {"VALUE", "3"}}}),
               b = compiler->compile({source, {{"T", "__half"}, {"VALUE", "3"}}}),
               c = other.compile({source, {{"T", "float"}, {"VALUE", "3"}}});
  ASSERT_TRUE(a.compiled && b.compiled && c.compiled) << a.log << b.log << c.log;
  EXPECT_NE(a.module, b.module);
  EXPECT_NE(a.module, c.module);
}

TEST_F(CudaCompilerTest, an_error_is_a_log_with_the_line_of_the_file) {
  const Result result = compiler->compile({"#include <cuda_fp16.h>\n\nextern \"C\" __global__ void f() { undeclared(); }\n", {}});
  EXPECT_FALSE(result.compiled);
  EXPECT_NE(result.log.find("kernel.cu(3): error"), std::string::npos) << result.log;
  EXPECT_FALSE(fs::exists(result.module));
}

TEST_F(CudaCompilerTest, a_source_without_end_is_stopped) {
  Limits limits;
  limits.seconds = 2;
  const std::string doubling =
      "template <int depth, int path> struct Tree { static constexpr int size = Tree<depth - 1, 2 * path>::size + Tree<depth - 1, 2 * path "
      "+ 1>::size; };\n"
      "template <int path> struct Tree<0, path> { static constexpr int size = 1; };\n__device__ int all = Tree<28, 1>::size;\n";
  const Result result = compiler->compile({doubling, {}}, limits);
  EXPECT_FALSE(result.compiled);
  EXPECT_FALSE(result.log.empty());
}

TEST_F(CudaCompilerTest, a_kernel_includes_no_file_of_the_machine) {
  const Result result = compiler->compile({"#include \"/etc/hostname\"\n", {}});
  EXPECT_FALSE(result.compiled);
  EXPECT_NE(result.log.find("/etc/hostname"), std::string::npos) << result.log;
  EXPECT_NE(result.log.find("cannot open"), std::string::npos) << result.log;
}

TEST(CudaToolkit, is_found_in_the_layouts_of_a_toolkit_and_of_the_wheels) {
  for (const auto& [libraries, headers] :
       {std::pair{"lib64", "include"}, std::pair{"cu13/lib", "cu13/include"}, std::pair{"cuda_nvrtc/lib", "cuda_runtime/include"}}) {
    const TemporaryDirectory home("autokernel-test-");
    write_file(home.path() / headers / "cuda_fp16.h", "");
    EXPECT_THROW(CudaToolkit::find_in({home.path()}), Error);
    write_file(home.path() / libraries / "libnvrtc.so.12", "");
    const CudaToolkit toolkit = CudaToolkit::find_in({"/nowhere", home.path()});
    EXPECT_EQ(toolkit.nvrtc, home.path() / libraries / "libnvrtc.so.12");
    EXPECT_EQ(toolkit.include_directories, std::vector<fs::path>{home.path() / headers});
  }
}

TEST(CudaToolkit, that_is_nowhere_is_an_error_that_says_where_it_was_looked_for) {
  try {
    CudaToolkit::find_in({"/nowhere", "/elsewhere"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere, /elsewhere"), std::string::npos);
    EXPECT_FALSE(error.what_to_do().empty());
  }
}

TEST(CudaTarget, has_the_letter_where_there_are_features_of_one_architecture_alone) {
  EXPECT_EQ(cuda_target("sm_80"), "sm_80");
  EXPECT_EQ(cuda_target("sm_90"), "sm_90a");
}

TEST(Nvrtc, a_library_that_is_none_is_an_error) {
  const TemporaryDirectory directory("autokernel-test-");
  write_file(directory.path() / "libnvrtc.so.13", "none");
  EXPECT_THROW(nvrtc_facts(judge, {directory.path() / "libnvrtc.so.13", {}}), Error);
}

}  // namespace
}  // namespace ak::compile
