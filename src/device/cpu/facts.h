// What expressions of kernel files and the flush of the caches need to know of a CPU.
#pragma once

#include "core/expression.h"

namespace ak::device::cpu {

/// `workers` (threads of a launch), `l2_bytes` (of one core), `l3_bytes`.
Bindings facts(int workers);

/// CPUs that this process may use.
int available_cpus();

/// How many bytes to read so that nothing of before is left in a cache: twice the largest one, at most 256 MiB.
int64_t flush_bytes();

}  // namespace ak::device::cpu
