// A task: the contract of a kernel and the shapes that the model needs. The judge knows nothing else of an operator.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "core/expression.h"
#include "core/json.h"

namespace ak::kernel {

enum class Role { data, weight, index, output };

std::string_view name_of(Role role);
/// errors: an unknown role.
Role parse_role(std::string_view name);

/// A tensor of a contract.
struct Tensor {
  std::string name;
  Role role = Role::data;
  Dtype dtype = Dtype::float32;
  std::vector<Expression> shape;       // of dims and options
  bool absent = false;                 // optional, and this contract leaves it out: passed as null
  std::optional<std::string> range;    // index values are in [0, this expression)
  std::optional<std::string> ignored;  // … or equal this scalar
  bool hides = false;                  // values are added to others, which -inf hides
  bool factors = false;                // values are multiplied into the output
};

/// Concrete sizes: a workload of the model, or a binding that a stage tests.
struct Binding {
  std::map<std::string, int64_t> dims;
  std::map<std::string, std::vector<int64_t>> strides;  // in elements; a tensor without an entry is contiguous
  int64_t calls = 1;                                    // a forward
  std::string layout = "contiguous";                    // contiguous | strided | misaligned | transposed
};

constexpr int64_t bulk_alignment_bytes = 16;  // of addresses and strides, for bulk copies

using Scalar = std::variant<int64_t, double>;

/// The contract and the shapes; task.json (docs/formats/task.md).
struct Task {
  std::string id, family, spelling;
  Dtype dtype = Dtype::float32;
  std::vector<Tensor> tensors;
  std::map<std::string, Scalar> scalars;
  std::map<std::string, int64_t> options;
  std::vector<Binding> workload, sweep, edges;
  std::vector<std::string> stability;  // generators of stage 3
  double tolerance_k = 16;
  Expression flops = Expression::constant(0), bytes = Expression::constant(0);

  const Tensor& tensor(std::string_view name) const;
  /// Every name that an expression of this task may use: dims, options, integer scalars, strides, sizeof(...).
  Bindings names(const Binding& binding) const;
  std::vector<int64_t> shape(const Tensor& tensor, const Binding& binding) const;
  /// As bound, else of the contiguous tensor.
  std::vector<int64_t> strides(const Tensor& tensor, const Binding& binding) const;
};

/// Bytes that the tensors of a binding span in memory, a broadcast dim once: what a kernel must read and write at least.
struct Traffic {
  int64_t read = 0, written = 0;

  /// What is written is too little to matter.
  bool is_read_only() const { return written <= read / 32; }
};
Traffic traffic(const Task& task, const Binding& binding);

/// Contiguous strides of a shape, in elements.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape);

/// What identifies the task: everything but stages, tolerance and costs. Its hash is in the id.
Json contract(const Task& task);
/// `<family>_<8 hex of contract()>`.
std::string task_id(const Task& task);

Json to_json(const Task& task);
Json to_json(const Binding& binding);
/// errors: a missing or malformed field, named.
Task task_from_json(const Json& json);
Binding binding_from_json(const Json& json);

}  // namespace ak::kernel
