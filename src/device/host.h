// Where a candidate runs, as the judge sees it: an arena of memory, a plan to install, launches to wait for.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/kernel_use.h"
#include "kernel/launch_plan.h"

namespace ak::device {

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
  double us = 0;         // of a launch, on the judge's clock; the median where it was repeated
  double second_us = 0;  // the same on a clock of another make, what it costs taken off; 0: there is none
  double waited_us = 0;  // of it, for how long threads of host and judge together were ready to run and had no CPU
  /// CPU time of the host's threads around the launch before this one, from its request to this one's, beyond what its clock has seen.
  std::optional<double> outside_us{};

  bool ok() const { return kind == Kind::done; }
};

/// What the judge does off the clock, at moments that the host does not choose.
struct Moments {
  std::function<void(int repeat, int repeats)> at_start;  // when the host is ready and has not started; may change and push memory
  std::function<void()> at_end;                           // as soon as it says it is done
  std::function<void()> while_stopped;                    // before at_start: no thread of the host runs from then until the clock does; CPU
  bool awake = false;                                     // watch for the end without sleeping, so that nothing happens between the two
  int repeats = 1;  // a device may run the launches as often for one answer, its outputs as they were before each; else once
};

/// Where in the arena a plan's tensors and scratch lie. Offsets and sizes in bytes.
struct Placement {
  std::map<std::string, int64_t> pointers;
  int64_t worker_scratch = -1, worker_stride = 0;    // of the scratch that each worker has to itself, if there is one
  std::vector<std::pair<int64_t, int64_t>> zeros;    // begin and size of what is zeroed before each launch
  std::vector<std::pair<int64_t, int64_t>> written;  // of what a launch may write
};

class Host {
 public:
  virtual ~Host() = default;

  /// Wait until the candidate is loaded.
  virtual Outcome load() = 0;
  /// The first `bytes` of the arena; grows as needed, never moves in the host.
  /// errors: no memory.
  virtual std::span<std::byte> arena(int64_t bytes) = 0;
  /// Bytes of the arena that were written here have to reach the candidate before its next launch.
  virtual void push(int64_t begin, int64_t bytes) = 0;
  /// Bytes of the arena that the candidate may have written are about to be read here.
  virtual void pull(int64_t begin, int64_t bytes) = 0;

  /// Check kernels and parameters, and make the plan the one to launch.
  virtual Outcome install(const kernel::ConcretePlan& plan, const Placement& placement) = 0;
  virtual Outcome prepare(double timeout_seconds) = 0;
  /// The launches on `workers` threads, where the device has such.
  virtual Outcome launch(int workers, double timeout_seconds, const Moments& moments = {}) = 0;

  /// What the launches of the installed plan take, each kernel and size of block once; nothing where the device does not say.
  virtual std::vector<KernelUse> uses() const { return {}; }

  /// Let none of its threads run until resume(), where they are this machine's.
  virtual void stop() {}
  virtual void resume() {}

  virtual int workers() const = 0;
  /// In bytes, of the tensors that programs on the device allocate.
  virtual int64_t alignment() const = 0;
  /// Whether the candidate computes on the arena's own bytes, so that a push costs nothing.
  virtual bool shares_memory() const { return false; }
  /// What a plan may declare in all.
  virtual int64_t most_scratch_bytes() const = 0;
  virtual bool alive() const = 0;
};

}  // namespace ak::device
