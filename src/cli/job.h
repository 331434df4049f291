// What follows once a run has its tasks, as `run` and its like share it.
#pragma once

#include <string>

#include "cli/options.h"
#include "cli/session.h"

namespace ak::cli {

/// Agents first, where any were asked for, then the built-in search with what is left of the budget; all tasks, or one. Returns why it
/// ended.
std::string search(Session& session, const Options& options, const std::string& only);

/// Baselines, search, the winners in turn with the baselines, and, unless no rounds of it are wanted, the model with them. Ctrl-C ends it.
void search_and_verify(Session& session, const Options& options);

}  // namespace ak::cli
