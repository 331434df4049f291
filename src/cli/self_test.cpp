// Pairs one after another, each printed as soon as it is judged.
#include "cli/self_test.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/crash_series.h"
#include "cli/toolchain.h"
#include "core/file.h"
#include "judge/self_test.h"

namespace ak::cli {
namespace {

constexpr int compile_threads = 2;

std::string text_of(const Json& line, bool fine) {
  return fmt::format("{} {:<34} {:<70} {:<38} got {:<38} twin {}\n", fine ? "ok  " : "HOLE", line["pair"].get<std::string>(),
                     line["class"].get<std::string>(), line["expected"].get<std::string>(), line["got"].get<std::string>(),
                     line["twin"].get<std::string>());
}

}  // namespace

Exit self_test(const Options& options) {
  if (options.crashes > 0) return crash_series(options);
  const std::string device = self_test_device(options);
  const std::filesystem::path home = home_directory();
  const std::unique_ptr<compile::Compiler> compiler = make_compiler(kernel::parse_backend(device));
  judge::SelfTest suite(home / "playbook" / "self_test", judge::judge_beside_program(), *compiler, judge_opening(device, *compiler));
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
