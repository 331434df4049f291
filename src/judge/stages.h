// Which cases a task's candidates go through, stage by stage (docs/formats/judge.md).
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "kernel/task.h"

namespace ak::judge {

struct StageCase {
  int stage = 1;
  Json test_case;          // without a seed
  bool must_hold = false;  // of the workload: a plan whose `require` excludes it does not fit
  int runs = 1;
};

/// The workload binding with most work, which candidates are timed on.
size_t heaviest_workload(const kernel::Task& task);

/// Stage 1: the binding that is timed.
StageCase smoke_case(const kernel::Task& task);
/// Stages 2 to 5 in order.
std::vector<StageCase> later_cases(const kernel::Task& task);

}  // namespace ak::judge
