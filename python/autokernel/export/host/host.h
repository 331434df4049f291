// What a PyTorch operator needs to call a finished kernel: its plan as a table, the check of its inputs, and its outputs.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace autokernel_host {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

/// What a tensor of the call must be. units: elements.
struct TensorSpec {
  const char* name;
  ScalarType dtype;
  std::vector<int64_t> shape, strides;
};

struct Argument {
  enum Kind { tensor, scratch, prepared, integer, real, null } kind;
  int64_t integer_or_index = 0;  // tensors: inputs, then outputs
  float real_value = 0;
};

/// Memory that a plan asks for. Scratch that [[prepare]] launches write belongs to the weights, the rest to a call.
struct Scratch {
  int64_t bytes;
  bool zeroed;
};

struct KernelRecord;  // of a CPU kernel

struct Launch {
  const char* kernel;
  const KernelRecord* record;  // CPU
  int64_t grid[3], block[3], cluster[3], shared_bytes;
  bool overlap, cooperative;
  std::vector<Argument> arguments;

  int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
};

/// One tuned kernel: the contract of one call, and the launches that compute it.
struct Plan {
  const char* name;
  const unsigned char* image;  // a cubin, on a GPU
  std::vector<TensorSpec> inputs, outputs;
  std::vector<int64_t> weights;  // inputs that [[prepare]] launches read
  std::vector<Scratch> scratch, prepared;
  Scratch per_worker;  // CPU, of one worker
  int64_t workers;     // CPU: that the grid was made for
  std::vector<Launch> prepares, launches;
};

inline bool same_layout(const TensorSpec& spec, const Tensor& tensor) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  if (sizes.size() != spec.shape.size()) return false;
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    if (sizes[i] != spec.shape[i] || (sizes[i] != 1 && strides[i] != spec.strides[i])) return false;
  }
  return true;
}

/// Raises where the tensor is not what the kernel was made for: the Python part falls back to PyTorch before it comes to that.
inline void* checked_data(const Plan& plan, const TensorSpec& spec, const Tensor& tensor) {
  STD_TORCH_CHECK(tensor.scalar_type() == spec.dtype, plan.name, ": ", spec.name, " has another dtype than the kernel was made for");
  STD_TORCH_CHECK(same_layout(spec, tensor), plan.name, ": ", spec.name, " has other sizes or strides than the kernel was made for");
  return tensor.data_ptr();
}

/// A tensor of a contract, not initialised, where `beside` is.
inline Tensor empty(const TensorSpec& spec, const Tensor& beside) {
  int32_t device_type = 0, device_index = 0;
  AtenTensorHandle handle = nullptr;
  const auto dtype = torch::stable::detail::to<int32_t>(torch::stable::detail::from(spec.dtype));
  const bool failed = aoti_torch_get_device_type(beside.get(), &device_type) != 0 ||
                      aoti_torch_get_device_index(beside.get(), &device_index) != 0 ||
                      aoti_torch_empty_strided(static_cast<int64_t>(spec.shape.size()), spec.shape.data(), spec.strides.data(), dtype,
                                               device_type, device_index, &handle) != 0;
  STD_TORCH_CHECK(!failed, "PyTorch could not allocate ", spec.name);
  return Tensor(handle);
}

/// The bytes of an argument that is no memory of the plan's own.
inline uint64_t value_of(const Argument& argument, const std::vector<void*>& tensors) {
  if (argument.kind == Argument::tensor) return reinterpret_cast<uint64_t>(tensors[static_cast<size_t>(argument.integer_or_index)]);
  if (argument.kind == Argument::integer) return static_cast<uint64_t>(argument.integer_or_index);
  uint32_t bits = 0;
  if (argument.kind == Argument::real) std::memcpy(&bits, &argument.real_value, sizeof bits);
  return bits;
}

/// The operator of a plan, as PyTorch's dispatcher calls it. `State` is what the plan keeps between calls.
template <const Plan& plan, class State, void (*call)(const Plan&, State&, const std::vector<Tensor>&, const std::vector<void*>&)>
void boxed(StableIValue* stack, uint64_t input_count, uint64_t output_count) {
  static State state;
  std::vector<Tensor> inputs, outputs;
  for (uint64_t i = 0; i < input_count; ++i) inputs.push_back(torch::stable::detail::to<Tensor>(stack[i]));
  std::vector<void*> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) tensors.push_back(checked_data(plan, plan.inputs[i], inputs[i]));
  for (const TensorSpec& spec : plan.outputs) {
    outputs.push_back(empty(spec, inputs[0]));
    tensors.push_back(outputs.back().data_ptr());
  }
  call(plan, state, inputs, tensors);
  for (uint64_t i = 0; i < output_count; ++i) stack[i] = torch::stable::detail::from(outputs[i]);
}

}  // namespace autokernel_host
