// Choose a task, run one experiment on it, leave it when it is time, and again.
#include "plan/run_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/file.h"

namespace ak::plan {
namespace {

constexpr int environment_failures_allowed = 3;  // in a row, over all tasks

class Loop {
 public:
  Loop(store::Run& run, Scheduler& scheduler, const JudgeOfTask& judge_of, const search::Settings& settings, const Between& between,
       const Clock& clock, Observer& observer)
      : run_(run), scheduler_(scheduler), judge_of_(judge_of), settings_(settings), between_(between), clock_(clock), observer_(observer) {}

  std::string run(const std::atomic<bool>& stop) {
    start();
    std::string why;
    while (why.empty()) why = stop ? "stopped" : once();
    write_plan();
    observer_.finished(why, progress());
    return why;
  }

 private:
  void start() {
    std::vector<store::TaskState> states;
    for (const Standing& standing : scheduler_.ranking()) {
      scheduler_.update(run_.state(standing.task));
      states.push_back(run_.state(standing.task));
    }
    write_plan();
    observer_.started(states, progress());
  }

  /// One experiment, or one change of task. Returns why the loop ends, or nothing.
  std::string once() {
    if (between_ && between_()) look_again();
    if (scheduler_.over())
      return scheduler_.seconds_left() && *scheduler_.seconds_left() <= 0 ? "the minutes are over" : "the experiments are done";
    const auto task = scheduler_.next();
    if (!task) return "nothing is worth the effort";
    if (scheduler_.is_revisit(*task)) reopen(*task);
    if (*task != task_) enter(*task);
    if (const auto why = scheduler_.move_on(*task)) {
      leave(*why);
      return "";
    }
    return experiment();
  }

  /// Somebody else judged kernels of this run: what was derived from it is made anew.
  void look_again() {
    search_.reset();
    for (const std::string& id : scheduler_.tasks()) scheduler_.update(run_.state(id));
  }

  void reopen(const std::string& task) {
    run_.reopen_task(task);
    scheduler_.update(run_.state(task));
    scheduler_.reopen(task);
  }

  void enter(const std::string& task) {
    task_ = task;
    search_.reset();
    write_plan();
    for (const Standing& standing : scheduler_.ranking()) {
      if (standing.task == task) observer_.task_chosen(run_.state(task), Scheduler::why(standing));
    }
  }

  /// The judge is opened for an experiment only, not to find that there is nothing to do.
  void open() {
    if (search_) return;
    search_ = std::make_unique<search::TaskSearch>(run_, judge_of_(task_), task_, settings_);
    scheduler_.space_is(task_, search_->space().size());
  }

  void leave(const MoveOn& why) {
    run_.move_on(task_, why.text);
    scheduler_.update(run_.state(task_));
    observer_.moved_on(run_.state(task_), why);
    search_.reset();
    task_.clear();
    write_plan();
  }

  std::string experiment() {
    open();
    const int64_t start = clock_.now_ns();
    const auto proposal = search_->propose();
    if (!proposal) {
      leave({Reason::exhausted, fmt::format("exhausted: all {:.0f} points were tried", search_->space().size())});
      return "";
    }
    observer_.proposed(run_.state(task_), *proposal, progress());
    const search::Step step = search_->run(*proposal);
    if (!step.trial) return environment_failed(step);
    environment_failures_ = 0;
    scheduler_.charge(task_, clock_.seconds_since(start));
    scheduler_.update(run_.state(task_));
    observer_.judged(run_.state(task_), step, progress());
    return "";
  }

  std::string environment_failed(const search::Step& step) {
    observer_.judged(run_.state(task_), step, progress());
    const std::string message = step.judgement.evidence.value("message", "the judge could not do its work");
    if (++environment_failures_ >= environment_failures_allowed) return "the environment keeps failing: " + message;
    leave({Reason::environment, "environment: " + message});
    return "";
  }

  void write_plan() const { write_json(run_.directory() / "plan.json", to_json(scheduler_)); }

  Progress progress() const {
    return {scheduler_.experiments_spent(), scheduler_.budget().experiments, scheduler_.seconds_elapsed(), scheduler_.seconds_left(),
            scheduler_.estimated_speedup()};
  }

  store::Run& run_;
  Scheduler& scheduler_;
  const JudgeOfTask& judge_of_;
  const search::Settings& settings_;
  const Between& between_;
  const Clock& clock_;
  Observer& observer_;
  std::string task_;
  std::unique_ptr<search::TaskSearch> search_;
  int environment_failures_ = 0;
};

}  // namespace

std::string run_plan(store::Run& run, Scheduler& scheduler, const JudgeOfTask& judge_of, const search::Settings& settings,
                     const Between& between, const std::atomic<bool>& stop, const Clock& clock, Observer& observer) {
  return Loop(run, scheduler, judge_of, settings, between, clock, observer).run(stop);
}

}  // namespace ak::plan
