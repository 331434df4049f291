// The adversarial suite: candidates that cheat or fail in one way each, beside an honest twin, through the real judge.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "judge/process_judge.h"
#include "judge/self_test_fixtures.h"

namespace ak::judge {

/// One file of playbook/self_test/<device>, or what a prelude makes of a shared one: with PLANTED = 1 it is the planted candidate, with 0
/// its honest twin.
struct Pair {
  std::string name, class_name, task;
  Verdict verdict = Verdict::wrong;
  std::string rule;  // of cheating
  kernel::KernelFile file;

  Candidate candidate(bool planted) const;
};

struct PairResult {
  Judgement planted, twin;
  bool caught = false;         // the planted one got exactly the pair's verdict and rule
  bool honest_passed = false;  // the twin was kept
};

/// Runs pairs with a judge process of its own, whose limits suit candidates that never end.
class SelfTest {
 public:
  /// `folder`: suite.toml, and for each device a folder with a file a pair. `opening`: the device, as `open` of the judge takes it.
  /// errors: a malformed suite.
  SelfTest(const std::filesystem::path& folder, std::filesystem::path judge_executable, const compile::Compiler& compiler, Json opening);

  const std::vector<Pair>& pairs() const { return pairs_; }
  const kernel::Task& task_of(const Pair& pair) const { return tasks_.at(pair.task); }
  /// Compile all candidates, so that nothing compiles while one is timed.
  void compile_ahead(int threads);
  /// errors: only what ProcessJudge::judge throws.
  PairResult run(const Pair& pair);
  /// The planted candidate or its twin alone. errors: as above.
  Judgement judge(const Pair& pair, bool planted) { return judge_of(pair.task).judge(pair.candidate(planted), nullptr); }
  /// What `open` of the judge answered, with the levels of the sandbox.
  const Json& opened() { return process_.opened(); }

 private:
  ProcessJudge& judge_of(const std::string& task);

  std::map<std::string, kernel::Task> tasks_;
  std::vector<Pair> pairs_;
  const compile::Compiler& compiler_;
  JudgeProcess process_;
  SelfTestFixtures fixtures_;
  std::map<std::string, ProcessJudge> judges_;
};

/// Whether the planted candidate got exactly what the pair says.
bool caught(const Pair& pair, const Judgement& planted);
/// A verdict with its rule, where it has one: "cheating (remembered answer)".
std::string verdict_text(const Judgement& judgement);
std::string expected_text(const Pair& pair);
/// {"pair", "class", "expected", "got", "twin"}
Json to_json(const Pair& pair, const PairResult& result);

}  // namespace ak::judge
