// The judge as the search sees it: a candidate goes in, a verdict with its evidence comes out.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "judge/verdict.h"
#include "kernel/kernel_file.h"
#include "kernel/task.h"

namespace ak::judge {

/// A kernel file and a point in its space.
struct Candidate {
  kernel::KernelFile file;
  kernel::Point point;
};

/// What the judge found out about one candidate.
struct Judgement {
  Verdict verdict = Verdict::failed_environment;
  std::string rule;                // of cheating
  Json evidence = Json::object();  // docs/formats/judge.md
  double median_us = 0;            // of the candidate, cold, where it was timed
  double peak_memory_mb = 0;
  double compile_seconds = 0, judge_seconds = 0;
};

/// Answers that know nothing and pass all the same (docs/formats/judge.md): there the task's data say too little.
struct PassingNullCandidates {
  std::vector<std::string> timed;       // on the case that is timed
  std::vector<std::string> everywhere;  // those of them that pass with all adversarial values too
};

/// Judges candidates of one task. One at a time; a candidate's death never ends it.
class Judge {
 public:
  virtual ~Judge() = default;

  /// Compile, five stages, then time against `incumbent` where there is one that still compiles and fits; the first correct candidate is
  /// kept.
  /// errors: only a failing environment that cannot be told as failed_environment (the judge cannot be started).
  virtual Judgement judge(const Candidate& candidate, const Candidate* incumbent) = 0;

  /// Candidates that are likely to be judged next, the likeliest first: what takes nothing from a timed kernel may be done beforehand.
  virtual void expect(std::span<const Candidate> /*candidates*/) {}

  /// Time a candidate that has passed once more: `kept`, its cold times in us as evidence `samples_us`, or what it turns out to be.
  /// errors: a failing environment.
  virtual Judgement time_again(const Candidate& candidate) = 0;

  /// None where nothing is compared.
  /// errors: the judge died, or no data can be made.
  virtual PassingNullCandidates passing_null_candidates() { return {}; }
};

}  // namespace ak::judge
