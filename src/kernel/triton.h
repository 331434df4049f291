// Between a plan and Triton: what its compiler has to know of a launch, and what the module it makes says of one (docs/formats/triton.md).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/json.h"
#include "kernel/launch_plan.h"

namespace ak::kernel {

/// How the type of an argument begins that is a tensor map.
inline constexpr std::string_view triton_descriptor = "tensordesc<";

/// Of a concrete plan's launches, prepares first: types of the arguments with what Triton's own launcher would specialise on, and
/// constexprs.
Json triton_specification(const KernelFile& file, const Task& task, const Point& point, const ConcretePlan& plan);

/// The plan as its module wants it launched: blocks, clusters, shared memory, arguments, and the scratch that the compiler adds.
/// errors: no module of Triton's; parameters that are passed in a way that this program does not know.
ConcretePlan with_triton_module(ConcretePlan plan, const std::filesystem::path& module);

}  // namespace ak::kernel
