// `bench --self-test --crashes N`: candidates that die, hang or take all memory, one after another, and what they leave behind.
#pragma once

#include "cli/options.h"

namespace ak::cli {

/// Print {"trials", "as_expected", "twins", "twins_kept", "processes_left", "files_left", "memory_growth_mb", "device_memory_growth_mb",
/// "seconds"}; done only if every trial got its verdict, every twin in between was kept, and nothing is left.
Exit crash_series(const Options& options);

/// Of --device. errors: neither cpu nor cuda.
std::string self_test_device(const Options& options);

}  // namespace ak::cli
