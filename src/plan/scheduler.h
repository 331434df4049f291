// Where the next minute goes: tasks ranked by the end-to-end time that a minute on them should save, and when to leave one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/json.h"
#include "search/task_search.h"
#include "store/run.h"

namespace ak::plan {

/// What the profile says of one task.
struct TaskFacts {
  std::string id, family;
  double us_per_forward = 0;       // of all its calls, in the model as it was profiled
  int64_t calls = 1;               // a forward
  double space_size = 1;           // valid points of its kernel file
  std::vector<std::string> nodes;  // of the model's graph; tasks that share some cannot both go into the model
  double prospect = 1;             // of beating the baseline, before anything was tried: 1, or less where libraries are good
};

/// The facts of a task from its profile in task.json (`us_per_call`, `share`, `nodes`), its workload, and whether arithmetic bounds it.
TaskFacts facts_of(const kernel::Task& task, const Json& profile, double space_size, const search::Ceilings& ceilings = {});

/// Why a task was left. Those of the first group are final.
enum class Reason { roofline, exhausted, plateau, hopeless, budget, environment };
std::string_view name_of(Reason reason);

struct MoveOn {
  Reason reason = Reason::plateau;
  std::string text;  // begins with the reason's name: "plateau: 12 trials without a keep"
};

/// When to move on, as data. `visits` counts how often the scheduler came back; patience doubles with each.
struct Rules {
  double roofline = 0.98;           // of the floor
  int64_t plateau_base = 6;         // trials without a keep; and one more for each doubling of the space:
  double plateau_per_doubling = 1;  // a larger space is worth a longer look
  int64_t plateau_maximum = 60;
  int64_t hopeless_trials = 12;  // after so many …
  double hopeless_slowdown = 2;  // … and still so much slower than the baseline; of half as many where it is twice as slow
  double budget_slack = 1.5;     // a task may use its fair share this many times over before it is set aside
  double switch_factor = 2;      // another task must promise so much more before the present one is interrupted
  int64_t settle_trials = 4;     // a task is not interrupted before, unless it is so far behind as what is hopeless
};

/// What may be spent in this session; nothing: no limit.
struct Budget {
  std::optional<double> minutes;
  std::optional<int64_t> experiments;
};

/// One line of the ranking.
struct Standing {
  std::string task;
  double share = 0;             // of the forward's time, 0 to 1
  double us_per_forward = 0;    // as profiled
  double best_us = 0;           // of one call: the incumbent or the best baseline, whichever is faster
  double floor_us = 0;          // of one call
  double speedup = 1;           // of the best against the best baseline, at least 1: else the baseline is kept
  double expected_gain_us = 0;  // a forward, of the next experiment
  double seconds_per_experiment = 0;
  double gain_per_minute = 0;  // expected seconds a forward gained, for a minute spent
  double speedup_ceiling = 1;  // of the whole model, if the task took no time beyond its floor (Amdahl)
  std::optional<std::string> moved_on;
};

using States = std::map<std::string, store::TaskState>;

/// Decides; does nothing itself. Its answers depend only on the facts, the states given, the calls made and the clock.
class Scheduler {
 public:
  Scheduler(std::vector<TaskFacts> tasks, double total_us, Budget budget, const Clock& clock, Rules rules = {});

  std::vector<std::string> tasks() const;
  /// A task as the run now has it. Call after every change.
  void update(const store::TaskState& state);
  /// An experiment was spent on `task`, in `seconds`.
  void charge(const std::string& task, double seconds);
  void space_is(const std::string& task, double size);

  /// Best first; those that were moved on from at the end.
  std::vector<Standing> ranking() const;
  /// The task to spend the next experiment on; nothing where all were left for good.
  /// A task that was left at a plateau or budget is returned again when only such are left: `is_revisit` then says so.
  std::optional<std::string> next();
  bool is_revisit(const std::string& task) const;
  /// The caller goes back to `task`: patience starts anew and is doubled.
  void reopen(const std::string& task);

  /// Whether it is time to leave `task`.
  std::optional<MoveOn> move_on(const std::string& task) const;

  /// Whether minutes or experiments are used up.
  bool over() const;
  double seconds_elapsed() const { return clock_.seconds_since(start_ns_); }
  std::optional<double> seconds_left() const;
  int64_t experiments_spent() const { return experiments_; }
  const Budget& budget() const { return budget_; }

  /// The whole model's estimated speed-up over eager by what was kept so far (Amdahl). Of tasks that share nodes only the better counts.
  double estimated_speedup() const;

  /// One sentence on a standing: why it comes first.
  static std::string why(const Standing& standing);

 private:
  struct Entry {
    TaskFacts facts;
    store::TaskState state;  // without its trials, which may be many; what counts of them:
    int64_t trials = 0, since_kept = 0;
    int visits = 0;
    int64_t trials_at_visit = 0;
    double seconds_spent = 0, seconds_at_visit = 0;
    int64_t experiments_spent = 0, experiments_at_visit = 0;
  };
  struct Saving {
    const Entry* entry;
    double us;
  };

  const Entry& entry(const std::string& task) const;
  Entry& entry(const std::string& task);
  Standing standing(const Entry& entry) const;
  double seconds_per_experiment(const Entry& entry) const;
  double fair_share(const Entry& entry) const;
  int64_t patience(const Entry& entry) const;
  bool over_budget(const Entry& entry) const;
  bool settled(const Entry& entry) const;

  std::vector<Entry> entries_;
  double total_us_;
  Budget budget_;
  const Clock& clock_;
  Rules rules_;
  int64_t start_ns_, experiments_ = 0;
  std::string current_;
};

/// plan.json: the tasks in order, with share of time, Amdahl estimate and state.
Json to_json(const Scheduler& scheduler);

}  // namespace ak::plan
