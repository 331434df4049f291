// Reading a fixture, distrusting it as far as a mistake in the worker could go.
#include "judge/case_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::judge {
namespace {

constexpr int64_t misaligned_by = 4;      // elements
constexpr double most_elements = 0x1p48;  // from a storage's first to a tensor's last

std::vector<int64_t> list_of(const SafetensorsFile& file, const std::string& key) {
  return Json::parse(file.metadata(key)).get<std::vector<int64_t>>();
}

int64_t integer_of(const SafetensorsFile& file, const std::string& key) { return Json::parse(file.metadata(key)).get<int64_t>(); }

int64_t product(const std::vector<int64_t>& extents) {
  int64_t result = 1;
  for (const int64_t extent : extents) result *= extent;
  return result;
}

int64_t span_of(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  if (product(shape) == 0) return 0;
  int64_t last = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) last += (shape[dim] - 1) * strides[dim];
  return last + 1;
}

/// Of the case's shape, its elements so few and so near to each other that no number of them or of bytes overflows.
void check_layout(const std::string& name, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int64_t offset,
                  const std::vector<int64_t>& right_shape) {
  if (shape != right_shape) throw Error("the fixture's " + name + " has another shape than the case");
  double reach = static_cast<double>(offset);
  for (size_t dim = 0; dim < std::min(shape.size(), strides.size()); ++dim)
    reach += static_cast<double>(shape[dim]) * static_cast<double>(strides[dim]);
  const bool negative = offset < 0 || std::ranges::any_of(strides, [](int64_t stride) { return stride < 0; });
  if (shape.size() != strides.size() || negative || reach > most_elements)
    throw Error("the fixture's strides of " + name + " do not belong to its shape");
}

const TensorView& values_of(const SafetensorsFile& file, const std::string& name, bool right_dtype(Dtype found, Dtype output), Dtype output,
                            int64_t elements) {
  const TensorView& view = file.tensor(name);
  if (!right_dtype(view.dtype, output) || static_cast<int64_t>(view.data.size()) != elements * size_bytes(view.dtype))
    throw Error("the fixture's " + name + " has another dtype or size than the contract");
  return view;
}

/// Of a reference: enough digits to tell how far an output is from it.
bool is_finer(Dtype found, Dtype output) { return found == Dtype::float64 || (found == Dtype::float32 && size_bytes(output) == 2); }
/// Of what eager gives: all its digits.
bool holds(Dtype found, Dtype output) { return found == Dtype::float64 || found == output; }

Numbers numbers_of(const TensorView& view) { return {view.dtype, view.data}; }

std::span<const int64_t> integers_of(const SafetensorsFile& file, const std::string& name, int64_t elements) {
  const auto right = [](Dtype found, Dtype) { return found == Dtype::int64; };
  const TensorView& view = values_of(file, name, right, Dtype::int64, elements);
  return {reinterpret_cast<const int64_t*>(view.data.data()), static_cast<size_t>(elements)};
}

}  // namespace

int64_t OutputTensor::elements() const { return product(shape); }
int64_t OutputTensor::span_elements() const { return span_of(shape, strides); }

CaseData CaseData::load(const kernel::Task& task, const Json& test_case, const std::filesystem::path& inputs,
                        const std::filesystem::path& expected) {
  CaseData data(SafetensorsFile::open(inputs), SafetensorsFile::open(expected));
  const kernel::Binding binding = kernel::binding_from_json(test_case);
  data.tolerance_k_ = task.tolerance_k;
  try {
    for (const kernel::Tensor& tensor : task.tensors) {
      if (tensor.absent) continue;
      if (tensor.role == kernel::Role::output) {
        data.read_output(tensor, task.shape(tensor, binding), binding.layout == "misaligned" ? misaligned_by : 0);
      } else {
        data.read_input(tensor, task.shape(tensor, binding));
      }
    }
  } catch (const Json::exception& error) {
    throw Error(inputs.string() + ": the fixture's metadata is malformed: " + error.what());
  }
  data.read_costs(task, binding);
  return data;
}

void CaseData::read_input(const kernel::Tensor& tensor, const std::vector<int64_t>& shape) {
  InputTensor input{tensor.name,
                    tensor.role,
                    tensor.dtype,
                    list_of(inputs_file_, tensor.name + ".shape"),
                    list_of(inputs_file_, tensor.name + ".strides"),
                    integer_of(inputs_file_, tensor.name + ".offset"),
                    inputs_file_.tensor(tensor.name).data};
  check_layout(tensor.name, input.shape, input.strides, input.offset, shape);
  const int64_t needed = product(input.shape) == 0 ? 0 : (input.offset + span_of(input.shape, input.strides)) * size_bytes(input.dtype);
  if (needed > static_cast<int64_t>(input.storage.size()))
    throw Error("the fixture's storage of " + tensor.name + " is too small for its layout");
  inputs_.push_back(std::move(input));
}

void CaseData::read_output(const kernel::Tensor& tensor, const std::vector<int64_t>& shape, int64_t offset) {
  OutputTensor output;
  output.name = tensor.name;
  output.dtype = parse_dtype(expected_file_.metadata(tensor.name + ".dtype"));
  output.shape = list_of(expected_file_, tensor.name + ".shape");
  output.strides = list_of(expected_file_, tensor.name + ".strides");
  output.offset = offset;
  check_layout(tensor.name, output.shape, output.strides, offset, shape);
  if (output.dtype != tensor.dtype) throw Error("the fixture's " + tensor.name + " has another dtype than the contract");
  const int64_t elements = output.elements();
  if (is_floating(output.dtype)) {
    output.reference = numbers_of(values_of(expected_file_, tensor.name + ".reference", is_finer, output.dtype, elements));
    output.eager = numbers_of(values_of(expected_file_, tensor.name + ".eager", holds, output.dtype, elements));
  } else {
    output.reference_integers = integers_of(expected_file_, tensor.name + ".reference", elements);
    output.eager_integers = integers_of(expected_file_, tensor.name + ".eager", elements);
  }
  outputs_.push_back(std::move(output));
}

void CaseData::read_costs(const kernel::Task& task, const kernel::Binding& binding) {
  const Bindings names = task.names(binding);
  int64_t stored = 0;
  for (const InputTensor& input : inputs_) stored += static_cast<int64_t>(input.storage.size());
  for (const OutputTensor& output : outputs_) write_bytes_ += output.elements() * size_bytes(output.dtype);
  flops_ = static_cast<double>(task.flops.evaluate(names));
  read_bytes_ = std::clamp<int64_t>(task.bytes.evaluate(names) - write_bytes_, 0, stored);
}

}  // namespace ak::judge
