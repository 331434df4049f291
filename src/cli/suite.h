// `bench --suite`: a run whose tasks are the standard shapes of the families, searched and measured in slices of minutes.
#pragma once

#include "cli/options.h"

namespace ak::cli {

/// Give each row its share of the minutes: baselines, search, and its winner against the best baseline in turn. Print the table.
/// Rows that did not get their turn are left to the next call, which goes on from what the run holds.
Exit bench_suite(Options& options);

}  // namespace ak::cli
