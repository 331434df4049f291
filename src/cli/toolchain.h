// The compiler of a backend, and the judge of a device, as every command sets them up.
#pragma once

#include <memory>
#include <string>

#include "compile/compiler.h"
#include "core/file.h"
#include "core/json.h"
#include "kernel/kernel_file.h"

namespace ak::cli {

/// For the driver's first GPU where the backend is for GPUs. `cache`: where compiled modules wait.
/// errors: no compiler, no headers, no GPU.
std::unique_ptr<compile::Compiler> make_compiler(kernel::Backend backend,
                                                 const std::filesystem::path& cache = cache_directory() / "compile");

/// What to open the judge of a device with (docs/formats/judge.md); compiles the judge's own kernels, where it runs some on a GPU.
/// `compiler`: of the backend that is called as the device.
/// errors: they do not compile.
Json judge_opening(const std::string& device, const compile::Compiler& compiler);

}  // namespace ak::cli
