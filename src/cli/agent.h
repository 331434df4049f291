// Coding agents as proposers: each edits one kernel in a working copy of its own, and this engine alone judges, keeps and records.
#pragma once

#include "cli/options.h"
#include "cli/session.h"
#include "plan/scheduler.h"

namespace ak::cli {

/// Check what can be checked before anything is started; does nothing where no agent was asked for.
/// errors: a command that is none or does not exist, no confinement.
void check_agent(const Options& options);

/// Let agents propose for the tasks of the run (one, where `only` is not empty), the most promising first and `options.agents` at a time,
/// until each has had its minutes and rounds, `budget` is spent, or Ctrl-C. An agent that fails is recorded, and is no error.
/// Returns why it ended.
std::string let_agents_propose(Session& session, const Options& options, const plan::Budget& budget, const std::string& only);

}  // namespace ak::cli
