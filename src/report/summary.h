// The end of a run for a terminal and for a program.
#pragma once

#include <string>

#include "report/view.h"

namespace ak::report {

/// The last line of `--json`.
Json final_json(const RunView& run);

/// The table of tasks and the end-to-end table.
std::string summary_text(const RunView& run, size_t width, bool colour);

/// Rows of the end-to-end table: what was compared with, with the speed-up and its 95 % interval.
struct Comparison {
  std::string name;
  double speedup = 0, ci_low = 0, ci_high = 0, us = 0;  // us: of one forward of what was compared with, 0 where it is not known
};
/// eager, torch.compile and replacement_off first, then others by name.
std::vector<Comparison> comparisons(const RunView& run);

/// A number of the verification; 0 where it is missing or null.
double number_or_zero(const Json& object, const std::string& key);

}  // namespace ak::report
