// A run directory: what was asked, the journal, the tasks' files, results.tsv, and the lock of the engine that owns it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/json.h"
#include "kernel/kernel_file.h"
#include "kernel/task.h"

namespace ak::store {

/// What identifies a run; run.toml. `suite:NAME` is a model whose tasks are the shapes of a suite.
struct RunRequest {
  std::string model;
  std::vector<int64_t> input_shape;                                // empty: the factory's own inputs
  std::string dtype = "float32", device = "cpu", backend = "cpu";  // of backends also "both": cuda and triton
  int64_t seed = 1;
  bool is_suite() const { return model.starts_with("suite:"); }
};

/// One judged candidate, as the journal holds it.
struct Trial {
  int64_t experiment = 0;  // given by Run::record
  std::string task, proposer, note, verdict, rule, kernel_hash;
  kernel::Point point;
  std::string evidence = "{}";  // JSON text
  double median_us = 0, speedup_vs_best = 0, speedup_vs_eager = 0, compile_seconds = 0, judge_seconds = 0;
  double tflops = 0, percent_of_peak = 0, peak_memory_mb = 0;
};

/// Experiment 0 of a task.
struct Baseline {
  std::map<std::string, double> kinds_us;  // eager, library, compile
  std::string best_kind;
  double best_us = 0, eager_us = 0, floor_us = 0;
  /// A kind, which is the best one if it is.
  void add(const std::string& kind, double us) {
    if (kinds_us.empty() || us < best_us) best_kind = kind, best_us = us;
    kinds_us[kind] = us;
  }
};

/// An incumbent and the best baseline, measured in turn.
struct Confirmation {
  int64_t experiment = 0;  // that made the incumbent
  std::string kind;        // of the baseline
  double kernel_us = 0, baseline_us = 0, floor_us = 0;
  double speedup = 1, ci_low = 1, ci_high = 1;  // median of the ratios of the turns, and the interval of that median
};

/// What the journal says of one task.
struct TaskState {
  std::string id, family;
  kernel::Backend backend = kernel::Backend::cpu;
  double share_percent = 0;
  std::optional<Baseline> baseline;
  std::optional<Trial> incumbent;  // the best kept trial
  std::vector<Trial> trials;
  std::optional<std::string> moved_on;  // reason
  std::optional<Confirmation> confirmation;
  std::optional<int64_t> refused;  // the experiment whose incumbent the judge refused when it was to be confirmed
  /// The confirmation of the present incumbent.
  const Confirmation* confirmed() const {
    return incumbent && confirmation && confirmation->experiment == incumbent->experiment ? &*confirmation : nullptr;
  }
  /// By the confirmation where there is one.
  bool beats_baseline() const;
};

/// An open run. The object owns the directory's lock.
class Run {
 public:
  /// Default directory of a request: autokernel-runs/<model>-<8 hex of what was asked>.
  static std::filesystem::path default_directory(const RunRequest& request);
  /// Make the directory, or open it and read its journal. errors: it is another request's or another format's; locked by another engine
  /// (says which pid).
  static Run open(const std::filesystem::path& directory, const RunRequest& request, const Clock& clock);
  /// Open an existing run by its directory alone.
  static Run open_existing(const std::filesystem::path& directory, const Clock& clock);
  /// Read without the lock, for `report` and the like beside a running engine.
  static Run read_only(const std::filesystem::path& directory, const Clock& clock);

  Run(Run&&) noexcept;
  ~Run();

  const std::filesystem::path& directory() const;
  const RunRequest& request() const;
  bool resumed() const;

  void add_task(const kernel::Task& task, double share_percent, const Json& profile, const std::string& starter_text,
                kernel::Backend backend);
  kernel::Task task(const std::string& id) const;
  const TaskState& state(const std::string& id) const;
  std::vector<std::string> task_ids() const;  // in plan order
  int64_t experiments() const;                // trials so far, over all tasks

  void record_baseline(const std::string& task, const Baseline& baseline);
  /// Journal first, then results.tsv, then (where kept) best.*, kernel.* and history/.
  /// Returns the experiment's number.
  int64_t record(Trial trial, const std::string& kernel_text);
  void record_confirmation(const std::string& task, const Confirmation& confirmation);
  void move_on(const std::string& task, const std::string& reason);
  void reopen_task(const std::string& task);
  /// The incumbent turned out otherwise: `about` has the verdict.
  void record_refusal(const std::string& task, const Json& about);
  void record_event(const Json& record);  // e.g. verification

  /// The file to edit, and the incumbent (starter before any trial was kept).
  std::filesystem::path kernel_path(const std::string& task) const;
  std::filesystem::path best_path(const std::string& task) const;
  /// Put the incumbent's text back into the file to edit.
  void revert(const std::string& task);

 private:
  struct State;
  explicit Run(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Column names of results.tsv, in order.
const std::vector<std::string>& result_columns();

}  // namespace ak::store
