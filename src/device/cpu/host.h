// A candidate host as its judge sees it: an arena of shared memory, a program to install, launches to wait for.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/process.h"
#include "device/cpu/control.h"

namespace ak::device::cpu {

struct HostLimits {
  int64_t memory_bytes = int64_t{1} << 30;  // private memory of the candidate
  double load_seconds = 5;
};

/// How a request to the host ended.
struct Outcome {
  enum class Kind {
    done,
    cannot_load,
    does_not_fit,
    crashed,
    timed_out,
    out_of_memory,
    forbidden,
    tampered,
    state_changed
  } kind = Kind::done;
  std::string text;
  int signal = 0;
  double us = 0;         // of a launch, on the judge's clock
  double waited_us = 0;  // of it, for how long threads of host and judge together were ready to run and had no CPU

  bool ok() const { return kind == Kind::done; }
};

/// What the judge does off the clock, at moments that the host does not choose.
struct Moments {
  std::function<void()> at_start, at_end;  // when the host is ready and has not started; as soon as it says it is done
  bool awake = false;                      // watch for the end without sleeping, so that nothing happens between the two
};

/// A plan with addresses: offsets into the arena.
struct Program {
  std::vector<LaunchEntry> launches, prepares;
  std::vector<ArgumentEntry> arguments;
  std::vector<ZeroEntry> zeros;
};

/// One `autokernel-judge --host` and the memory shared with it. Dies with the object.
class Host {
 public:
  /// `module`: a shared object, copied, or nothing for the built-in kernels alone.
  /// errors: the process or its memory cannot be made.
  Host(const std::filesystem::path& executable, const std::optional<std::filesystem::path>& module, int workers,
       const HostLimits& limits = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// Wait until the candidate is loaded.
  Outcome load();
  /// Sandbox levels reached, after load().
  int32_t sandbox() const { return sandbox_; }

  /// The first `bytes` of the arena; grows as needed, never moves in the host.
  /// errors: no memory.
  std::span<std::byte> arena(int64_t bytes);

  /// Check kernels and parameters, and make the program the one to launch.
  Outcome install(const Program& program);
  Outcome prepare(double timeout_seconds) { return run(Request::prepare, workers_, timeout_seconds, {}); }
  /// The launches on `workers` threads.
  Outcome launch(int workers, double timeout_seconds, const Moments& moments = {}) {
    return run(Request::launch, workers, timeout_seconds, moments);
  }

  int workers() const { return workers_; }
  bool alive() const { return !ended_; }

 private:
  Outcome run(Request verb, int workers, double timeout_seconds, const Moments& moments);
  Outcome wait_for(const std::atomic<uint32_t>& word, uint32_t value, int64_t deadline_ns, int64_t awake_until_ns = 0);
  Outcome tampered();
  Outcome failure_of_status() const;
  Outcome end_of_process(const ExitStatus& status) const;
  bool status_is_clean() const;
  bool filters_hold() const;
  void fill_command(const Program& program);
  void watch_threads();
  double waited_us() const;

  int workers_;
  HostLimits limits_;
  Descriptor arena_fd_;
  CommandPage* command_ = nullptr;
  StatusPage* status_ = nullptr;
  std::span<std::byte> arena_;
  std::optional<Process> process_;
  std::vector<Descriptor> schedules_;  // /proc/…/schedstat of the host's threads and ours
  uint32_t sequence_ = 0;
  int32_t sandbox_ = 0;
  bool ended_ = false;
};

}  // namespace ak::device::cpu
