// A finished kernel made ready for one call site: the plan's numbers are known, the module is loaded and checked, memory is at hand.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernel/launch_plan.h"
#include "runtime/call_site.h"
#include "runtime/kernel_module.h"
#include "runtime/workspace.h"

namespace ak::runtime {

/// Run `function` over [begin, end) in parts of at least `grain` on some threads, and return when all is done: torch_parallel_for.
using ParallelFor = int32_t (*)(int64_t begin, int64_t end, int64_t grain, void (*function)(int64_t, int64_t, void*), void* context);

class Instance {
 public:
  /// `weights`: the tensors of role weight, whose content [[prepare]] launches read.
  /// errors: a plan that does not fit the module or names a tensor that the call site lacks.
  Instance(CallSite site, kernel::ConcretePlan plan, std::unique_ptr<Kernels> module, int64_t workers, std::vector<std::string> weights);

  const CallSite& site() const { return site_; }
  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

  /// Empty if these tensors are what the instance was opened for, else what differs.
  std::string difference(std::span<const TensorView> inputs) const;

  /// Compute the outputs from inputs that have no difference(). Any thread may call, several at the same time.
  void call(std::span<void* const> inputs, std::span<void* const> outputs, ParallelFor parallel_for);

 private:
  struct Slot {
    enum class Kind { tensor, buffer, prepared, value } kind;
    size_t index;    // of the tensor (inputs, then outputs) or of the buffer
    uint64_t value;  // the argument's bytes
  };
  struct Launch {
    const KernelRecord* record;
    int64_t blocks;
    std::vector<Slot> slots;
  };
  struct Buffer {
    int64_t size_bytes;
    bool zeroed;
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

  void sort_scratch(const kernel::ConcretePlan& plan);
  Launch resolve(const kernel::ConcreteLaunch& launch) const;
  Slot resolve(const kernel::Argument& argument) const;
  size_t tensor_index(const std::string& name) const;
  std::unique_ptr<Workspace> make_workspace() const;
  std::vector<uint64_t> fingerprint(std::span<void* const> inputs) const;
  std::shared_ptr<const Prepared> prepared_for(std::span<void* const> tensors, Workspace& workspace, ParallelFor parallel_for);
  void run(const Launch& launch, std::span<void* const> tensors, const Workspace& workspace, const Prepared* prepared,
           ParallelFor parallel_for) const;

  CallSite site_;
  std::unique_ptr<Kernels> module_;
  int64_t workers_;
  std::vector<size_t> weight_inputs_;
  std::vector<std::string> buffer_names_, prepared_names_;
  std::vector<Buffer> buffers_, prepared_buffers_;
  std::string per_worker_name_;
  int64_t per_worker_bytes_ = 0;  // for one worker, a multiple of a cache line
  bool per_worker_zeroed_ = false;
  std::vector<Launch> prepare_, launches_;

  std::atomic<int64_t> calls_ = 0;
  Pool<Workspace> workspaces_;
  std::mutex prepared_mutex_;
  std::vector<std::shared_ptr<const Prepared>> prepared_;  // the most recently made last
};

}  // namespace ak::runtime
