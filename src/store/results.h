// results.tsv: the view of a run that a person opens in a spreadsheet.
#pragma once

#include <string>

#include "store/run.h"

namespace ak::store {

/// The header line.
std::string results_header();
/// Experiment 0 of a task.
std::string results_row(const TaskState& task, const Baseline& baseline);
/// A trial; empty for failed_environment.
std::string results_row(const TaskState& task, const Trial& trial);

}  // namespace ak::store
