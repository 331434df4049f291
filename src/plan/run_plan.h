// The loop over tasks until the budget is spent.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "plan/scheduler.h"
#include "search/task_search.h"

namespace ak::plan {

/// Where the loop stands, for whoever watches.
struct Progress {
  int64_t experiment = 0;  // of this session
  std::optional<int64_t> experiments_planned;
  double seconds_elapsed = 0;
  std::optional<double> seconds_left;
  double estimated_speedup = 1;  // of the model, by Amdahl
};

/// Is told what happens. Calls come from the thread of run_plan().
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void started(const std::vector<store::TaskState>& /*tasks*/, const Progress& /*progress*/) {}
  virtual void task_chosen(const store::TaskState& /*task*/, const std::string& /*why*/) {}
  virtual void proposed(const store::TaskState& /*task*/, const search::Proposal& /*proposal*/, const Progress& /*progress*/) {}
  /// `task` includes the trial.
  virtual void judged(const store::TaskState& /*task*/, const search::Step& /*step*/, const Progress& /*progress*/) {}
  virtual void moved_on(const store::TaskState& /*task*/, const MoveOn& /*why*/) {}
  virtual void finished(const std::string& /*why*/, const Progress& /*progress*/) {}
};

/// Opens the judge of a task; the reference must hold until the next call.
using JudgeOfTask = std::function<judge::Judge&(const std::string& task)>;

/// Called before each experiment. Returns whether the run was changed meanwhile (a kernel judged by hand).
using Between = std::function<bool()>;

/// Experiments on the scheduler's tasks of `run` until the budget is spent, `stop` is set, or nothing is worth the effort.
/// Every experiment is in the run's journal before the next begins. plan.json is written at each change of task and at the end.
/// Returns why it ended.
/// errors: the run cannot be written; the judge cannot be started.
std::string run_plan(store::Run& run, Scheduler& scheduler, const JudgeOfTask& judge_of, const search::Settings& settings,
                     const Between& between, const std::atomic<bool>& stop, const Clock& clock, Observer& observer);

}  // namespace ak::plan
