// `bench --solution`: a Python solution before the judge of lower trust.
#pragma once

#include "cli/options.h"

namespace ak::cli {

/// Become the Python process that judges the solution (docs/formats/solution.md), whose exit code is this program's.
/// errors: there is no Python, or it cannot be started.
[[noreturn]] void judge_solution(const Options& options);

}  // namespace ak::cli
