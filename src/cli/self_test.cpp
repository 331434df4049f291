// Pairs one after another, each printed as soon as it is judged.
#include "cli/self_test.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "compile/cpp_compiler.h"
#include "compile/cuda_compiler.h"
#include "core/error.h"
#include "core/file.h"
#include "device/cuda/facts.h"
#include "judge/self_test.h"

namespace ak::cli {
namespace {

constexpr int compile_threads = 2;

std::string text_of(const Json& line, bool fine) {
  return fmt::format("{} {:<34} {:<70} {:<38} got {:<38} twin {}\n", fine ? "ok  " : "HOLE", line["pair"].get<std::string>(),
                     line["class"].get<std::string>(), line["expected"].get<std::string>(), line["got"].get<std::string>(),
                     line["twin"].get<std::string>());
}

std::unique_ptr<compile::Compiler> compiler_for(const std::string& device, const std::filesystem::path& headers) {
  const std::filesystem::path cache = cache_directory() / "compile";
  if (device == "cpu") return std::make_unique<compile::CppCompiler>(compile::CppCompiler::find(headers, cache));
  namespace cuda = ak::device::cuda;
  cuda::CUdevice first = 0;
  cuda::check(cuda::driver().cuDeviceGet(&first, 0), "find the device");
  const int64_t capability = std::stoll(cuda::architecture(first).substr(3));
  return std::make_unique<compile::CudaCompiler>(judge::judge_beside_program(), compile::CudaToolkit::find(), headers, cache,
                                                 compile::cuda_architecture(capability));
}

std::filesystem::path builtin_module(const compile::Compiler& compiler, const std::filesystem::path& source) {
  const compile::Result compiled = compiler.compile({read_file(source), {}});
  if (!compiled.compiled) throw Error("the judge's own kernels do not compile: " + compiled.log);
  return compiled.module;
}

}  // namespace

Exit self_test(const Options& options) {
  const std::string device = options.request.device == "auto" ? "cpu" : options.request.device;
  if (device != "cpu" && device != "cuda") throw Error("the self-test has no device '" + device + "'", "use --device cpu or cuda");
  const std::filesystem::path home = home_directory();
  const std::unique_ptr<compile::Compiler> compiler = compiler_for(device, home / "kernels" / "include");
  Json opening = {{"device", device}};
  if (device == "cuda") opening["builtin"] = builtin_module(*compiler, home / "kernels" / "include" / "judge" / "builtin.cu").string();
  judge::SelfTest suite(home / "playbook" / "self_test", judge::judge_beside_program(), *compiler, std::move(opening));
  suite.compile_ahead(compile_threads);
  size_t caught = 0, honest_passed = 0;
  for (const judge::Pair& pair : suite.pairs()) {
    const judge::PairResult result = suite.run(pair);
    caught += result.caught ? 1 : 0;
    honest_passed += result.honest_passed ? 1 : 0;
    const Json line = judge::to_json(pair, result);
    fmt::print("{}", options.json ? line.dump() + "\n" : text_of(line, result.caught && result.honest_passed));
    std::fflush(stdout);
  }
  const size_t pairs = suite.pairs().size();
  fmt::print("{}\n", nlohmann::ordered_json{{"pairs", pairs}, {"caught", caught}, {"honest_passed", honest_passed}}.dump());
  return caught == pairs && honest_passed == pairs ? Exit::done : Exit::failed;
}

}  // namespace ak::cli
