// One device of this process: its context, stream, clock, spare memory, and the judge's own kernels.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/expression.h"
#include "device/cuda/driver.h"
#include "device/cuda/launch.h"

namespace ak::device::cuda {

/// A launch with its kernel and its numbers; none where it has no blocks.
struct Launch {
  CUfunction function = nullptr;
  kernel::ConcreteLaunch plan;         // but for the arguments
  std::vector<uint64_t> arguments;     // each in its lowest bytes
  std::map<size_t, CUtensorMap> maps;  // in the place of some of them
};

/// Device memory, and as much page-locked memory of the host beside it.
struct Arena {
  CUdeviceptr device = 0;
  std::byte* host = nullptr;
  int64_t bytes = 0;
};

class Context {
 public:
  /// `builtin`: the compiled kernels/include/judge/builtin.cu.
  /// errors: no driver, no such device, no memory.
  Context(int index, const std::filesystem::path& builtin);

  CUdevice device() const { return device_; }
  CUstream stream() const { return stream_; }
  /// Of one of the judge's own kernels.
  Launch builtin(const char* name, int64_t blocks, int64_t threads, std::vector<uint64_t> arguments) const;
  int64_t builtin_flops_a_round() const { return flops_a_round_; }
  int64_t flush_bytes() const { return flush_bytes_; }

  /// errors: nothing; the driver's result.
  CUresult launch(const Launch& launch) const;
  /// Enqueue reading a buffer of flush_bytes().
  CUresult flush() const;

  /// Median time between two events around what `enqueue` puts on the stream, L2 emptied before; the host's side waits at most so long.
  /// `before`: off the clock, with the number of the repeat.
  /// A second clock: kernels of our own before the first event and after the second one read the device's global timer. 0 where the
  /// device did not wait for all of it to be enqueued: then the last stamp waited for the host.
  struct Timed {
    CUresult result = CUDA_SUCCESS;
    bool timed_out = false;
    double us = 0, second_us = 0;
  };
  Timed timed(const std::function<CUresult()>& enqueue, double timeout_seconds, int repeats = 1,
              const std::function<CUresult(int)>& before = {});

  /// A repeat needs two events; the stamps have room for max_repeats.
  static constexpr int max_repeats = 64;

  /// errors: no memory.
  Arena take_arena(int64_t bytes);
  void give_back(Arena arena);

  /// The context is of no use any more: a kernel faulted or does not end.
  bool lost() const { return lost_; }
  void set_lost() { lost_ = true; }

 private:
  void start_second_clock();
  CUresult stamp(int which) const;

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<std::pair<CUevent, CUevent>> events_;  // of a repeat each
  CUdeviceptr stamps_ = 0;                           // two a repeat, of the second clock
  CUfunction stamp_ = nullptr;
  double stamps_cost_us_ = 0;  // by how much a time between two stamps exceeds that between the events inside
  CUmodule builtin_ = nullptr;
  Launch reading_;  // the flush buffer
  CUdeviceptr flush_buffer_ = 0;
  int64_t flush_bytes_ = 0, flops_a_round_ = 0;
  std::vector<Arena> spare_;
  bool lost_ = false;
};

}  // namespace ak::device::cuda
