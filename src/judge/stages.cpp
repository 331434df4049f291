// Bindings and generators of a task, made into cases.
#include "judge/stages.h"

#include <algorithm>

#include "core/error.h"

namespace ak::judge {
namespace {

constexpr int64_t costly_bytes = 32 << 20;  // a workload above this is too much for every generator of stage 3
constexpr int determinism_runs = 3;

StageCase case_of(int stage, const kernel::Binding& binding, const std::string& generator, bool must_hold, int runs = 1) {
  Json test_case = kernel::to_json(binding);
  test_case.erase("calls");
  test_case["stage"] = stage;
  test_case["generator"] = generator;
  return {stage, std::move(test_case), must_hold, runs};
}

int64_t bytes_of(const kernel::Task& task, const kernel::Binding& binding) { return task.bytes.evaluate(task.names(binding)); }

bool may_ignore(const kernel::Task& task) {
  return std::ranges::any_of(task.tensors, [](const kernel::Tensor& tensor) { return tensor.ignored && !tensor.absent; });
}

const kernel::Binding& stability_binding(const kernel::Task& task) {
  const kernel::Binding& workload = task.workload[heaviest_workload(task)];
  if (task.sweep.empty() || bytes_of(task, workload) <= costly_bytes) return workload;
  return *std::ranges::min_element(task.sweep, {}, [&](const kernel::Binding& binding) { return bytes_of(task, binding); });
}

}  // namespace

size_t heaviest_workload(const kernel::Task& task) {
  AK_CHECK(!task.workload.empty(), "a task has a workload");
  const auto work = [&](const kernel::Binding& binding) {
    return static_cast<double>(binding.calls) * static_cast<double>(bytes_of(task, binding));
  };
  return static_cast<size_t>(std::ranges::max_element(task.workload, {}, work) - task.workload.begin());
}

StageCase smoke_case(const kernel::Task& task) { return case_of(1, task.workload[heaviest_workload(task)], "normal", true); }

std::vector<StageCase> later_cases(const kernel::Task& task) {
  std::vector<StageCase> cases;
  const size_t timed = heaviest_workload(task);
  const bool ignores = may_ignore(task);  // what is timed has nothing to leave out, the rest has
  const std::string usual = ignores ? "some_ignored" : "normal";
  for (size_t i = 0; i < task.workload.size(); ++i) {
    if (i != timed || ignores) cases.push_back(case_of(2, task.workload[i], usual, true));
  }
  for (const kernel::Binding& binding : task.sweep) cases.push_back(case_of(2, binding, usual, false));
  const kernel::Binding& stability = stability_binding(task);
  for (const std::string& generator : task.stability) cases.push_back(case_of(3, stability, generator, false));
  cases.push_back(case_of(4, task.workload[timed], "normal", true, determinism_runs));
  for (const kernel::Binding& binding : task.edges) cases.push_back(case_of(5, binding, usual, false));
  return cases;
}

}  // namespace ak::judge
