// The main job as steps over a session. Each looks at what is there already, so that any of them may be repeated or resumed.
#pragma once

#include "cli/session.h"
#include "plan/run_plan.h"

namespace ak::cli {

/// graph.json and patterns.json: load the model and capture it.
void capture_model(Session& session);
/// profile.json: the time of every node.
void measure_nodes(Session& session);
/// Whether shares of the model's time are measured, or only where several kinds of regions are to be ranked by them.
enum class Profiled { always, to_rank };
/// tasks/: match the families, and make a task of each kind of region, at most `top`, those under so much of the time left out;
/// says why where there is none.
void extract_tasks(Session& session, int64_t top, double min_share_percent, Profiled profiled = Profiled::always);
/// What the run's kernels may be written in.
std::vector<kernel::Backend> backends_of(const store::RunRequest& request);
/// Begin a task with its family's starter for the backend. Where the run has several backends each has a task of its own, `ID.cuda` and the
/// like. Returns its id; nothing, with a note, where the family has no starter.
std::string add_task(Session& session, kernel::Task task, kernel::Backend backend, double share_percent, const Json& profile);
/// errors: the run has no task yet.
void require_tasks(Session& session);
/// Experiment 0 of each task (of one, where `only` is not empty) that has none: what PyTorch needs, the floor, and which answers that know
/// nothing would pass.
void measure_baselines(Session& session, const std::string& only = {});
/// Measure the baseline that takes long to make, if it is not measured yet: before a winner is called one, and where a table has it.
void complete_baseline(Session& session, const std::string& task);

/// Of each region without a baseline one task (of one task's, where `only` is not empty): another backend's needs nothing else of PyTorch.
std::vector<kernel::Task> unmeasured_tasks(const store::Run& run, const std::string& only = {});
/// Have PyTorch compile the baselines of several tasks at the same time, where they are for a GPU, so that measuring them does not wait.
void compile_baselines_ahead(Session& session, const std::vector<kernel::Task>& tasks);

/// The scheduler of the run's tasks (of one, where `only` is not empty).
plan::Scheduler make_scheduler(Session& session, const plan::Budget& budget, const std::string& only = {});
/// Search until the budget is spent or Ctrl-C. Serves `bench` from other processes between experiments.
/// Returns why it ended.
std::string search_kernels(Session& session, const plan::Budget& budget, const std::string& only);

/// The task's incumbent and its best baseline, measured in turn and recorded; what is recorded of this incumbent is not measured again.
/// Nothing where the judge refuses the incumbent now, which is said and recorded.
std::optional<store::Confirmation> confirm(Session& session, const std::string& task);
/// Confirm each winner, and put those that win into bundles/; bundles that no longer win are removed.
void bundle_winners(Session& session);
/// verification.json: the model with its kernels against the model without. Null on the null device.
Json verify_model(Session& session, int64_t rounds);

}  // namespace ak::cli
