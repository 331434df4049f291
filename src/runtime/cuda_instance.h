// A finished kernel on a GPU: launches go to the caller's stream, and may be captured in a CUDA graph.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "runtime/cuda_module.h"
#include "runtime/instance.h"

namespace ak::runtime {

/// What a call asks of PyTorch.
class Caller {
 public:
  virtual ~Caller() = default;
  /// Memory of the device, good for work on the call's stream until the call returns.
  /// errors: none left.
  virtual void* take(int64_t size_bytes) = 0;
  /// No other tensor gets the memory of this input for as long as the result lives.
  virtual std::shared_ptr<void> keep(size_t input) = 0;
};

class CudaInstance : public Instance {
 public:
  /// `images`: the cubins. `weights`: the tensors of role weight, whose content [[prepare]] launches read.
  /// errors: a plan that does not fit the module, the device or the call site.
  CudaInstance(CallSite site, const kernel::ConcretePlan& plan, std::unique_ptr<PrimaryContext> context,
               const std::vector<std::string>& images, const std::vector<std::string>& weights);

  /// What calls go to whose tensors do not all begin at multiples of 16 bytes, where the module relies on that.
  void set_unaligned(std::unique_ptr<CudaInstance> instance) { unaligned_ = std::move(instance); }

  int device_index() const { return context_->index(); }

  /// Launch on `stream` what computes the outputs from inputs that have no difference(). Any thread may call, several at the same time.
  void call(std::span<void* const> inputs, std::span<void* const> outputs, device::cuda::CUstream stream, Caller& caller);

  void weights_changed() override;

 private:
  struct TensorMap {
    kernel::ConcreteTensorMap map;
    Slot of;
  };
  struct Launch {
    device::cuda::CUfunction function;
    device::cuda::CUlaunchConfig config;  // but for the stream and the attributes
    std::vector<device::cuda::CUlaunchAttribute> attributes;
    std::vector<Slot> slots;
  };
  /// Where buffers lie in one piece of memory: those to be zeroed first.
  struct Layout {
    std::vector<int64_t> offsets;
    int64_t zeroed_bytes = 0, size_bytes = 0;
  };
  /// The memory of one call.
  struct Memory {
    device::cuda::CUdeviceptr buffers = 0, prepared = 0;
    bool prepared_just_now = false;
  };
  /// What [[prepare]] made of one set of weights. It stays until the instance is closed, since a graph may hold its address.
  struct Prepared {
    std::vector<void*> weights;               // their addresses
    std::vector<std::shared_ptr<void>> kept;  // so that these stay theirs
    DeviceMemory memory;
    bool stale = true;  // to be made, or made again in place
  };

  static Layout lay_out(const std::vector<Buffer>& buffers);
  std::vector<Launch> resolve(const std::vector<kernel::ConcreteLaunch>& launches) const;
  void zero(device::cuda::CUdeviceptr memory, const Layout& layout, device::cuda::CUstream stream) const;
  void find_prepared(std::span<void* const> tensors, Memory& memory, device::cuda::CUstream stream, Caller& caller);
  Prepared& add_prepared(std::vector<void*> weights, Caller& caller);
  void prepare(std::span<void* const> tensors, const Memory& memory, device::cuda::CUstream stream) const;
  uint64_t value_of(const Slot& slot, std::span<void* const> tensors, const Memory& memory) const;
  bool is_capturing(device::cuda::CUstream stream) const;
  void run(const Launch& launch, std::span<void* const> tensors, const Memory& memory, device::cuda::CUstream stream,
           bool may_overlap) const;

  const std::unique_ptr<PrimaryContext> context_;
  const device::cuda::Driver& driver_;
  std::unique_ptr<CudaModule> module_;
  std::vector<TensorMap> tensor_maps_;
  std::vector<Launch> prepare_, launches_;
  Layout layout_, prepared_layout_;

  std::unique_ptr<CudaInstance> unaligned_;

  std::mutex prepared_mutex_;
  std::vector<std::unique_ptr<Prepared>> prepared_;
};

}  // namespace ak::runtime
