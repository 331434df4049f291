// One call site of a finished kernel in a model: the tensors that it will get and give, and the contract's dims and strides there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "kernel/task.h"

namespace ak::runtime {

/// A tensor as the model has it; shape and strides (in elements) are the model's, before leading dims collapse into a contract's.
struct TensorSpec {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

struct CallSite {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  kernel::Binding binding;  // dims and strides of the contract
  std::optional<int> gpu;   // PyTorch's number of it; none on the CPU
};

/// Read the call_json of ak_open.
/// errors: what is missing or of the wrong type.
CallSite parse_call_site(std::string_view json);

/// A tensor of one call.
struct TensorView {
  void* data;
  Dtype dtype;
  std::span<const int64_t> shape;
  std::span<const int64_t> strides;
};

/// Empty if the tensor is what was announced, else a sentence on the first difference. The stride of a dim of size 1 may be anything.
std::string difference(const TensorSpec& announced, const TensorView& given);

}  // namespace ak::runtime
