// `bench --judge-rate`: how fast and how steady the judge is on this machine.
#pragma once

#include "cli/options.h"
#include "core/json.h"

namespace ak::cli {

/// Print judgements an hour as the search feeds them, how far repeated judgements of one kernel agree, and copies by us and by the
/// system on the judge's clock (docs/formats/command-line.md).
/// errors: no compiler, no PyTorch, no judge.
Exit judge_rate(const Options& options);

/// The same for a person.
std::string judge_rate_text(const Json& result);

/// How many of `values` differ from their median by at most `share` of it, and by how much of it the farthest two differ from each other.
Json agreement(const std::vector<double>& values, double share);

}  // namespace ak::cli
