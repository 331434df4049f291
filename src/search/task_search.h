// Runs experiments on one task: propose, judge, record, keep or revert.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "judge/judge.h"
#include "search/proposer.h"
#include "search/space.h"
#include "store/run.h"

namespace ak::search {

/// What the device can do at most, as measured. 0: unknown.
struct Ceilings {
  double bytes_per_second = 0, read_bytes_per_second = 0;  // of a copy, what is read and what is written; of a read
  std::map<Dtype, double> flops_per_second;
  double launch_us = 0;  // of a kernel that does nothing
};

/// A candidate's rate against the ceilings.
struct Rate {
  double tflops = 0, percent_of_peak = 0;
};

/// The rate of one call that takes `us`, of the workload's bindings weighted by their calls. The peak is the roofline: the percentage is
/// the larger of those of arithmetic and of memory.
Rate rate_of(const kernel::Task& task, const Ceilings& ceilings, double us);

/// The least time of one call by the ceilings, of arithmetic and of memory, too; 0 where they are unknown.
/// units: microseconds.
double arithmetic_us(const kernel::Task& task, const Ceilings& ceilings);
double roofline_us(const kernel::Task& task, const Ceilings& ceilings);

/// What a call that takes `us` spends its time on: "memory" or "compute", whichever the roofline is of; "latency" where it reaches neither,
/// or where empty launches alone take as long. Empty where the ceilings are unknown.
/// source: below 60 % of both Nsight Compute, too, names latency as the cause.
std::string bound_of(const kernel::Task& task, const Ceilings& ceilings, size_t launches, double us);

struct Settings {
  std::string strategy = "playbook";
  uint64_t seed = 1;
  int highest_tier = 6;
  Bindings device_facts;
  Ceilings ceilings;
};

/// One experiment.
struct Step {
  Proposal proposal;
  judge::Judgement judgement;
  std::optional<store::Trial> trial;  // as recorded; nothing where the environment failed, which is not charged to the candidate
  bool kept() const { return judgement.verdict == judge::Verdict::kept; }
};

/// What came of an edited file.
struct BenchResult {
  std::vector<Step> steps;  // the file's defaults first
  /// The last step that was kept, else the first.
  const Step& result() const;
  bool kept() const { return result().kept(); }
};

/// The experiments on one task of a run. Everything it knows is in the run, so it may be made anew at any time.
class TaskSearch {
 public:
  /// The incumbent (or starter) of the task is read from the run.
  /// errors: an unreadable kernel file; an unknown strategy.
  TaskSearch(store::Run& run, judge::Judge& judge, const std::string& task, Settings settings);

  /// What would be judged next; nothing where every valid point was tried.
  std::optional<Proposal> propose();

  /// Judge and record it. A kept candidate is the new incumbent.
  /// errors: the run cannot be written; the judge cannot be started.
  Step run(const Proposal& proposal);

  /// The loop by hand: judge `kernel_text`, its defaults first, then up to `tune` points of its own space, against the incumbent. Where
  /// none is kept the file to edit is put back to the incumbent; where the environment failed it stays as it is.
  /// errors: `kernel_text` has no valid block (nothing is recorded, the file stays as it is), and as run().
  BenchResult bench_edited(const std::string& kernel_text, const std::string& note, int tune = 0, const std::string& proposer = "hand");

  const kernel::Task& task() const { return task_; }
  /// Of the incumbent's file.
  const Space& space() const { return *space_; }
  const History& history() const { return *history_; }

 private:
  void look_at(kernel::KernelFile file);
  std::vector<kernel::Point> winners_elsewhere() const;
  void announce_what_follows(const Proposal& proposal) const;
  judge::Judgement judge_twice(const judge::Candidate& candidate);
  store::Trial make_trial(const Proposal& proposal, const judge::Judgement& judgement, const judge::Candidate& candidate) const;
  std::optional<Step> tune_once(const std::string& note);

  store::Run& run_;
  judge::Judge& judge_;
  kernel::Task task_;
  Settings settings_;
  std::unique_ptr<Proposer> proposer_;
  std::unique_ptr<Space> space_;
  std::unique_ptr<History> history_;
  std::optional<judge::Candidate> incumbent_;
};

}  // namespace ak::search
