// Gathers a run's state and verification.json.
#include "report/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/file.h"

namespace ak::report {
namespace {

std::string shape_text(const kernel::Binding& binding) {
  std::string text;
  for (const auto& [name, value] : binding.dims) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return fmt::format("{} ×{}", text, binding.calls);
}

}  // namespace

double TaskView::kernel_us() const {
  if (const store::Confirmation* known = state.confirmed()) return known->kernel_us;
  return state.incumbent ? state.incumbent->median_us : 0;
}

double TaskView::baseline_us() const {
  if (const store::Confirmation* known = state.confirmed()) return known->baseline_us;
  return state.baseline ? state.baseline->best_us : 0;
}

double TaskView::best_us() const { return state.beats_baseline() ? kernel_us() : baseline_us(); }

double TaskView::speedup() const {
  if (!state.baseline || !state.incumbent || state.incumbent->median_us <= 0) return 0;
  if (const store::Confirmation* known = state.confirmed()) return known->speedup;
  return state.baseline->best_us / state.incumbent->median_us;
}

std::string TaskView::bound() const {
  return state.incumbent ? Json::parse(state.incumbent->evidence).value("bound", std::string()) : std::string();
}

std::vector<std::string> TaskView::kernels() const {
  std::vector<std::string> lines;
  if (!state.incumbent) return lines;
  for (const Json& use : Json::parse(state.incumbent->evidence).value("kernels", Json::array()))
    lines.push_back(fmt::format(
        "{}: {} registers, {} bytes of local memory a thread, {} bytes of shared memory a block, {} blocks on a multiprocessor, "
        "occupancy {:.0f} %",
        use.value("kernel", ""), use.value("registers", 0), use.value("local_bytes", 0),
        use.value("static_shared_bytes", int64_t{0}) + use.value("dynamic_shared_bytes", int64_t{0}), use.value("blocks_per_sm", 0),
        100 * use.value("occupancy", 0.0)));
  return lines;
}

std::map<std::string, int64_t> TaskView::verdicts() const {
  std::map<std::string, int64_t> counts;
  for (const store::Trial& trial : state.trials) ++counts[trial.verdict];
  return counts;
}

std::string TaskView::shapes(size_t most) const {
  std::string text;
  for (size_t i = 0; i < std::min(most, task.workload.size()); ++i) text += (text.empty() ? "" : "; ") + shape_text(task.workload[i]);
  if (task.workload.size() > most) text += fmt::format("; {} more", task.workload.size() - most);
  return text;
}

int64_t RunView::trials() const {
  int64_t count = 0;
  for (const TaskView& task : tasks) count += static_cast<int64_t>(task.state.trials.size());
  return count;
}

int64_t RunView::kept() const {
  int64_t count = 0;
  for (const TaskView& task : tasks) {
    count += std::count_if(task.state.trials.begin(), task.state.trials.end(),
                           [](const store::Trial& trial) { return trial.verdict == "kept"; });
  }
  return count;
}

int64_t RunView::kernels_better() const {
  return std::count_if(tasks.begin(), tasks.end(), [](const TaskView& task) { return task.state.beats_baseline(); });
}

bool RunView::uses(const TaskView& task) const {
  if (end_to_end().is_null()) return task.state.beats_baseline();
  const Json replaced = end_to_end().value("replaced", Json::array());
  return std::ranges::any_of(replaced, [&](const Json& each) { return each.is_object() && each.value("task", "") == task.state.id; });
}

std::vector<std::pair<std::string, std::string>> RunView::taken_out() const {
  std::vector<std::pair<std::string, std::string>> kernels;
  if (!end_to_end().is_object()) return kernels;
  for (const Json& each : end_to_end().value("taken_out", Json::array()))
    if (each.is_object()) kernels.emplace_back(each.value("task", ""), each.value("reason", ""));
  return kernels;
}

const Json& RunView::end_to_end() const {
  static const Json none;
  if (!verification.is_object()) return none;
  if (verification.contains("end_to_end")) return verification.at("end_to_end");
  return verification.contains("vs") ? verification : none;
}

RunView view_of(const store::Run& run) {
  RunView view{run.directory().string(), run.request(), {}, nullptr};
  for (const std::string& id : run.task_ids()) view.tasks.push_back({run.task(id), run.state(id)});
  std::stable_sort(view.tasks.begin(), view.tasks.end(),
                   [](const TaskView& left, const TaskView& right) { return left.state.share_percent > right.state.share_percent; });
  if (std::filesystem::exists(run.directory() / "verification.json")) view.verification = read_json(run.directory() / "verification.json");
  return view;
}

}  // namespace ak::report
