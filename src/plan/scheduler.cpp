// The idea: an experiment closes some part of the gap between a task's best time and its floor. That part shrinks with every
// experiment that brought nothing, so a task's promise fades until another's is larger. What a task can give is bounded by its
// share of the forward (Amdahl), and what it costs is measured.
#include "plan/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::plan {
namespace {

constexpr double first_closing = 0.3;        // part of the gap that a first experiment is expected to close
constexpr double unknown_floor = 0.5;        // of the best time, where no floor was measured
constexpr double prior_seconds = 4;          // an experiment, before one was measured
constexpr double smallest_fair_share = 0.5;  // of an equal share: every task gets a look
constexpr double arithmetic_prospect = 0.2;  // libraries leave little where arithmetic is the limit, much where memory is

bool is_final(const std::string& moved_on) { return moved_on.rfind("roofline", 0) == 0 || moved_on.rfind("exhausted", 0) == 0; }

/// Median of one call: what would be used in the model if it were put in now.
double best_us(const store::TaskState& state) {
  const double baseline = state.baseline ? state.baseline->best_us : 0;
  return state.beats_baseline() ? state.incumbent->median_us : baseline;
}

double floor_us(const store::TaskState& state) {
  const double measured = state.baseline ? state.baseline->floor_us : 0;
  return measured > 0 ? measured : unknown_floor * best_us(state);
}

/// How a call's time maps to the profiled one: the profile ran eager.
double eager_us(const store::TaskState& state) {
  if (!state.baseline) return 0;
  return state.baseline->eager_us > 0 ? state.baseline->eager_us : state.baseline->best_us;
}

double behind(const store::TaskState& state) {
  if (!state.incumbent || !state.baseline || state.baseline->best_us <= 0) return 1;
  return std::max(1.0, state.incumbent->median_us / state.baseline->best_us);
}

/// That the next gains are gains over the baseline too. Steps are small as a rule, so it falls steeply with the distance; before a
/// kernel was right, there is the prospect alone.
double likelihood(const store::TaskState& state, double prospect) { return state.incumbent ? 1 / std::pow(behind(state), 3) : prospect; }

bool overlap(const std::vector<std::string>& left, const std::vector<std::string>& right) {
  return std::any_of(left.begin(), left.end(),
                     [&](const auto& node) { return std::find(right.begin(), right.end(), node) != right.end(); });
}

}  // namespace

TaskFacts facts_of(const kernel::Task& task, const Json& profile, double space_size, const search::Ceilings& ceilings) {
  int64_t calls = 0;
  for (const kernel::Binding& binding : task.workload) calls += binding.calls;
  calls = std::max<int64_t>(calls, 1);
  TaskFacts facts{task.id, task.family, profile.value("us_per_call", 0.0) * static_cast<double>(calls), calls, space_size, {}};
  for (const Json& node : profile.value("nodes", Json::array()))
    facts.nodes.push_back(node.is_string() ? node.get<std::string>() : node.dump());
  search::Ceilings memory = ceilings;
  memory.flops_per_second.clear();
  if (search::roofline_us(task, ceilings) > search::roofline_us(task, memory)) facts.prospect = arithmetic_prospect;
  return facts;
}

std::string_view name_of(Reason reason) {
  switch (reason) {
    case Reason::roofline: return "roofline";
    case Reason::exhausted: return "exhausted";
    case Reason::plateau: return "plateau";
    case Reason::hopeless: return "hopeless";
    case Reason::budget: return "budget";
    case Reason::environment: return "environment";
  }
  return "";
}

Scheduler::Scheduler(std::vector<TaskFacts> tasks, double total_us, Budget budget, const Clock& clock, Rules rules)
    : total_us_(total_us), budget_(budget), clock_(clock), rules_(rules), start_ns_(clock.now_ns()) {
  for (TaskFacts& facts : tasks) {
    Entry entry;
    entry.state.id = facts.id;
    entry.facts = std::move(facts);
    entries_.push_back(std::move(entry));
  }
}

const Scheduler::Entry& Scheduler::entry(const std::string& task) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.facts.id == task; });
  AK_CHECK(found != entries_.end(), "the scheduler knows the task");
  return *found;
}

Scheduler::Entry& Scheduler::entry(const std::string& task) { return const_cast<Entry&>(std::as_const(*this).entry(task)); }

std::vector<std::string> Scheduler::tasks() const {
  std::vector<std::string> ids;
  for (const Entry& each : entries_) ids.push_back(each.facts.id);
  return ids;
}

void Scheduler::update(const store::TaskState& state) {
  Entry& updated = entry(state.id);
  updated.state = {state.id, state.family, state.backend, state.share_percent, state.baseline, state.incumbent, {}, state.moved_on};
  updated.trials = static_cast<int64_t>(state.trials.size());
  updated.since_kept = 0;
  for (auto trial = state.trials.rbegin(); trial != state.trials.rend() && trial->verdict != "kept"; ++trial) ++updated.since_kept;
}

void Scheduler::charge(const std::string& task, double seconds) {
  Entry& charged = entry(task);
  charged.seconds_spent += seconds;
  ++charged.experiments_spent;
  ++experiments_;
}

void Scheduler::space_is(const std::string& task, double size) { entry(task).facts.space_size = size; }

void Scheduler::reopen(const std::string& task) {
  Entry& reopened = entry(task);
  ++reopened.visits;
  reopened.state.moved_on.reset();
  reopened.trials_at_visit = reopened.trials;
  reopened.seconds_at_visit = reopened.seconds_spent;
  reopened.experiments_at_visit = reopened.experiments_spent;
}

int64_t Scheduler::patience(const Entry& entry) const {
  const double doublings = std::log2(std::max(1.0, entry.facts.space_size));
  const int64_t trials = rules_.plateau_base + std::llround(rules_.plateau_per_doubling * doublings);
  return std::min(trials, rules_.plateau_maximum) << std::min(entry.visits, 8);
}

double Scheduler::seconds_per_experiment(const Entry& entry) const {
  if (entry.experiments_spent > 0) return std::max(1e-3, entry.seconds_spent / static_cast<double>(entry.experiments_spent));
  double seconds = 0, experiments = 0;
  for (const Entry& other : entries_) {
    seconds += other.seconds_spent;
    experiments += static_cast<double>(other.experiments_spent);
  }
  return experiments > 0 ? std::max(1e-3, seconds / experiments) : prior_seconds;
}

Standing Scheduler::standing(const Entry& entry) const {
  const store::TaskState& state = entry.state;
  Standing result;
  result.task = entry.facts.id;
  result.share = total_us_ > 0 ? entry.facts.us_per_forward / total_us_ : state.share_percent / 100;
  result.us_per_forward = entry.facts.us_per_forward;
  result.best_us = best_us(state);
  result.floor_us = floor_us(state);
  result.moved_on = state.moved_on;
  if (state.beats_baseline()) result.speedup = state.baseline->best_us / state.incumbent->median_us;
  const double eager = eager_us(state);
  const double forward_us_per_us = eager > 0 ? entry.facts.us_per_forward / eager : 0;
  const double gap_us =
      eager > 0 ? std::max(0.0, result.best_us - result.floor_us) * forward_us_per_us : unknown_floor * entry.facts.us_per_forward;
  const double fading = 1 + static_cast<double>(entry.since_kept);
  result.expected_gain_us = first_closing * gap_us / fading * likelihood(state, entry.facts.prospect);
  result.seconds_per_experiment = seconds_per_experiment(entry);
  result.gain_per_minute = result.expected_gain_us * 1e-6 * 60 / result.seconds_per_experiment;
  const double rest = total_us_ - entry.facts.us_per_forward +
                      (eager > 0 ? result.floor_us * forward_us_per_us : unknown_floor * entry.facts.us_per_forward);
  if (total_us_ > 0 && rest > 0) result.speedup_ceiling = total_us_ / rest;
  return result;
}

std::vector<Standing> Scheduler::ranking() const {
  std::vector<Standing> result;
  for (const Entry& entry : entries_) result.push_back(standing(entry));
  std::stable_sort(result.begin(), result.end(), [](const Standing& left, const Standing& right) {
    if (left.moved_on.has_value() != right.moved_on.has_value()) return right.moved_on.has_value();
    return left.gain_per_minute > right.gain_per_minute;
  });
  return result;
}

std::optional<std::string> Scheduler::next() {
  const auto standings = ranking();
  const Standing* best = nullptr;
  const Standing* present = nullptr;
  for (const Standing& standing : standings) {
    if (standing.moved_on && is_final(*standing.moved_on)) continue;
    if (!best) best = &standing;
    if (standing.task == current_ && !standing.moved_on) present = &standing;
  }
  if (!best) {
    current_.clear();
    return std::nullopt;
  }
  const bool stay = present && (!settled(entry(current_)) || best->gain_per_minute < rules_.switch_factor * present->gain_per_minute);
  if (!stay) current_ = best->task;
  return current_;
}

bool Scheduler::settled(const Entry& present) const {
  return present.experiments_spent - present.experiments_at_visit >= rules_.settle_trials ||
         behind(present.state) > rules_.hopeless_slowdown;
}

bool Scheduler::is_revisit(const std::string& task) const { return entry(task).state.moved_on.has_value(); }

std::optional<MoveOn> Scheduler::move_on(const std::string& task) const {
  const Entry& present = entry(task);
  const store::TaskState& state = present.state;
  if (state.incumbent && state.baseline && state.baseline->floor_us >= rules_.roofline * state.incumbent->median_us) {
    return MoveOn{Reason::roofline,
                  fmt::format("roofline: {:.0f} % of the floor", 100 * state.baseline->floor_us / state.incumbent->median_us)};
  }
  const int64_t trials = present.trials;
  const int64_t idle = std::min(present.since_kept, trials - present.trials_at_visit);
  if (idle >= patience(present)) return MoveOn{Reason::plateau, fmt::format("plateau: {} trials without a keep", idle)};
  const int64_t tried = trials - present.trials_at_visit, enough = rules_.hopeless_trials << std::min(present.visits, 8);
  if (state.baseline && !state.incumbent && tried >= enough)
    return MoveOn{Reason::hopeless, fmt::format("hopeless: none of {} trials was right", trials)};
  const double slowdown = behind(state);
  if (slowdown > rules_.hopeless_slowdown &&
      static_cast<double>(tried) * slowdown >= static_cast<double>(enough) * rules_.hopeless_slowdown)
    return MoveOn{Reason::hopeless, fmt::format("hopeless: {:.1f} times slower than the baseline after {} trials", slowdown, trials)};
  if (over_budget(present)) return MoveOn{Reason::budget, fmt::format("budget: its part of the time is used up after {} trials", trials)};
  return std::nullopt;
}

/// The part of the budget that is this task's: by what it can give, but never less than half of an equal part.
double Scheduler::fair_share(const Entry& present) const {
  const double equal = 1 / static_cast<double>(entries_.size());
  double all = 0;
  for (const Entry& each : entries_) all += each.facts.us_per_forward;
  return std::max(smallest_fair_share * equal, all > 0 ? present.facts.us_per_forward / all : equal);
}

bool Scheduler::over_budget(const Entry& present) const {
  if (entries_.size() < 2) return false;
  const double allowed = std::min(1.0, rules_.budget_slack * fair_share(present));
  const bool minutes = budget_.minutes && present.seconds_spent - present.seconds_at_visit >= allowed * *budget_.minutes * 60;
  const double experiments = static_cast<double>(present.experiments_spent - present.experiments_at_visit);
  return minutes || (budget_.experiments && experiments >= std::max(1.0, allowed * static_cast<double>(*budget_.experiments)));
}

bool Scheduler::over() const {
  const auto left = seconds_left();
  return (left && *left <= 0) || (budget_.experiments && experiments_ >= *budget_.experiments);
}

std::optional<double> Scheduler::seconds_left() const {
  if (!budget_.minutes) return std::nullopt;
  return std::max(0.0, *budget_.minutes * 60 - seconds_elapsed());
}

double Scheduler::estimated_speedup() const {
  std::vector<Saving> savings;
  for (const Entry& each : entries_) {
    const double eager = eager_us(each.state);
    if (!each.state.beats_baseline() || eager <= 0) continue;
    savings.push_back({&each, each.facts.us_per_forward * std::max(0.0, 1 - each.state.incumbent->median_us / eager)});
  }
  std::stable_sort(savings.begin(), savings.end(), [](const Saving& left, const Saving& right) { return left.us > right.us; });
  double saved = 0;
  std::vector<std::string> taken;
  for (const Saving& saving : savings) {
    if (overlap(saving.entry->facts.nodes, taken)) continue;
    taken.insert(taken.end(), saving.entry->facts.nodes.begin(), saving.entry->facts.nodes.end());
    saved += saving.us;
  }
  return total_us_ > saved && total_us_ > 0 ? total_us_ / (total_us_ - saved) : 1;
}

std::string Scheduler::why(const Standing& standing) {
  const std::string call = fmt::format("{:.1f} us a call against a floor of {:.1f} us", standing.best_us, standing.floor_us);
  if (standing.speedup_ceiling <= 1) return call;  // there is no model, or nothing to win in it
  return fmt::format("{:.1f} % of the forward, {}; at the floor the model would be {:.2f}x as fast", 100 * standing.share, call,
                     standing.speedup_ceiling);
}

Json to_json(const Scheduler& scheduler) {
  Json tasks = Json::array();
  for (const Standing& standing : scheduler.ranking()) {
    Json task = {{"task", standing.task},
                 {"share_percent", 100 * standing.share},
                 {"us_per_forward", standing.us_per_forward},
                 {"best_us", standing.best_us},
                 {"floor_us", standing.floor_us},
                 {"speedup_vs_best_baseline", standing.speedup},
                 {"amdahl_ceiling", standing.speedup_ceiling},
                 {"gain_us_per_forward_expected", standing.expected_gain_us},
                 {"seconds_per_experiment", standing.seconds_per_experiment},
                 {"state", standing.moved_on ? "moved on" : "open"}};
    if (standing.moved_on) task["reason"] = *standing.moved_on;
    tasks.push_back(std::move(task));
  }
  return {{"schema", "autokernel.plan/1"}, {"tasks", tasks}, {"estimated_speedup", scheduler.estimated_speedup()}};
}

}  // namespace ak::plan
