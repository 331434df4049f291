// A resumed run that found nothing new keeps the verification that it has.
#include "cli/job.h"

#include <nlohmann/json.hpp>

#include "cli/agent.h"
#include "cli/steps.h"
#include "core/file.h"

namespace ak::cli {
namespace {

constexpr double default_minutes = 10;

plan::Budget budget_of(const Options& options, const store::Run& run) {
  if (options.experiments) return {.minutes = std::nullopt, .experiments = std::max<int64_t>(0, *options.experiments - run.experiments())};
  return {.minutes = options.minutes.value_or(default_minutes), .experiments = std::nullopt};
}

}  // namespace

std::string search(Session& session, const Options& options, const std::string& only) {
  Options left = options;
  if (!options.agent.empty()) {
    const int64_t start_ns = session.clock().now_ns();
    plan::Budget budget = budget_of(options, session.run());
    if (!options.minutes) budget.minutes.reset();  // each agent has its own
    session.progress().note("agents: " + let_agents_propose(session, options, budget, only));
    if (stop_requested()) return "stopped";
    if (left.minutes) *left.minutes = std::max(0.0, *left.minutes - session.clock().seconds_since(start_ns) / 60);
  }
  return search_kernels(session, budget_of(left, session.run()), only);
}

void search_and_verify(Session& session, const Options& options) {
  measure_baselines(session);
  const int64_t before = session.run().experiments();
  if (!stop_requested()) search(session, options, {});
  const bool verified = session.has("verification.json") && session.run().experiments() == before;
  if (!stop_requested() && !verified) {
    session.save_state();
    bundle_winners(session);
    if (options.rounds > 0) verify_model(session, options.rounds);
  }
  session.save_state();
}

}  // namespace ak::cli
