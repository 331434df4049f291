// The boxed operator: checks the inputs, allocates the outputs, calls the instance.
#include "runtime/torch_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/error.h"
#include "runtime/cpu_instance.h"
#include "runtime/cuda_instance.h"

namespace ak::runtime {
namespace {

constexpr int max_inputs = 8;
constexpr int max_outputs = 2;

/// What the operator needs to know of PyTorch, once found.
struct Torch {
  TorchShim shim = open_torch_shim();
  std::array<int32_t, 10> dtypes = {shim.aoti_torch_dtype_float64(),  shim.aoti_torch_dtype_float32(), shim.aoti_torch_dtype_float16(),
                                    shim.aoti_torch_dtype_bfloat16(), shim.aoti_torch_dtype_int64(),   shim.aoti_torch_dtype_int32(),
                                    shim.aoti_torch_dtype_int16(),    shim.aoti_torch_dtype_int8(),    shim.aoti_torch_dtype_uint8(),
                                    shim.aoti_torch_dtype_bool()};  // in the order of ak::Dtype
  int32_t cpu = shim.aoti_torch_device_type_cpu(), cuda = shim.aoti_torch_device_type_cuda();

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

TorchTensor* allocate(std::span<const int64_t> shape, std::span<const int64_t> strides, Dtype dtype, int32_t device, int32_t index) {
  TorchTensor* tensor = nullptr;
  require(torch().shim.aoti_torch_empty_strided(static_cast<int64_t>(shape.size()), shape.data(), strides.data(), torch().number_of(dtype),
                                                device, index, &tensor),
          "allocate memory for a kernel");
  return tensor;
}

void* data_of(TorchTensor* tensor) {
  void* data = nullptr;
  require(torch().shim.aoti_torch_get_data_ptr(tensor, &data), "find an output's memory");
  return data;
}

/// The addresses of a call's tensors.
struct Addresses {
  std::array<void*, max_tensors> inputs, outputs;
};

/// Outputs are written to `results` as they are allocated, so that the caller can free them on an error.
Addresses addresses_of(const Instance& instance, std::span<const TorchValue> tensors, std::span<TorchTensor*> results, int32_t device,
                       int32_t index) {
  std::array<TensorView, max_tensors> views;
  Addresses addresses;
  for (size_t i = 0; i < tensors.size(); ++i) {
    views[i] = view_of(handle_of(tensors[i]));
    addresses.inputs[i] = views[i].data;
  }
  if (const std::string text = instance.difference(std::span(views).first(tensors.size())); !text.empty()) throw Error(text);
  if (results.size() != instance.site().outputs.size()) throw Error("the kernel has another number of outputs");
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorSpec& spec = instance.site().outputs[i];
    results[i] = allocate(spec.shape, spec.strides, spec.dtype, device, index);
    addresses.outputs[i] = data_of(results[i]);
  }
  return addresses;
}

using CallInstance = void (*)(Instance& instance, std::span<const TorchValue> tensors, std::span<TorchTensor*> results);

void call_on_cpu(Instance& instance, std::span<const TorchValue> tensors, std::span<TorchTensor*> results) {
  if (instance.device_type() != DeviceType::cpu) throw Error("the kernel was opened for a GPU, its inputs are on the CPU");
  const Addresses addresses = addresses_of(instance, tensors, results, torch().cpu, 0);
  static_cast<CpuInstance&>(instance).call(std::span(addresses.inputs).first(tensors.size()),
                                           std::span(addresses.outputs).first(results.size()), torch().shim.torch_parallel_for);
}

void delete_tensor(TorchTensor* tensor) { torch().shim.aoti_torch_delete_tensor_object(tensor); }

/// Memory is from PyTorch's caching allocator, which knows of streams and of graphs that are being captured. It goes back at the end of the
/// call, and from there on serves later work of the same stream or graph alone.
class TorchCaller : public Caller {
 public:
  TorchCaller(std::span<const TorchValue> inputs, int32_t device_index) : inputs_(inputs), device_index_(device_index) {}

  void* take(int64_t size_bytes) override {
    constexpr int64_t stride = 1;
    taken_.emplace_back(allocate({&size_bytes, 1}, {&stride, 1}, Dtype::uint8, torch().cuda, device_index_), delete_tensor);
    return data_of(taken_.back().get());
  }
  std::shared_ptr<void> keep(size_t input) override {
    TorchTensor* handle = nullptr;
    require(torch().shim.aoti_torch_new_tensor_handle(handle_of(inputs_[input]), &handle), "keep a weight");
    return std::shared_ptr<TorchTensor>(handle, delete_tensor);
  }

 private:
  std::span<const TorchValue> inputs_;
  int32_t device_index_;
  std::vector<std::unique_ptr<TorchTensor, void (*)(TorchTensor*)>> taken_;
};

/// errors: a tensor that is not on the kernel's GPU.
void require_on_gpu(TorchTensor* tensor, int32_t wanted) {
  const TorchShim& shim = torch().shim;
  int32_t type = 0, index = 0;
  require(shim.aoti_torch_get_device_type(tensor, &type) | shim.aoti_torch_get_device_index(tensor, &index), "describe a tensor");
  if (type != torch().cuda || index != wanted)
    throw Error(fmt::format("an input is not on cuda:{}, for which the kernel was opened", wanted));
}

void call_on_cuda(Instance& instance, std::span<const TorchValue> tensors, std::span<TorchTensor*> results) {
  if (instance.device_type() != DeviceType::cuda) throw Error("the kernel was opened for the CPU, its inputs are on a GPU");
  auto& on_cuda = static_cast<CudaInstance&>(instance);
  const int32_t index = on_cuda.device_index();
  for (const TorchValue tensor : tensors) require_on_gpu(handle_of(tensor), index);
  const Addresses addresses = addresses_of(instance, tensors, results, torch().cuda, index);
  void* stream = nullptr;
  require(torch().shim.aoti_torch_get_current_cuda_stream(index, &stream), "name its current stream");
  TorchCaller caller(tensors, index);
  on_cuda.call(std::span(addresses.inputs).first(tensors.size()), std::span(addresses.outputs).first(results.size()),
               static_cast<device::cuda::CUstream>(stream), caller);
}

/// The whole call; null if all is well, else the text of the error, which lives as long as the thread.
const char* try_call(TorchValue* stack, uint64_t inputs, uint64_t outputs, CallInstance call) {
  thread_local std::string text;
  std::array<TorchTensor*, max_tensors> results{};
  const TorchShim& shim = torch().shim;
  const char* error = nullptr;
  try {
    const auto number = static_cast<int64_t>(stack[0]);
    const std::shared_ptr<Instance> instance = find_instance(number);
    if (!instance) throw Error(fmt::format("no kernel of number {} is open in this process", number));
    call(*instance, std::span<const TorchValue>(stack, inputs).subspan(1), std::span(results).first(outputs));
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
template <CallInstance call>
void boxed_call(TorchValue* stack, uint64_t inputs, uint64_t outputs) {
  const char* error = try_call(stack, inputs, outputs, call);
  if (error != nullptr) torch().shim.aoti_torch_check(false, "autokernel::call", __FILE__, __LINE__, error);
}

void implement(const char* dispatch_key, TorchBoxedFunction function) {
  const TorchShim& shim = torch().shim;
  TorchLibrary* library = nullptr;  // never deleted: deleting it would take the operators away
  require(shim.aoti_torch_library_init_impl("autokernel", dispatch_key, __FILE__, __LINE__, &library),
          "open the operator library autokernel");
  for (int inputs = 1; inputs <= max_inputs; ++inputs) {
    for (int outputs = 1; outputs <= max_outputs; ++outputs) {
      const std::string name = outputs == 1 ? fmt::format("call{}", inputs) : fmt::format("call{}x{}", inputs, outputs);
      require(shim.torch_library_impl(library, name.c_str(), function, torch_shim_version), "register an operator");
    }
  }
}

}  // namespace

void register_operators(FindInstance find) {
  find_instance = find;
  implement("CPU", boxed_call<call_on_cpu>);
  if (torch().shim.aoti_torch_get_current_cuda_stream != nullptr) implement("CUDA", boxed_call<call_on_cuda>);
}

int64_t torch_threads() {
  uint32_t threads = 1;
  require(torch().shim.torch_get_num_threads(&threads), "say how many threads it uses");
  return threads;
}

}  // namespace ak::runtime
