// The boxed operator: checks the inputs, allocates the outputs, calls the instance.
#include "runtime/torch_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"

namespace ak::runtime {
namespace {

constexpr size_t max_tensors = 16;
constexpr int max_inputs = 8;
constexpr int max_outputs = 2;

/// What the operator needs to know of PyTorch, once found.
struct Torch {
  TorchShim shim = open_torch_shim();
  std::array<int32_t, 10> dtypes = {shim.aoti_torch_dtype_float64(),  shim.aoti_torch_dtype_float32(), shim.aoti_torch_dtype_float16(),
                                    shim.aoti_torch_dtype_bfloat16(), shim.aoti_torch_dtype_int64(),   shim.aoti_torch_dtype_int32(),
                                    shim.aoti_torch_dtype_int16(),    shim.aoti_torch_dtype_int8(),    shim.aoti_torch_dtype_uint8(),
                                    shim.aoti_torch_dtype_bool()};  // in the order of ak::Dtype
  int32_t cpu = shim.aoti_torch_device_type_cpu();

  int32_t number_of(Dtype dtype) const { return dtypes[static_cast<size_t>(dtype)]; }
};

/// Found at the first use; PyTorch stays loaded for as long as the process lives.
const Torch& torch() {
  static const Torch found;
  return found;
}

FindInstance find_instance = nullptr;

void require(int32_t failed, const char* what) {
  if (failed != 0) throw Error(std::string("PyTorch could not ") + what);
}

TorchTensor* handle_of(TorchValue value) { return reinterpret_cast<TorchTensor*>(value); }

/// errors: a dtype that no kernel takes.
Dtype dtype_of(int32_t number) {
  const auto& dtypes = torch().dtypes;
  const auto found = std::ranges::find(dtypes, number);
  if (found == dtypes.end()) throw Error("an input has a dtype that no kernel takes");
  return static_cast<Dtype>(found - dtypes.begin());
}

TensorView view_of(TorchTensor* tensor) {
  const TorchShim& shim = torch().shim;
  void* data = nullptr;
  int64_t rank = 0;
  int64_t *shape = nullptr, *strides = nullptr;
  int32_t number = 0;
  require(shim.aoti_torch_get_data_ptr(tensor, &data) | shim.aoti_torch_get_dim(tensor, &rank) | shim.aoti_torch_get_sizes(tensor, &shape) |
              shim.aoti_torch_get_strides(tensor, &strides) | shim.aoti_torch_get_dtype(tensor, &number),
          "describe a tensor");
  const auto length = static_cast<size_t>(rank);
  return {data, dtype_of(number), {shape, length}, {strides, length}};
}

TorchTensor* allocate(const TensorSpec& spec) {
  TorchTensor* tensor = nullptr;
  require(torch().shim.aoti_torch_empty_strided(static_cast<int64_t>(spec.shape.size()), spec.shape.data(), spec.strides.data(),
                                                torch().number_of(spec.dtype), torch().cpu, 0, &tensor),
          "allocate an output");
  return tensor;
}

void* data_of(TorchTensor* tensor) {
  void* data = nullptr;
  require(torch().shim.aoti_torch_get_data_ptr(tensor, &data), "find an output's memory");
  return data;
}

/// Outputs are written to `results` as they are allocated, so that the caller can free them on an error.
void call_instance(Instance& instance, std::span<const TorchValue> tensors, std::span<TorchTensor*> results) {
  std::array<TensorView, max_tensors> views;
  std::array<void*, max_tensors> inputs, outputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    views[i] = view_of(handle_of(tensors[i]));
    inputs[i] = views[i].data;
  }
  if (const std::string text = instance.difference(std::span(views).first(tensors.size())); !text.empty()) throw Error(text);
  if (results.size() != instance.site().outputs.size()) throw Error("the kernel has another number of outputs");
  for (size_t i = 0; i < results.size(); ++i) {
    results[i] = allocate(instance.site().outputs[i]);
    outputs[i] = data_of(results[i]);
  }
  instance.call(std::span(inputs).first(tensors.size()), std::span(outputs).first(results.size()), torch().shim.torch_parallel_for);
}

/// The whole call; null if all is well, else the text of the error, which lives as long as the thread.
const char* try_call(TorchValue* stack, uint64_t inputs, uint64_t outputs) {
  thread_local std::string text;
  std::array<TorchTensor*, max_tensors> results{};
  const TorchShim& shim = torch().shim;
  const char* error = nullptr;
  try {
    const auto number = static_cast<int64_t>(stack[0]);
    const std::shared_ptr<Instance> instance = find_instance(number);
    if (!instance) throw Error(fmt::format("no kernel of number {} is open in this process", number));
    call_instance(*instance, std::span<const TorchValue>(stack, inputs).subspan(1), std::span(results).first(outputs));
  } catch (const std::exception& caught) {
    text = std::string("autokernel: ") + caught.what();
    error = text.c_str();
  }
  for (uint64_t i = 1; i < inputs; ++i) shim.aoti_torch_delete_tensor_object(handle_of(stack[i]));
  for (uint64_t i = 0; i < outputs; ++i) {
    if (error != nullptr && results[i] != nullptr) shim.aoti_torch_delete_tensor_object(results[i]);
    stack[i] = reinterpret_cast<TorchValue>(results[i]);
  }
  return error;
}

/// PyTorch raises its own exception through this frame, which therefore holds nothing that has a destructor.
void boxed_call(TorchValue* stack, uint64_t inputs, uint64_t outputs) {
  const char* error = try_call(stack, inputs, outputs);
  if (error != nullptr) torch().shim.aoti_torch_check(false, "autokernel::call", __FILE__, __LINE__, error);
}

}  // namespace

void register_operators(FindInstance find) {
  const TorchShim& shim = torch().shim;
  find_instance = find;
  TorchLibrary* library = nullptr;  // never deleted: deleting it would take the operators away
  require(shim.aoti_torch_library_init_impl("autokernel", "CPU", __FILE__, __LINE__, &library), "open the operator library autokernel");
  for (int inputs = 1; inputs <= max_inputs; ++inputs) {
    for (int outputs = 1; outputs <= max_outputs; ++outputs) {
      const std::string name = outputs == 1 ? fmt::format("call{}", inputs) : fmt::format("call{}x{}", inputs, outputs);
      require(shim.torch_library_impl(library, name.c_str(), boxed_call, torch_shim_version), "register an operator");
    }
  }
}

int64_t torch_threads() {
  uint32_t threads = 1;
  require(torch().shim.torch_get_num_threads(&threads), "say how many threads it uses");
  return threads;
}

}  // namespace ak::runtime
