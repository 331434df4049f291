// `autokernel kernelbench`: the problems of a KernelBench checkout through this program.
#pragma once

#include "cli/options.h"

namespace ak::cli {

/// Hand the request over to the Python package that knows the benchmark's problems; returns only where that cannot be started.
/// errors: no Python, an unknown dtype or backend.
Exit kernelbench(Options& options);

}  // namespace ak::cli
