// Rows that were never measured come first; the rest of the time goes where the distance to the floor is largest.
#include "cli/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/opened.h"
#include "cli/steps.h"
#include "core/error.h"
#include "core/file.h"
#include "report/suite_table.h"

namespace ak::cli {
namespace {

constexpr double default_minutes = 10;
constexpr double least_share_s = 8;       // of search on a row; less finds nothing
constexpr double first_baselines_s = 30;  // what the baselines of a row take, before one was measured
constexpr double confirmation_s = 2;      // what the end of a row takes

/// A row and how often this call has worked on it.
struct Row {
  graph::SuiteRow suite;
  int visits = 0;
};

class Suite {
 public:
  Suite(Session& session, std::vector<graph::SuiteRow> rows, const Options& options)
      : session_(session), options_(options), start_ns_(session.clock().now_ns()) {
    for (graph::SuiteRow& row : rows) rows_.push_back({std::move(row)});
  }

  /// Rows without a kernel file for the backend are left out.
  void add_tasks() {
    const std::vector<kernel::Backend> backends = backends_of(session_.run().request());
    for (const Row& shape : std::exchange(rows_, {})) {
      for (const kernel::Backend backend : backends) {
        Row row = shape;
        row.suite.task.id = add_task(session_, shape.suite.task, backend, 0, {{"us_per_call", 1.0}});
        if (!row.suite.task.id.empty()) rows_.push_back(std::move(row));
      }
    }
  }

  void work() {
    std::vector<kernel::Task> unmeasured;
    for (const Row& row : rows_) {
      if (!state(row).baseline) unmeasured.push_back(row.suite.task);
    }
    compile_baselines_ahead(session_, unmeasured);
    session_.settings();  // the judge is started by now, and not on the first row's time
    while (!stop_requested()) {
      Row* row = next();
      if (!row) break;
      ++row->visits;
      visit(*row);
    }
    const auto left = std::ranges::count_if(rows_, [this](const Row& row) { return !state(row).baseline; });
    if (left > 0 && !stop_requested())
      session_.progress().note(fmt::format("{} rows are not measured: the time is over (--minutes, now {:.2g})", left, minutes()));
  }

  std::vector<report::SuiteLine> lines() const {
    std::vector<report::SuiteLine> lines;
    for (const Row& row : rows_) lines.push_back(line_of(row));
    return lines;
  }

 private:
  const store::TaskState& state(const Row& row) const { return session_.run().state(row.suite.task.id); }
  double minutes() const { return options_.minutes.value_or(default_minutes); }
  double seconds_left() const { return 60 * minutes() - session_.clock().seconds_since(start_ns_); }
  double baselines_s() const { return measured_ > 0 ? measuring_s_ / static_cast<double>(measured_) : first_baselines_s; }

  /// What a further visit promises, from the distance to the floor; it fades with each.
  double promise(const Row& row) const {
    const store::TaskState& known = state(row);
    if (!known.baseline) return row.visits == 0 ? INFINITY : 0;
    if (known.moved_on && (known.moved_on->starts_with("roofline") || known.moved_on->starts_with("exhausted")) && known.confirmed())
      return 0;
    if (known.trials.empty()) return row.visits == 0 ? INFINITY : 0;
    const double us = known.incumbent ? known.incumbent->median_us : known.baseline->best_us;
    const double fading = 1 + row.visits + 0.05 * static_cast<double>(known.trials.size());
    return std::max(1e-3, std::log(us / std::max(known.baseline->floor_us, 1e-3))) / fading;
  }
  /// Whether a visit can end in time.
  bool fits(const Row& row) const {
    const double baselines = state(row).baseline ? 0 : baselines_s();
    return seconds_left() > baselines + least_share_s + confirmation_s;
  }

  Row* next() {
    Row* best = nullptr;
    for (Row& row : rows_) {
      if (options_.trials && row.visits > 0) continue;
      if (promise(row) > 0 && fits(row) && (!best || promise(row) > promise(*best))) best = &row;
    }
    return best;
  }

  double share_s() const {
    const auto waiting = std::ranges::count_if(rows_, [](const Row& row) { return row.visits == 0; });
    const double searching = seconds_left() - static_cast<double>(waiting) * (baselines_s() + confirmation_s);
    return std::max(least_share_s, searching / static_cast<double>(waiting + 1));
  }

  void visit(const Row& row) {
    const std::string& id = row.suite.task.id;
    session_.progress().note(fmt::format("{} {} {}", row.suite.task.family, row.suite.shape, name_of(row.suite.task.dtype)));
    if (!state(row).baseline) {
      const int64_t begin = session_.clock().now_ns();
      measure_baselines(session_, id);
      complete_baseline(session_, id);
      measuring_s_ += session_.clock().seconds_since(begin);
      ++measured_;
    }
    if (stop_requested() || !state(row).baseline) return;
    plan::Budget budget{.minutes = share_s() / 60, .experiments = std::nullopt};
    if (options_.trials) budget.experiments = *options_.trials;
    search_kernels(session_, budget, id);
    if (state(row).incumbent && !session_.is_null_device()) confirm(session_, id);
    session_.progress().note(report::suite_text(line_of(row)));
  }

  report::SuiteLine line_of(const Row& row) const {
    const kernel::Task& task = row.suite.task;
    return {task.family, row.suite.shape, std::string(name_of(task.dtype)), state(row)};
  }

  Session& session_;
  const Options& options_;
  std::vector<Row> rows_;
  int64_t start_ns_;
  double measuring_s_ = 0;
  int64_t measured_ = 0;
};

}  // namespace

Exit bench_suite(Options& options) {
  options.request.model = "suite:" + options.suite;
  options.request.dtype = "each";
  const std::filesystem::path file = home_directory() / "playbook" / "suite" / (options.suite + ".toml");
  if (!std::filesystem::exists(file)) throw Error("there is no suite '" + options.suite + "'", "the suites are in playbook/suite/");
  const auto opened = open_for_request(options);
  Session& session = *opened->session;
  const std::string device = session.is_null_device() ? "cpu" : session.run().request().device;
  Suite suite(session, graph::suite_rows(read_file(file), file.filename().string(), session.families(), device, options.rows), options);
  suite.add_tasks();
  suite.work();
  session.save_state();
  opened->progress.reset();
  Json json = report::suite_json(suite.lines());
  json["run_dir"] = session.run().directory().string();
  fmt::print("{}", options.json ? json.dump() + "\n" : report::suite_tsv(suite.lines()));
  return stop_requested() ? Exit::interrupted : Exit::done;
}

}  // namespace ak::cli
