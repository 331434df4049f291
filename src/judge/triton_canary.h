// Whether this version of Triton launches on this device as its modules say: a known kernel, before any candidate.
#pragma once

#include <filesystem>

#include "compile/compiler.h"
#include "judge/judge_process.h"

namespace ak::judge {

/// Compile `canary` (kernels/include/judge/canary.py), launch it in the judge and compare.
/// errors: it does not compile, or does not compute what it should; with the version and what to do.
void prove_triton(JudgeProcess& process, const compile::Compiler& compiler, const std::filesystem::path& canary);

}  // namespace ak::judge
