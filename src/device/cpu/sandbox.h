// What a candidate host may still do once it loads a candidate: compute, and nothing else.
#pragma once

#include <cstdint>

namespace ak::device::cpu {

/// System calls that a filter lets through.
enum class FilterStage {
  loading,  // files may be opened (the dynamic loader does), executable pages mapped
  running,  // neither
};

/// The error number that tells the SIGSYS handler of a refused allocation from a forbidden call.
constexpr int refused_memory = 1, refused_call = 2;

/// No core, no file growth, no new privileges, private memory at most `memory_bytes`. False if one of them failed.
bool limit_process(int64_t memory_bytes);
/// No other process of the user may look inside. After the last file of /proc/self is opened. False if it failed.
bool hide_process();
/// No file can be opened from here on, by Landlock. False where the kernel has none.
bool close_files();
/// Only the calls of `stage`, in every thread; the others raise SIGSYS. False where the kernel has no seccomp.
bool filter_calls(FilterStage stage, int64_t largest_mapping_bytes);

/// "openat" for its number, or null for a call without a name here.
const char* name_of_call(int number);

}  // namespace ak::device::cpu
