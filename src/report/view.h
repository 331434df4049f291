// A run as the reports see it: plain values, gathered once.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "kernel/task.h"
#include "store/run.h"

namespace ak::report {

/// A task and what the journal says of it.
struct TaskView {
  kernel::Task task;
  store::TaskState state;

  /// Medians of the best candidate and of the best baseline, as confirmed where it was, as speedup() is; 0 where there is none.
  double kernel_us() const;
  double baseline_us() const;
  /// Of what would be used in the model: the incumbent's where it beats the best baseline, else the baseline's.
  double best_us() const;
  /// Of the best candidate against the best baseline, as confirmed where it was; below 1 where the baseline is kept, 0 where no candidate
  /// was right.
  double speedup() const;
  std::map<std::string, int64_t> verdicts() const;
  /// What holds the incumbent back: "memory", "compute", "latency"; empty where it is not known.
  std::string bound() const;
  /// A line a kernel of the incumbent, where the device says what they take: "rows: 40 registers, 0 bytes spilled, …".
  std::vector<std::string> kernels() const;
  /// "M=256 N=768 ×25", one a workload binding, joined by "; "; the rest is counted after `most`.
  std::string shapes(size_t most = 3) const;
};

/// Everything that a report is made of.
struct RunView {
  std::string directory;
  store::RunRequest request;
  std::vector<TaskView> tasks;  // by share of time, largest first
  Json verification;            // null where the run was not verified

  int64_t trials() const;
  int64_t kept() const;            // trials
  int64_t kernels_better() const;  // tasks whose best beats the baseline
  /// Whether the task's kernel is in the model, or would be where the run is not verified.
  bool uses(const TaskView& task) const;
  /// Task and reason of each kernel that the model was faster, or right, without.
  std::vector<std::pair<std::string, std::string>> taken_out() const;
  /// The part of verification.json that holds `vs`; null where there is none.
  const Json& end_to_end() const;
};

/// errors: a task.json or verification.json that cannot be read.
RunView view_of(const store::Run& run);

}  // namespace ak::report
