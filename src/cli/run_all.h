// Several models one after another, by one set of processes: what takes seconds to start is started once.
#pragma once

#include "cli/options.h"

namespace ak::cli {

/// `run` for each model of the list (docs/formats/command-line.md). A model that fails is told and does not keep the others from running.
Exit run_all(Options& options);

}  // namespace ak::cli
