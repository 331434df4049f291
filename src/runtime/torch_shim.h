// PyTorch's C shim, opened at run time in the process that loaded PyTorch: a list of function pointers, no header and no library needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ak::runtime {

struct TorchTensor;   // opaque: AtenTensorHandle
struct TorchLibrary;  // opaque: TorchLibraryHandle

/// One argument or result of a boxed operator: a tensor's handle or an integer, in the low bytes.
using TorchValue = uint64_t;
using TorchBoxedFunction = void (*)(TorchValue* stack, uint64_t inputs, uint64_t outputs);
using TorchRangeFunction = void (*)(int64_t begin, int64_t end, void* context);

// name, result, parameters. All of them exist from PyTorch 2.10 on. Those that return int32_t give 0 on success, but for the dtype and
// device numbers.
#define AK_TORCH_SHIM(X)                                                                                                    \
  X(aoti_torch_library_init_impl, int32_t, (const char*, const char*, const char*, uint32_t, TorchLibrary**))               \
  X(torch_library_impl, int32_t, (TorchLibrary*, const char*, TorchBoxedFunction, uint64_t))                                \
  X(aoti_torch_get_data_ptr, int32_t, (TorchTensor*, void**))                                                               \
  X(aoti_torch_get_dim, int32_t, (TorchTensor*, int64_t*))                                                                  \
  X(aoti_torch_get_sizes, int32_t, (TorchTensor*, int64_t**))                                                               \
  X(aoti_torch_get_strides, int32_t, (TorchTensor*, int64_t**))                                                             \
  X(aoti_torch_get_dtype, int32_t, (TorchTensor*, int32_t*))                                                                \
  X(aoti_torch_empty_strided, int32_t, (int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, TorchTensor**)) \
  X(aoti_torch_delete_tensor_object, int32_t, (TorchTensor*))                                                               \
  X(aoti_torch_new_tensor_handle, int32_t, (TorchTensor*, TorchTensor**))                                                   \
  X(aoti_torch_get_device_type, int32_t, (TorchTensor*, int32_t*))                                                          \
  X(aoti_torch_get_device_index, int32_t, (TorchTensor*, int32_t*))                                                         \
  X(aoti_torch_device_type_cuda, int32_t, ())                                                                               \
  X(aoti_torch_check, void, (bool, const char*, const char*, uint32_t, const char*))                                        \
  X(aoti_torch_device_type_cpu, int32_t, ())                                                                                \
  X(aoti_torch_dtype_float64, int32_t, ())                                                                                  \
  X(aoti_torch_dtype_float32, int32_t, ())                                                                                  \
  X(aoti_torch_dtype_float16, int32_t, ())                                                                                  \
  X(aoti_torch_dtype_bfloat16, int32_t, ())                                                                                 \
  X(aoti_torch_dtype_int64, int32_t, ())                                                                                    \
  X(aoti_torch_dtype_int32, int32_t, ())                                                                                    \
  X(aoti_torch_dtype_int16, int32_t, ())                                                                                    \
  X(aoti_torch_dtype_int8, int32_t, ())                                                                                     \
  X(aoti_torch_dtype_uint8, int32_t, ())                                                                                    \
  X(aoti_torch_dtype_bool, int32_t, ())                                                                                     \
  X(torch_get_num_threads, int32_t, (uint32_t*))                                                                            \
  X(torch_parallel_for, int32_t, (int64_t, int64_t, int64_t, TorchRangeFunction, void*))

// The part of libtorch_cuda.so.
#define AK_TORCH_CUDA_SHIM(X) X(aoti_torch_get_current_cuda_stream, int32_t, (int32_t, void**))

struct TorchShim {
#define AK_TORCH_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  AK_TORCH_SHIM(AK_TORCH_MEMBER)
  AK_TORCH_CUDA_SHIM(AK_TORCH_MEMBER)  // null where PyTorch was built without CUDA
#undef AK_TORCH_MEMBER
};

/// The version of the shim that the operator is written for, in PyTorch's encoding (2.11): newer ones convert.
inline constexpr uint64_t torch_shim_version = (uint64_t{2} << 56) | (uint64_t{11} << 48);

/// Find every function of the list in the libtorch that this process has loaded.
/// errors: no libtorch in the process, or one without a function of the list.
TorchShim open_torch_shim();

}  // namespace ak::runtime
