// A suite: standard shapes of families, each a task without a model (playbook/suite/, docs/formats/task.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/family.h"
#include "kernel/task.h"

namespace ak::graph {

/// One line of a suite's table.
struct SuiteRow {
  std::string shape;  // "8192x4096": the group's dims, in their order, and its suffix
  kernel::Task task;  // one contiguous workload binding, called once
};

/// Which rows are wanted; an empty list: all. `dtypes` stand for the suite's own.
struct SuiteFilter {
  std::vector<std::string> families, dtypes, shapes;
};

/// The rows of a suite's TOML for `device` (cuda or cpu) that `filter` lets through, in the file's order, a group's dtypes side by side.
/// `origin` is the file's name for messages.
/// errors: bad TOML, an unknown key, family, spelling, dim or dtype, with file and line; a filter that names what the suite has not.
std::vector<SuiteRow> suite_rows(std::string_view text, const std::string& origin, const Families& families, const std::string& device,
                                 const SuiteFilter& filter = {});

}  // namespace ak::graph
