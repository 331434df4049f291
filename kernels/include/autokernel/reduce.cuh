// Reductions over the lanes of a warp and the threads of a block, in an order that is always the same.
#pragma once
#include <autokernel/vec.cuh>

namespace ak {

struct Sum {
  static __device__ __forceinline__ float join(float a, float b) { return a + b; }
  static __device__ __forceinline__ double join(double a, double b) { return a + b; }
};
/// The maximum, NaN where either is NaN.
struct Max {
  static __device__ __forceinline__ float join(float a, float b) { return a > b || a != a ? a : b; }
};

/// Over each group of `group` neighbouring lanes, a power of two; all lanes of the warp call it, each gets the result.
template <class Op, class V>
__device__ __forceinline__ V warp_reduce(V value, int group = 32) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (step < group) value = Op::join(value, __shfl_xor_sync(all_lanes, value, step));
  }
  return value;
}

/// Over the block, whose size is a multiple of 32; each thread gets the result. `room` is 32 values of shared memory, and may be used again
/// only after another barrier.
template <class Op, class V>
__device__ __forceinline__ V block_reduce(V value, V neutral, V* room) {
  value = warp_reduce<Op>(value);
  if (blockDim.x <= 32) return value;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_reduce<Op>(threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : neutral);
}

}  // namespace ak
