// One function a command; each is a short list of steps.
#pragma once

#include "cli/options.h"

namespace ak::cli {

Exit doctor(Options& options);
Exit run(Options& options);
Exit prepare(Options& options);
Exit profile(Options& options);
Exit extract(Options& options);
Exit next(Options& options);
Exit bench(Options& options);
Exit optimize(Options& options);
Exit verify(Options& options);
Exit report(Options& options);
Exit export_kernels(Options& options);

}  // namespace ak::cli
