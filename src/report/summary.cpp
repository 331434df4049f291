// Tables of text, and the final JSON line.
#include "report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/text.h"

namespace ak::report {
namespace {

Json task_json(const RunView& run, const TaskView& view) {
  const store::TaskState& state = view.state;
  Json shapes = Json::array();
  for (const kernel::Binding& binding : view.task.workload) shapes.push_back({{"dims", binding.dims}, {"calls", binding.calls}});
  Json task = {{"task", state.id},
               {"family", state.family},
               {"backend", kernel::name_of(state.backend)},
               {"shapes", shapes},
               {"share_percent", state.share_percent},
               {"speedup_vs_best_baseline", view.speedup()},
               {"best_us", view.best_us()},
               {"kept", state.beats_baseline()},
               {"used", run.uses(view)},
               {"trials", state.trials.size()},
               {"verdicts", view.verdicts()},
               {"baseline", nullptr}};
  if (state.baseline) {
    task["baseline"] = {{"kind", state.baseline->best_kind},
                        {"us", view.baseline_us()},
                        {"eager_us", state.baseline->eager_us},
                        {"floor_us", state.baseline->floor_us}};
  }
  if (state.incumbent) {
    task["candidate_us"] = view.kernel_us();
    task["point"] = state.incumbent->point;
  }
  if (state.moved_on) task["moved_on"] = *state.moved_on;
  return task;
}

/// "17: 9 ✓ 7 · 1 ✗": tried, kept, slower, failed.
std::string verdict_counts(const TaskView& view) {
  std::map<std::string_view, int64_t> marks;
  for (const auto& [verdict, count] : view.verdicts()) marks[mark_of(verdict)] += count;
  std::string text = fmt::format("{}", view.state.trials.size());
  for (const std::string_view mark : {"✓", "·", "✗"}) {
    if (marks[mark] > 0) text += fmt::format("{} {} {}", text.find(':') == std::string::npos ? ":" : "", marks[mark], mark);
  }
  return text;
}

/// A table whose last column takes what width is left.
class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;
  };
  Table(std::vector<Column> table_columns, size_t width) : columns_(std::move(table_columns)), width_(width) {}

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string text(const Paint& paint) const {
    std::vector<std::string> titles;
    for (const Column& column : columns_) titles.push_back(column.title);
    const auto widths = column_widths(titles);
    std::string result = paint.dim(line(titles, widths)) + "\n";
    for (const auto& row : rows_) result += line(row, widths) + "\n";
    return result;
  }

 private:
  std::vector<size_t> column_widths(const std::vector<std::string>& titles) const {
    std::vector<size_t> widths;
    for (const std::string& title : titles) widths.push_back(columns(title));
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
    }
    size_t used = 0;
    for (size_t i = 0; i + 1 < widths.size(); ++i) used += widths[i] + 2;
    widths.back() = std::min(widths.back(), width_ > used + 8 ? width_ - used : 8);
    return widths;
  }

  std::string line(const std::vector<std::string>& cells, const std::vector<size_t>& widths) const {
    std::string result;
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool last = i + 1 == cells.size();
      result += columns_[i].right ? fit_right(cells[i], widths[i]) : last ? cut(cells[i], widths[i]) : fit(cells[i], widths[i]);
      if (!last) result += "  ";
    }
    return result;
  }

  std::vector<Column> columns_;
  size_t width_;
  std::vector<std::vector<std::string>> rows_;
};

std::string task_table(const RunView& run, size_t width, const Paint& paint) {
  Table table(
      {{"task"}, {"share", true}, {"baseline", true}, {"", false}, {"best", true}, {"speed-up", true}, {"used"}, {"tried"}, {"shapes"}},
      width);
  for (const TaskView& view : run.tasks) {
    const bool better = view.state.beats_baseline();
    const std::string baseline = view.state.baseline ? time_text(view.baseline_us()) : "–";
    const std::string candidate = view.state.incumbent ? time_text(view.kernel_us()) : "–";
    const std::string factor = factor_text(view.speedup());
    table.add({view.state.id, fmt::format("{:.1f} %", view.state.share_percent), baseline,
               view.state.baseline ? view.state.baseline->best_kind : "", candidate, better ? paint.good(factor) : paint.dim(factor),
               run.uses(view) ? paint.good("ours") : paint.dim("baseline"), verdict_counts(view), view.shapes(1)});
  }
  return table.text(paint);
}

/// Which of a region's two backends is faster, where the run had both.
std::string backends_text(const RunView& run) {
  std::map<std::string, std::vector<const TaskView*>> regions;  // what their ids have in common
  for (const TaskView& view : run.tasks) {
    if (run.request.backend == "both" && view.state.incumbent) regions[view.state.id.substr(0, view.state.id.find('.'))].push_back(&view);
  }
  std::string text;
  for (const auto& [region, views] : regions) {
    if (views.size() < 2) continue;
    const auto [fast, slow] = std::ranges::minmax(views, {}, [](const TaskView* view) { return view->state.incumbent->median_us; });
    text += fmt::format("{}: {} is {:.3f}x as fast as {}\n", region, kernel::name_of(fast->state.backend),
                        slow->state.incumbent->median_us / fast->state.incumbent->median_us, kernel::name_of(slow->state.backend));
  }
  return text.empty() ? text : text + "\n";
}

std::string replaced_text(const Json& end_to_end) {
  std::string text;
  for (const Json& replaced : end_to_end.value("replaced", Json::array())) {
    if (!replaced.is_object()) continue;
    text += fmt::format("{}{} ×{:.0f}", text.empty() ? "" : ", ", replaced.value("task", "?"), number_or_zero(replaced, "calls"));
  }
  return text.empty() ? "nothing" : text;
}

/// A line for each kernel that was put in and taken out again.
std::string taken_out_text(const RunView& run) {
  std::string text;
  for (const auto& [task, reason] : run.taken_out()) text += fmt::format("taken out: {}: {}\n", task, reason);
  return text;
}

std::string end_to_end_table(const RunView& run, size_t width, const Paint& paint) {
  const auto rows = comparisons(run);
  if (rows.empty()) return paint.dim("Not verified in the model yet.") + "\n";
  Table table({{"the model against"}, {"speed-up", true}, {"95 % interval"}}, width);
  for (const Comparison& row : rows) {
    const std::string factor = fmt::format("{:.3f}x", row.speedup);
    table.add({row.name, row.ci_low > 1 ? paint.good(factor) : factor, fmt::format("{:.3f} to {:.3f}", row.ci_low, row.ci_high)});
  }
  const Json& end_to_end = run.end_to_end();
  const std::string rest = end_to_end.value("rest", std::string("inductor"));
  return table.text(paint) +
         fmt::format("what is not replaced runs by {}; error over eager's error: {:.2f} in the maximum, {:.2f} in the norm\nreplaced: {}\n",
                     rest, number_or_zero(end_to_end, "max_error_over_eager_error"),
                     number_or_zero(end_to_end, "norm_error_over_eager_error"), replaced_text(end_to_end)) +
         taken_out_text(run);
}

}  // namespace

double number_or_zero(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::vector<Comparison> comparisons(const RunView& run) {
  const Json vs = run.end_to_end().is_object() ? run.end_to_end().value("vs", Json::object()) : Json::object();
  std::vector<Comparison> result;
  const auto add = [&](const std::string& name, const Json& entry) {
    if (!entry.is_object() || number_or_zero(entry, "speedup") <= 0) return;
    result.push_back({name, number_or_zero(entry, "speedup"), number_or_zero(entry, "ci_low"), number_or_zero(entry, "ci_high"),
                      number_or_zero(entry, "median_us")});
  };
  const std::vector<std::string> first = {"eager", "torch.compile", "replacement_off"};
  for (const std::string& name : first) {
    if (vs.contains(name)) add(name, vs.at(name));
  }
  for (const auto& [name, entry] : vs.items()) {
    if (std::find(first.begin(), first.end(), name) == first.end()) add(name, entry);
  }
  return result;
}

Json final_json(const RunView& run) {
  Json tasks = Json::array();
  for (const TaskView& task : run.tasks) tasks.push_back(task_json(run, task));
  return {{"run_dir", run.directory},      {"device", run.request.device}, {"trials", run.trials()},
          {"kept", run.kernels_better()},  {"kept_trials", run.kept()},    {"tasks", tasks},
          {"end_to_end", run.end_to_end()}};
}

std::string summary_text(const RunView& run, size_t width, bool colour) {
  const Paint paint(colour);
  return fmt::format("{}  {} experiments, {} steps forward; {} of {} kernels beat the best baseline\n\n{}\n{}{}",
                     paint.strong(cut(run.request.model, width)), run.trials(), run.kept(), run.kernels_better(), run.tasks.size(),
                     task_table(run, width, paint), backends_text(run), end_to_end_table(run, width, paint));
}

}  // namespace ak::report
