// The two pages through which a judge drives a candidate host: the host can only read the one, and the judge trusts nothing in the other.
#pragma once

#include <atomic>
#include <cstdint>

namespace ak::device::cpu {

constexpr int32_t maximum_launches = 64, maximum_arguments = 2048, maximum_zeros = 1024;
constexpr int command_fd = 3, status_fd = 4, arena_fd = 5, module_fd = 6;  // of the host
constexpr const char* no_module = "none";                                  // the host then has the built-in kernels alone

struct ArgumentEntry {
  enum Kind : int32_t { null_pointer, arena_pointer, integer, real };
  int32_t kind, unused;
  int64_t value;  // an offset into the arena, the integer, or the bits of the float
};

struct LaunchEntry {
  char kernel[120];
  int64_t blocks;
  int32_t first_argument, argument_count;
  int64_t scratch_offset, scratch_stride;  // the part of worker w is at offset + w * stride; none below 0
};

/// Filled with zeros before the launches, within the measured time.
struct ZeroEntry {
  int64_t offset, bytes;
};

enum class Request : uint32_t { install, prepare, launch };

/// Written by the judge; the host maps it read-only.
struct CommandPage {
  std::atomic<uint32_t> request;  // the sequence number of what is asked; a futex
  std::atomic<uint32_t> go;       // the armed request may start; a futex
  Request verb;
  int32_t workers;
  int32_t launch_count, prepare_count, zero_count, argument_count;
  LaunchEntry launches[maximum_launches];  // the launches, then the prepares
  ArgumentEntry arguments[maximum_arguments];
  ZeroEntry zeros[maximum_zeros];
};

enum class HostCode : int32_t { none, cannot_load, no_kernel, parameters_differ, forbidden_call, out_of_memory, state_changed, crashed };

/// Written by the host.
struct StatusPage {
  std::atomic<uint32_t> armed;  // sequence number; a futex
  std::atomic<uint32_t> done;   // sequence number; a futex
  HostCode code;
  int32_t detail;   // a system call's number, a launch's index, a signal
  int32_t sandbox;  // bits of Sandbox
  int32_t unused[3];
  char text[1024];
  unsigned char rest[4096 - 32 - 1024];  // zero
};
static_assert(sizeof(StatusPage) == 4096);

/// How far the sandbox of a host reaches on this machine.
enum Sandbox : int32_t { sandbox_limits = 1, sandbox_calls = 2, sandbox_files = 4 };

/// Wait while `word` is `value`, at most `timeout_us`; other processes share the word.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_us);
void futex_wake(const std::atomic<uint32_t>& word);

}  // namespace ak::device::cpu
