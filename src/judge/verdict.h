// The outcome of a trial, as data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace ak::judge {

/// docs/formats/judge.md. `failed_environment` is never charged to a candidate.
enum class Verdict {
  kept,
  slower,
  wrong,
  nondeterministic,
  out_of_bounds,
  changed_input,
  stale_output,
  does_not_compile,
  does_not_fit,
  crashed,
  timed_out,
  out_of_memory,
  cheating,
  clock_disagrees,
  failed_environment,
};

std::string_view name_of(Verdict verdict);
/// errors: an unknown name.
Verdict parse_verdict(std::string_view name);

}  // namespace ak::judge
