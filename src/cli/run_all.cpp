// First every model's tasks, so that their baselines can be compiled side by side; then each model's search.
#include "cli/run_all.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/job.h"
#include "cli/opened.h"
#include "cli/steps.h"
#include "core/error.h"
#include "core/file.h"
#include "report/html.h"
#include "report/summary.h"

namespace ak::cli {
namespace {

namespace fs = std::filesystem;

/// A model of the list.
struct Entry {
  Options options;
  fs::path graph;  // captured before, else empty
  std::unique_ptr<Session> session;
  Json error;  // null: none yet
};

/// errors: it is no list of objects with `model` and `run_dir`.
std::vector<Entry> read_list(const Options& options) {
  std::vector<Entry> entries;
  try {
    for (const Json& each : read_json(options.list)) {
      Entry entry{.options = options, .graph = each.value("graph", ""), .session = nullptr, .error = nullptr};
      entry.options.request.model = each.at("model").get<std::string>();
      entry.options.input_shape = each.value("input_shape", "");
      entry.options.run_directory = each.at("run_dir").get<std::string>();
      entries.push_back(std::move(entry));
    }
  } catch (const Json::exception& error) {
    throw Error(options.list.string() + " is no list of models: " + error.what(),
                R"(write it like [{"model": "file.py:Class", "input_shape": "1,256", "run_dir": "DIR"}])");
  }
  if (entries.empty()) throw Error(options.list.string() + " names no model", "a list has at least one");
  return entries;
}

class RunAll {
 public:
  explicit RunAll(Options& options)
      : options_(options),
        entries_(read_list(options)),
        progress_(progress_for(options, clock_, fmt::format("{} models", entries_.size()))) {}

  Exit run() {
    for (Entry& entry : entries_) attempt(entry, "make its tasks", [&] { make_tasks(entry); });
    compile_ahead();
    for (Entry& entry : entries_) {
      if (stop_requested()) break;
      attempt(entry, "search", [&] { work_on(entry); });
      if (stop_requested()) break;  // it is not done
      tell(entry);
      failed_ |= !entry.error.is_null();
      entry.session.reset();
    }
    return stop_requested() ? Exit::interrupted : failed_ ? Exit::failed : Exit::done;
  }

 private:
  /// One step of one model; its failure is the entry's.
  void attempt(Entry& entry, const std::string& step, const std::function<void()>& work) {
    if (stop_requested() || !entry.error.is_null()) return;
    const std::string directory = entry.options.run_directory.string();
    if (options_.json) print({{"event", "model"}, {"run_dir", directory}, {"step", step}});
    progress_->note(fmt::format("{}: {}", directory, step));
    try {
      work();
    } catch (const Error& error) {
      entry.error = {{"message", error.what()}, {"what_to_do", error.what_to_do()}};
      progress_->note(fmt::format("{} failed: {}", directory, error.what()));
    }
  }

  void make_tasks(Entry& entry) {
    settle_request(entry.options);
    if (!processes_) processes_ = std::make_shared<Processes>(entry.options.request.device);
    entry.session = std::make_unique<Session>(store::Run::open(entry.options.run_directory, entry.options.request, clock_), clock_,
                                              *progress_, processes_);
    Session& session = *entry.session;
    if (!entry.graph.empty()) take_graph(session, entry.graph);
    extract_tasks(session, options_.top, options_.min_share_percent, Profiled::to_rank);
  }

  /// errors: the run is of another graph.
  static void take_graph(const Session& session, const fs::path& graph) {
    const std::string text = read_file(graph);
    if (!session.has("graph.json")) return write_file(session.file("graph.json"), text);
    if (read_file(session.file("graph.json")) != text)
      throw Error("the run in " + session.run().directory().string() + " is of another graph than " + graph.string(),
                  "remove that directory, or name another");
  }

  void compile_ahead() {
    std::vector<kernel::Task> tasks;
    std::set<std::string> seen;
    Session* any = nullptr;
    for (const Entry& entry : entries_) {
      if (!entry.session || !entry.error.is_null()) continue;
      for (kernel::Task& task : unmeasured_tasks(entry.session->run())) {
        if (seen.insert(task.id).second) tasks.push_back(std::move(task));
      }
      any = entry.session.get();
    }
    if (any && !stop_requested()) compile_baselines_ahead(*any, tasks);
  }

  void work_on(Entry& entry) {
    Session& session = *entry.session;
    const std::vector<std::string> ids = session.run().task_ids();
    for (const std::string& id : ids) {  // models have tasks in common
      if (!session.run().state(id).baseline && baselines_.contains(id)) session.run().record_baseline(id, baselines_.at(id));
    }
    if (!ids.empty()) search_and_verify(session, options_);
    for (const std::string& id : ids) {
      if (const auto& baseline = session.run().state(id).baseline) baselines_.insert_or_assign(id, *baseline);
    }
  }

  void tell(const Entry& entry) {
    const std::string directory = entry.options.run_directory.string();
    if (entry.session && entry.error.is_null()) {
      report::write_report(entry.session->run());
      const report::RunView view = report::view_of(entry.session->run());
      if (options_.json) return print({{"event", "model_done"}, {"run_dir", directory}, {"summary", report::final_json(view)}});
      fmt::print("{}\n{}\n", directory, report::summary_text(view, report::width_of(stdout), report::colour_for(stdout)));
    } else {
      if (options_.json) return print({{"event", "model_done"}, {"run_dir", directory}, {"error", entry.error}});
      fmt::print("{}\nfailed: {}\n", directory, entry.error.at("message").get<std::string>());
    }
  }

  static void print(const Json& line) {
    fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }

  const Options& options_;
  std::vector<Entry> entries_;
  SystemClock clock_;
  std::unique_ptr<report::Progress> progress_;
  std::shared_ptr<Processes> processes_;
  std::map<std::string, store::Baseline> baselines_;  // by task, of the models before
  bool failed_ = false;
};

}  // namespace

Exit run_all(Options& options) {
  listen_for_stop();
  return RunAll(options).run();
}

}  // namespace ak::cli
