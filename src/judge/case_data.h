// One case with its fixture: what a candidate is given, and what it has to produce.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "judge/numbers.h"
#include "kernel/task.h"

namespace ak::judge {

struct InputTensor {
  std::string name;
  kernel::Role role = kernel::Role::data;
  Dtype dtype = Dtype::float32;
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;                  // of the first element, in elements
  std::span<const std::byte> storage;  // as the candidate receives it
};

struct OutputTensor {
  std::string name;
  Dtype dtype = Dtype::float32;
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;
  Numbers reference, eager;                                     // of a floating dtype
  std::span<const int64_t> reference_integers, eager_integers;  // of another

  int64_t elements() const;
  /// Elements from the first to the last one, both included.
  int64_t span_elements() const;
};

/// A mapped fixture (docs/formats/worker.md), checked against the task.
class CaseData {
 public:
  /// errors: a file that is not readable or does not belong to the task.
  static CaseData load(const kernel::Task& task, const Json& test_case, const std::filesystem::path& inputs,
                       const std::filesystem::path& expected);

  const std::vector<InputTensor>& inputs() const { return inputs_; }
  const std::vector<OutputTensor>& outputs() const { return outputs_; }
  double tolerance_k() const { return tolerance_k_; }
  double flops() const { return flops_; }
  /// What must be read and written at least.
  int64_t read_bytes() const { return read_bytes_; }
  int64_t write_bytes() const { return write_bytes_; }

 private:
  CaseData(SafetensorsFile inputs, SafetensorsFile expected) : inputs_file_(std::move(inputs)), expected_file_(std::move(expected)) {}
  void read_input(const kernel::Tensor& tensor, const std::vector<int64_t>& shape);
  void read_output(const kernel::Tensor& tensor, const std::vector<int64_t>& shape, int64_t offset);
  void read_costs(const kernel::Task& task, const kernel::Binding& binding);

  SafetensorsFile inputs_file_, expected_file_;
  std::vector<InputTensor> inputs_;
  std::vector<OutputTensor> outputs_;
  double tolerance_k_ = 16, flops_ = 0;
  int64_t read_bytes_ = 0, write_bytes_ = 0;
};

/// Call `visit(linear index, element offset)` for each element of a tensor, last dim fastest.
template <class Visit>
void for_each_element(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, Visit visit) {
  int64_t total = 1;
  for (const int64_t extent : shape) total *= extent;
  if (total == 0) return;
  const int64_t inner = shape.empty() ? 1 : shape.back(), step = shape.empty() ? 0 : strides.back();
  std::vector<int64_t> index(shape.size(), 0);
  int64_t base = 0;
  for (int64_t linear = 0; linear < total;) {
    for (int64_t i = 0; i < inner; ++i) visit(linear++, base + i * step);
    for (size_t dim = shape.size() < 2 ? 0 : shape.size() - 1; dim-- > 0;) {
      base += strides[dim];
      if (++index[dim] < shape[dim]) break;
      base -= strides[dim] * shape[dim];
      index[dim] = 0;
    }
  }
}

}  // namespace ak::judge
