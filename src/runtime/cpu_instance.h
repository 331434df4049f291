// A finished kernel on the CPU: the module is loaded and checked, blocks run on PyTorch's threads, memory is at hand.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/instance.h"
#include "runtime/kernel_module.h"
#include "runtime/workspace.h"

namespace ak::runtime {

/// Run `function` over [begin, end) in parts of at least `grain` on some threads, and return when all is done: torch_parallel_for.
using ParallelFor = int32_t (*)(int64_t begin, int64_t end, int64_t grain, void (*function)(int64_t, int64_t, void*), void* context);

class CpuInstance : public Instance {
 public:
  /// `weights`: the tensors of role weight, whose content [[prepare]] launches read.
  /// errors: a plan that does not fit the module or names a tensor that the call site lacks.
  CpuInstance(CallSite site, const kernel::ConcretePlan& plan, std::unique_ptr<Kernels> module, int64_t workers,
              const std::vector<std::string>& weights);

  /// Compute the outputs from inputs that have no difference(). Any thread may call, several at the same time.
  void call(std::span<void* const> inputs, std::span<void* const> outputs, ParallelFor parallel_for);

 private:
  struct Launch {
    const KernelRecord* record;
    int64_t blocks;
    std::vector<Slot> slots;
  };
  /// What one call in flight needs for itself.
  struct Workspace {
    std::vector<AlignedBuffer> buffers;
    AlignedBuffer per_worker;
  };
  /// What [[prepare]] made of one set of weights.
  struct Prepared {
    std::vector<uint64_t> weights;  // addresses, and words of the content
    std::vector<AlignedBuffer> buffers;
  };

  void find_worker_scratch(const kernel::ConcretePlan& plan);
  Launch resolve(const kernel::ConcreteLaunch& launch) const;
  std::unique_ptr<Workspace> make_workspace() const;
  std::vector<uint64_t> fingerprint(std::span<void* const> inputs) const;
  std::shared_ptr<const Prepared> prepared_for(std::span<void* const> tensors, Workspace& workspace, ParallelFor parallel_for);
  void run(const Launch& launch, std::span<void* const> tensors, const Workspace& workspace, const Prepared* prepared,
           ParallelFor parallel_for) const;

  std::unique_ptr<Kernels> module_;
  int64_t workers_;
  int64_t per_worker_bytes_ = 0;  // for one worker, a multiple of a cache line
  bool per_worker_zeroed_ = false;
  std::vector<Launch> prepare_, launches_;

  Pool<Workspace> workspaces_;
  std::mutex prepared_mutex_;
  std::vector<std::shared_ptr<const Prepared>> prepared_;  // the most recently made last
};

}  // namespace ak::runtime
