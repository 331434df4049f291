// The judge of a run: compiles, then has autokernel-judge check and time, cheapest first.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "judge/fixture.h"
#include "judge/judge.h"
#include "judge/judge_process.h"
#include "judge/stages.h"
#include "kernel/launch_plan.h"

namespace ak::judge {

struct JudgeSettings {
  double minimum_gain = 0.01;
  double timing_seconds = 1;                      // of one candidate against its incumbent, at most
  int64_t fixture_bytes = usual_fixture_bytes();  // kept in shared memory for a task
  compile::Limits compile;
};

/// Judges candidates of one task. The order, cheapest first: compile, stage 1, timing against the incumbent, and for what is
/// faster the other stages and once more stage 1 on data that nobody has seen. `evidence.stages` says which stages ran; kept means all
/// five.
class ProcessJudge final : public Judge {
 public:
  /// All references outlive the judge; `process` and `compiler` may be shared by the judges of many tasks.
  ProcessJudge(kernel::Task task, JudgeProcess& process, const compile::Compiler& compiler, FixtureSource& fixtures,
               JudgeSettings settings = {});

  Judgement judge(const Candidate& candidate, const Candidate* incumbent) override;
  Judgement time_again(const Candidate& candidate) override;
  /// Compiles them meanwhile, where the kernels are timed on a device of their own.
  void expect(std::span<const Candidate> candidates) override;

  /// Compile ahead, while nothing is timed; the results wait in the compiler's cache.
  void compile_ahead(std::span<const Candidate> candidates, int threads) const;
  PassingNullCandidates passing_null_candidates() override;

 private:
  std::vector<std::string> null_candidates_of(const Json& test_case);
  compile::Source source_of(const Candidate& candidate, const kernel::Binding& binding) const;
  const kernel::Binding& timed_binding() const { return task_.workload[heaviest_workload(task_)]; }
  /// Nothing where the plan does not fit, which is the candidate's verdict once it is judged.
  std::optional<compile::Source> fitting_source(const Candidate& candidate, const kernel::Binding& binding) const;
  compile::Result compiled(const compile::Source& source);
  /// The module of a candidate for a binding; nothing, and the verdict, where there is none.
  std::optional<std::string> compile(const Candidate& candidate, const kernel::Binding& binding, Judgement& judgement);
  /// Where each binding has a module of its own: those of the later stages, side by side.
  void compile_later_stages(const Candidate& candidate, Judgement& judgement) const;
  /// Nothing where a `require` excludes the binding.
  std::optional<kernel::ConcretePlan> plan(const Candidate& candidate, const kernel::Binding& binding) const;
  /// errors: a `require` excludes the binding, as it may on another device than the one where the candidate passed.
  kernel::ConcretePlan fitting_plan(const Candidate& candidate, const kernel::Binding& binding) const;
  /// The plan as the judge's process takes it, with its module; nothing, and the verdict, where it does not compile.
  std::optional<Json> ready(const Candidate& candidate, const kernel::ConcretePlan& plan, const kernel::Binding& binding,
                            Judgement& judgement);
  Json request(const CaseFixture& fixture) const;
  std::optional<Json> ask(const std::string& verb, const Json& arguments, Judgement& judgement);

  bool check(const Candidate& candidate, const StageCase& stage, bool fresh, Judgement& judgement);
  bool later_stages(const Candidate& candidate, Judgement& judgement);
  bool timing(const Candidate& candidate, const Candidate* incumbent, Judgement& judgement);
  bool compiles(const Candidate& candidate, Judgement& judgement);
  /// Whether a candidate that has passed once still compiles and fits, as it may not with other headers or on another device.
  bool stands(const Candidate& candidate, Judgement& judgement);
  void run(const Candidate& candidate, const Candidate* incumbent, Judgement& judgement);

  kernel::Task task_;
  JudgeProcess& process_;
  const compile::Compiler& compiler_;
  JudgeSettings settings_;
  FixtureCache fixtures_;
  std::map<std::string, std::future<compile::Result>> ahead_;  // by the compiler's key
  std::map<std::string, std::string> modules_;                 // of the candidate being judged, by its source's specification
};

}  // namespace ak::judge
