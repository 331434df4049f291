// A finished kernel made ready for one call site: what instances on every device have in common.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "kernel/launch_plan.h"
#include "runtime/call_site.h"

namespace ak::runtime {

inline constexpr size_t max_tensors = 16;     // of a call
inline constexpr size_t max_parameters = 64;  // of a kernel

enum class DeviceType { cpu, cuda };

class Instance {
 public:
  virtual ~Instance() = default;

  DeviceType device_type() const { return device_type_; }
  const CallSite& site() const { return site_; }
  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

  /// Empty if these tensors are what the instance was opened for, else what differs.
  std::string difference(std::span<const TensorView> inputs) const;

  /// Weights may have been overwritten in place: prepare them again where the instance does not notice that by itself.
  virtual void weights_changed() {}

 protected:
  struct Slot {
    enum class Kind { tensor, buffer, prepared, tensor_map, value } kind;
    size_t index;    // of the tensor (inputs, then outputs), of the buffer or of the tensor map
    uint64_t value;  // the argument's bytes
  };
  struct Buffer {
    int64_t size_bytes;
    bool zeroed;
  };

  /// `weights`: the tensors of role weight, whose content [[prepare]] launches read.
  /// errors: a [[prepare]] launch that reads what is no weight, tensors that the call site lacks.
  Instance(DeviceType device_type, CallSite site, const kernel::ConcretePlan& plan, const std::vector<std::string>& weights);

  /// errors: a tensor that the call site lacks, scratch that is not declared or is for one worker.
  std::vector<Slot> slots_of(const kernel::ConcreteLaunch& launch) const;
  /// Where the tensor or scratch of an argument is.
  Slot slot_of(const kernel::Argument& argument) const;
  void count_call() { calls_.fetch_add(1, std::memory_order_relaxed); }

  const std::vector<size_t>& weight_inputs() const { return weight_inputs_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<Buffer>& prepared_buffers() const { return prepared_buffers_; }

 private:
  void sort_scratch(const kernel::ConcretePlan& plan);
  size_t tensor_index(const std::string& name) const;

  DeviceType device_type_;
  CallSite site_;
  std::vector<size_t> weight_inputs_;
  std::vector<std::string> buffer_names_, prepared_names_, tensor_map_names_;
  std::vector<Buffer> buffers_, prepared_buffers_;  // of a call; of the weights
  std::atomic<int64_t> calls_ = 0;
};

}  // namespace ak::runtime
