// A candidate host as its judge sees it: an arena of shared memory, a program to install, launches to wait for.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/process.h"
#include "device/cpu/control.h"
#include "device/host.h"

namespace ak::device::cpu {

struct HostLimits {
  int64_t memory_bytes = int64_t{1} << 30;  // private memory of the candidate
  double load_seconds = 5;
};

/// A plan with addresses: offsets into the arena.
struct Program {
  std::vector<LaunchEntry> launches, prepares;
  std::vector<ArgumentEntry> arguments;
  std::vector<ZeroEntry> zeros;
};

/// One `autokernel-judge --host` and the memory shared with it. Dies with the object.
class Host final : public device::Host {
 public:
  /// `module`: a shared object, copied, or nothing for the built-in kernels alone.
  /// errors: the process or its memory cannot be made.
  Host(const std::filesystem::path& executable, const std::optional<std::filesystem::path>& module, int workers,
       const HostLimits& limits = {});
  ~Host() override;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  Outcome load() override;
  /// Sandbox levels reached, after load().
  int32_t sandbox() const { return sandbox_; }

  std::span<std::byte> arena(int64_t bytes) override;
  void push(int64_t, int64_t) override {}  // the memory is shared
  void pull(int64_t, int64_t) override {}

  Outcome install(const kernel::ConcretePlan& plan, const Placement& placement) override;
  /// The same of a program with built-in kernels.
  Outcome install(const Program& program);
  Outcome prepare(double timeout_seconds) override { return run(Request::prepare, workers_, timeout_seconds, {}); }
  Outcome launch(int workers, double timeout_seconds, const Moments& moments = {}) override {
    return run(Request::launch, workers, timeout_seconds, moments);
  }

  void stop() override { process_->stop(); }
  void resume() override { process_->resume(); }

  int workers() const override { return workers_; }
  int64_t alignment() const override { return 64; }
  bool shares_memory() const override { return true; }
  int64_t most_scratch_bytes() const override { return limits_.memory_bytes; }
  bool alive() const override { return !ended_; }

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
  /// Of the host's threads and this one.
  double waited_us() const;
  /// CPU time of the host's threads.
  double ran_us() const;

  int workers_;
  HostLimits limits_;
  Descriptor arena_fd_;
  CommandPage* command_ = nullptr;
  StatusPage* status_ = nullptr;
  std::span<std::byte> arena_;
  std::optional<Process> process_;
  std::vector<Descriptor> schedules_;  // /proc/…/schedstat of our thread and then the host's
  struct {
    double ran_us, clocked_us;  // when it was asked for; CPU time that its clock allows for
  } last_launch_{};
  bool launched_ = false;  // since the last request of another kind
  uint32_t sequence_ = 0;
  int32_t sandbox_ = 0;
  bool ended_ = false;
};

}  // namespace ak::device::cpu
