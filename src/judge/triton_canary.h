// Whether this version of Triton launches on this device as its modules say: a known kernel, before any candidate.
#pragma once

#include <filesystem>

#include "compile/compiler.h"
#include "judge/judge_process.h"

namespace ak::judge {

/// Compile each canary of `folder` (kernels/include/judge), launch it in the judge and compare. Where those with tensor maps fail on a
/// device that has them, `compiler` refuses kernels that take any.
/// errors: another canary does not compile, or does not compute what it should; with the version and what to do.
void prove_triton(JudgeProcess& process, compile::Compiler& compiler, const std::filesystem::path& folder);

}  // namespace ak::judge
