// What the commands on a run share: the run, the families, the worker with the model loaded, the judges of its tasks.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "cli/options.h"
#include "cli/processes.h"
#include "core/clock.h"
#include "graph/family.h"
#include "judge/null_judge.h"
#include "judge/process_judge.h"
#include "report/progress.h"
#include "search/task_search.h"
#include "store/run.h"

namespace ak::cli {

/// Set by Ctrl-C and SIGTERM; a second signal ends the program at once.
const std::atomic<bool>& stop_requested();
/// As Ctrl-C does.
void request_stop();
/// Install the handlers.
void listen_for_stop();

/// A run and the processes that serve it. Everything is started when first needed.
class Session {
 public:
  /// `processes`: those that served another run on the same device; by default its own.
  Session(store::Run run, const Clock& clock, report::Progress& progress, std::shared_ptr<Processes> processes = nullptr);
  ~Session();

  store::Run& run() { return run_; }
  const store::Run& run() const { return run_; }
  const Clock& clock() const { return clock_; }
  std::filesystem::path file(const std::string& name) const { return run_.directory() / name; }
  bool has(const std::string& name) const { return std::filesystem::exists(file(name)); }
  report::Progress& progress() { return progress_; }
  bool is_null_device() const { return run_.request().device == "null"; }
  /// Where PyTorch works for this run.
  std::string torch_device() const { return is_null_device() ? "cpu" : run_.request().device; }

  const graph::Families& families();
  /// The worker, for what needs no model.
  bridge::Worker& worker();
  /// The worker with the model of the run loaded.
  bridge::Worker& model_worker();
  /// patterns.json of the run's dtype; says which spellings could not be traced.
  const std::string& patterns();
  /// Have several workers compile these baselines into PyTorch's caches, and wait for them. What fails there fails again where it is
  /// measured.
  void compile_baselines(const std::vector<kernel::Task>& tasks, const std::vector<std::string>& kinds);
  /// The judge of one task; closes the one before.
  judge::Judge& judge_of(const std::string& task);
  /// Facts, ceilings, strategy and seed for the search.
  const search::Settings& settings();
  judge::JudgeProcess& judge_process();
  compile::Compiler& compiler(kernel::Backend backend);
  const std::shared_ptr<Processes>& processes() const { return processes_; }

  /// Write the run's state to `file` (not empty) when save_state() is called, and now and then where save_state_when_due() is.
  void keep_state(const std::filesystem::path& file);
  void save_state();
  void save_state_when_due();

  /// The one task whose id is, or begins with, `name`.
  /// errors: none or several; lists what there is.
  std::string find_task(const std::string& name) const;

 private:
  store::Run run_;
  const Clock& clock_;
  report::Progress& progress_;
  std::optional<graph::Families> families_;
  std::shared_ptr<Processes> processes_;
  std::set<kernel::Backend> compilers_told_;
  bool judge_told_ = false;
  std::unique_ptr<judge::FixtureSource> fixtures_;
  std::unique_ptr<judge::Judge> judge_;
  std::string judge_task_;
  std::optional<search::Settings> settings_;
  std::filesystem::path state_file_;
  int64_t state_saved_ns_ = 0;
};

}  // namespace ak::cli
