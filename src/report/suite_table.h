// What a suite found: a row a shape, with every baseline, the floor and our own kernel.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "store/run.h"

namespace ak::report {

/// One shape, as far as it was measured.
struct SuiteLine {
  std::string family, shape, dtype;
  store::TaskState state;
};

/// Lines of tab-separated text: a header, a row a shape, and last the geometric mean of best/ours over the rows that have a kernel.
/// units: microseconds; `-` where nothing was measured. A column `backend` where there are several.
std::string suite_tsv(const std::vector<SuiteLine>& lines);

/// One row in words, for whoever watches.
std::string suite_text(const SuiteLine& line);

/// The same as {"rows": […], "geometric_mean": x or null, "with_kernel": n}.
Json suite_json(const std::vector<SuiteLine>& lines);

}  // namespace ak::report
