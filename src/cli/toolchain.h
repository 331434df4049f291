// The compiler of a backend, and the judge of a device, as every command sets them up.
#pragma once

#include <memory>
#include <string>

#include "compile/compiler.h"
#include "core/file.h"
#include "core/json.h"

namespace ak::cli {

/// For `cpu` or `cuda`, the latter for the driver's first GPU. `cache`: where compiled modules wait.
/// errors: no compiler, no headers, no GPU.
std::unique_ptr<compile::Compiler> make_compiler(const std::string& backend,
                                                 const std::filesystem::path& cache = cache_directory() / "compile");

/// What to open the judge of a device with (docs/formats/judge.md); compiles the judge's own kernels, where it runs some on a GPU.
/// errors: they do not compile.
Json judge_opening(const std::string& device, const compile::Compiler& compiler);

}  // namespace ak::cli
