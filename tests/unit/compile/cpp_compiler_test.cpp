// The system's compiler behind its cache.
#include "compile/cpp_compiler.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"

namespace ak::compile {
namespace {

const std::string source =
    "#include <autokernel/cpu.h>\nvoid fill(int64_t block, int64_t, void*, T* out) { out[block] = "
    "static_cast<T>(static_cast<float>(VALUE)); }\nAK_KERNEL(fill)\n";

class Compiler : public ::testing::Test {
 protected:
  TemporaryDirectory directory{"autokernel-test-"};
  CppCompiler compiler = CppCompiler::find(AK_SOURCE_DIR "/kernels/include", directory.path() / "cache");
};

TEST_F(Compiler, makes_a_module_with_the_kernels_record_and_keeps_it) {
  const Source unit{source, {{"T", "float"}, {"VALUE", "3"}}};
  const Result first = compiler.compile(unit);
  ASSERT_TRUE(first.compiled) << first.log;
  EXPECT_FALSE(first.from_cache);
  void* module = ::dlopen(first.module.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << ::dlerror();
  EXPECT_NE(::dlsym(module, "ak_kernel_fill"), nullptr);
  ::dlclose(module);
  const Result second = compiler.compile(unit);
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.module, first.module);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path() / "cache"), {}), 1);  // nothing else is left behind
}

TEST_F(Compiler, every_macro_counts_for_the_key) {
  const Result a = compiler.compile({source, {{"T", "float"}, {"VALUE", "3"}}}),
               b = compiler.compile({source, {{"T", "ak::bfloat16"}, {"VALUE", "3"}}});
  ASSERT_TRUE(a.compiled && b.compiled) << a.log << b.log;
  EXPECT_NE(a.module, b.module);
}

TEST_F(Compiler, a_feature_that_does_not_work_here_is_refused_even_where_a_module_waits) {
  const Source with{source, {{"T", "float"}, {"VALUE", "3"}}, "a feature"}, without{source, with.macros, {}};
  ASSERT_TRUE(compiler.compile(with).compiled);
  compiler.refuse("feature", "it does not work here");
  const Result refused = compiler.compile(with);
  EXPECT_FALSE(refused.compiled);
  EXPECT_EQ(refused.log, "it does not work here");
  EXPECT_TRUE(compiler.compile(without).compiled);
}

TEST_F(Compiler, an_error_is_a_log_with_readable_paths) {
  const Result result = compiler.compile({"#include <autokernel/cpu.h>\nvoid f() { ak::exp<3>(1); undeclared(); }\n", {}});
  EXPECT_FALSE(result.compiled);
  EXPECT_NE(result.log.find("kernel.cpp:2:"), std::string::npos) << result.log;
  EXPECT_EQ(result.log.find(AK_SOURCE_DIR), std::string::npos) << result.log;
  EXPECT_LT(result.log.size(), 9000u);
}

TEST_F(Compiler, an_undefined_function_does_not_compile) {
  const Result result = compiler.compile({"extern \"C\" void nowhere();\nvoid f() { nowhere(); }\n", {}});
  EXPECT_FALSE(result.compiled);
  EXPECT_NE(result.log.find("nowhere"), std::string::npos);
}

TEST_F(Compiler, a_source_without_end_is_stopped) {
  Limits limits;
  limits.seconds = 2;
  const std::string doubling =
      "template <int depth, int path> struct Tree { static constexpr int size = Tree<depth - 1, 2 * path>::size + Tree<depth - 1, 2 * path "
      "+ 1>::size; };\n"
      "template <int path> struct Tree<0, path> { static constexpr int size = 1; };\nint all = Tree<28, 1>::size;\n";
  const Result result = compiler.compile({doubling, {}}, limits);
  EXPECT_FALSE(result.compiled);
  EXPECT_FALSE(result.log.empty());
}

TEST_F(Compiler, a_source_gets_no_file_but_the_systems_and_our_headers) {
  const TemporaryDirectory elsewhere("autokernel-secret-");
  const std::string file = (elsewhere.path() / "secret").string();
  write_file(file, "int secret;\n");
  const Result own = compiler.compile({"asm(\".incbin \\\"kernel.cpp\\\"\");\n", {}});
  EXPECT_TRUE(own.compiled) << own.log;
  EXPECT_FALSE(compiler.compile({"#include \"" + file + "\"\n", {}}).compiled);
  EXPECT_FALSE(compiler.compile({"asm(\".incbin \\\"" + file + "\\\"\");\n", {}}).compiled);
}

TEST_F(Compiler, many_at_once_keep_their_order) {
  std::vector<Source> sources;
  for (int i = 0; i < 5; ++i) sources.push_back({i == 3 ? "broken" : source, {{"T", "float"}, {"VALUE", std::to_string(i)}}});
  const std::vector<Result> results = compiler.compile(sources, 2);
  ASSERT_EQ(results.size(), 5u);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].compiled, i != 3);
    EXPECT_EQ(results[i].compiled, compiler.compile(sources[i]).from_cache);
  }
}

TEST(CompilerSearch, a_program_that_is_no_compiler_is_an_error_that_names_it) {
  const TemporaryDirectory directory("autokernel-test-");
  for (const std::string program : {"no-such-compiler", "false"}) {
    try {
      CppCompiler::find(AK_SOURCE_DIR "/kernels/include", directory.path(), program);
      FAIL() << program;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(program), std::string::npos);
      EXPECT_FALSE(error.what_to_do().empty());
    }
  }
}

}  // namespace
}  // namespace ak::compile
