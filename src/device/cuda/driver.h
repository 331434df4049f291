// The CUDA driver as a list of function pointers, opened at run time: no toolkit is needed to build or to start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ak::device::cuda {

// The driver's binary interface, as far as it is used; names and values are its own.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;

enum CUlaunchAttributeID : int {
  CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};
union CUlaunchAttributeValue {
  char pad[64];
  int flag;  // cooperative, programmaticStreamSerializationAllowed
  struct {
    unsigned x, y, z;
  } cluster;
};
struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[4];
  CUlaunchAttributeValue value;
};
struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56);

/// A tensor as bulk copies see it: a kernel's parameter of 128 bytes.
struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};
static_assert(sizeof(CUtensorMap) == 128);
enum CUtensorMapDataType : int {
  CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
  CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
  CU_TENSOR_MAP_DATA_TYPE_INT32 = 3,
  CU_TENSOR_MAP_DATA_TYPE_INT64 = 5,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT64 = 8,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9
};
enum CUtensorMapInterleave : int { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle : int {
  CU_TENSOR_MAP_SWIZZLE_NONE = 0,
  CU_TENSOR_MAP_SWIZZLE_32B = 1,
  CU_TENSOR_MAP_SWIZZLE_64B = 2,
  CU_TENSOR_MAP_SWIZZLE_128B = 3
};
enum CUtensorMapL2promotion : int { CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2 };
enum CUtensorMapFloatOOBfill : int { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

enum : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
  CUDA_ERROR_INVALID_CLUSTER_SIZE = 912
};
enum : unsigned { CU_STREAM_NON_BLOCKING = 1 };
enum CUstreamCaptureStatus : int { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };
enum CUstreamCaptureMode : int { CU_STREAM_CAPTURE_MODE_GLOBAL = 0, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};
enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
};

// name, symbol of the library, parameters
#define AK_CUDA_DRIVER(X)                                                                                                        \
  X(cuInit, "cuInit", (unsigned))                                                                                                \
  X(cuDriverGetVersion, "cuDriverGetVersion", (int*))                                                                            \
  X(cuGetErrorString, "cuGetErrorString", (CUresult, const char**))                                                              \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int*))                                                                                \
  X(cuDeviceGet, "cuDeviceGet", (CUdevice*, int))                                                                                \
  X(cuDeviceGetName, "cuDeviceGetName", (char*, int, CUdevice))                                                                  \
  X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char*, int, CUdevice))                                                          \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int*, CUdevice_attribute, CUdevice))                                          \
  X(cuCtxCreate, "cuCtxCreate_v2", (CUcontext*, unsigned, CUdevice))                                                             \
  X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext))                                                                        \
  X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext*))                                                                         \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                                                \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                                       \
  X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr*, size_t))                                                                         \
  X(cuMemFree, "cuMemFree_v2", (CUdeviceptr))                                                                                    \
  X(cuMemHostAlloc, "cuMemHostAlloc", (void**, size_t, unsigned))                                                                \
  X(cuMemFreeHost, "cuMemFreeHost", (void*))                                                                                     \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void*, size_t, CUstream))                                     \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void*, CUdeviceptr, size_t, CUstream))                                           \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                     \
  X(cuMemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                                          \
  X(cuModuleLoadData, "cuModuleLoadData", (CUmodule*, const void*))                                                              \
  X(cuModuleUnload, "cuModuleUnload", (CUmodule))                                                                                \
  X(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))                                            \
  X(cuModuleGetGlobal, "cuModuleGetGlobal_v2", (CUdeviceptr*, size_t*, CUmodule, const char*))                                   \
  X(cuFuncGetAttribute, "cuFuncGetAttribute", (int*, CUfunction_attribute, CUfunction))                                          \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction, CUfunction_attribute, int))                                           \
  X(cuFuncGetParamInfo, "cuFuncGetParamInfo", (CUfunction, size_t, size_t*, size_t*))                                            \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", (int*, CUfunction, int, size_t)) \
  X(cuLaunchKernelEx, "cuLaunchKernelEx", (const CUlaunchConfig*, CUfunction, void**, void**))                                   \
  X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                                                            \
    (CUtensorMap*, CUtensorMapDataType, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*,     \
     CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill))                                \
  X(cuStreamCreate, "cuStreamCreate", (CUstream*, unsigned))                                                                     \
  X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream))                                                                      \
  X(cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus*))                                              \
  X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (CUstreamCaptureMode*))                              \
  X(cuEventCreate, "cuEventCreate", (CUevent*, unsigned))                                                                        \
  X(cuEventRecord, "cuEventRecord", (CUevent, CUstream))                                                                         \
  X(cuEventQuery, "cuEventQuery", (CUevent))                                                                                     \
  X(cuEventElapsedTime, "cuEventElapsedTime", (float*, CUevent, CUevent))

/// The driver's functions, under their own names.
struct Driver {
#define AK_CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters = nullptr;
  AK_CUDA_DRIVER(AK_CUDA_MEMBER)
#undef AK_CUDA_MEMBER
};

/// libcuda.so.1, opened and initialised at the first call.
/// errors: no driver, one too old, or no device.
const Driver& driver();

/// Devices that the driver sees; 0 where there is no driver.
int count();

/// The driver's words for an error.
std::string text_of(CUresult result, const Driver& from = driver());

/// Whether it is what a kernel did that broke the context; else the device or the driver failed.
bool is_fault_of_a_kernel(CUresult result);

/// errors: a result that is no success; `what` says what was tried.
void check(CUresult result, const char* what, const Driver& from = driver());

}  // namespace ak::device::cuda
