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

/// The minimum, NaN where either is NaN.
struct Min {
  static __device__ __forceinline__ float join(float a, float b) { return a < b || a != a ? a : b; }
};
/// The maximum of what is not NaN.
struct MaxNumber {
  static __device__ __forceinline__ float join(float a, float b) { return fmaxf(a, b); }
};

/// e^x: to 2 ulp of float where float is stored, else to 1e-6 relative for |x| < 20, and 0 where e^x is denormal.
template <class E>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (sizeof(E) == 4) return expf(x);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
}

/// A sum of exponentials relative to `maximum`. A NaN is not in the maximum but in the sum.
struct SumExp {
  float maximum, sum;
};

/// Add the exponentials of n values, read once.
template <class E, int n>
__device__ __forceinline__ void add_exponentials(SumExp& so_far, const float (&values)[n]) {
  float top = so_far.maximum;
#pragma unroll
  for (int i = 0; i < n; ++i) top = fmaxf(top, values[i]);
  const float pivot = top == -infinity() ? 0.0f : top;
  float sum = so_far.sum * exponential<E>(so_far.maximum - pivot);
#pragma unroll
  for (int i = 0; i < n; ++i) sum += exponential<E>(values[i] - pivot);
  so_far = {top, sum};
}

/// The largest of each half, and a NaN only where both are.
__device__ __forceinline__ __half2 larger_pair(__half2 a, __half2 b) { return __hmax2(a, b); }
__device__ __forceinline__ __nv_bfloat162 larger_pair(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmax2(a, b); }

/// The largest number in K vectors, and a NaN only where there is no number.
template <class E, int K>
__device__ __forceinline__ float largest_number(const uint4 (&v)[K]) {
  const uint32_t* const words = &v[0].x;
  if constexpr (sizeof(E) == 4) {
    float top = __uint_as_float(words[0]);
#pragma unroll
    for (int i = 1; i < 4 * K; ++i) top = fmaxf(top, __uint_as_float(words[i]));
    return top;
  } else {
    const auto pair = [&](int i) {
      if constexpr (is_half<E>) {
        return reinterpret_cast<const __half2&>(words[i]);
      } else {
        return reinterpret_cast<const __nv_bfloat162&>(words[i]);
      }
    };
    auto top = pair(0);
#pragma unroll
    for (int i = 1; i < 4 * K; ++i) top = larger_pair(top, pair(i));
    return fmaxf(to_float(top.x), to_float(top.y));
  }
}

/// Add the exponentials of the elements of K vectors, read once.
template <class E, int K>
__device__ __forceinline__ void add_exponentials(SumExp& so_far, const uint4 (&v)[K]) {
  const float top = fmaxf(so_far.maximum, largest_number<E>(v)), pivot = top == -infinity() ? 0.0f : top;
  float sums[4] = {so_far.sum * exponential<E>(so_far.maximum - pivot), 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[lanes<E>];
    unpack<E>(v[k], values);
#pragma unroll
    for (int e = 0; e < lanes<E>; ++e) sums[e % 4] += exponential<E>(values[e] - pivot);
  }
  so_far = {top, (sums[0] + sums[1]) + (sums[2] + sums[3])};
}

/// What the lane whose number differs by the bit `step` holds.
template <class V>
__device__ __forceinline__ V exchange(const V& value, int step) {
  static_assert(sizeof(V) % 4 == 0);
  V other;
#pragma unroll
  for (int i = 0; i < int{sizeof(V)} / 4; ++i) {
    reinterpret_cast<uint32_t*>(&other)[i] = __shfl_xor_sync(all_lanes, reinterpret_cast<const uint32_t*>(&value)[i], step);
  }
  return other;
}

/// Over each group of `group` neighbouring lanes, a power of two; all lanes of the warp call it, each gets the result.
template <class Op, class V>
__device__ __forceinline__ V warp_reduce(V value, int group = 32) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (step < group) value = Op::join(value, exchange(value, step));
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

/// The sum over the block, relative to its maximum; `room` is 64 floats of shared memory.
template <class E>
__device__ __forceinline__ SumExp block_sum_exp(const SumExp& part, float* room) {
  const float top = block_reduce<MaxNumber>(part.maximum, -infinity(), room);
  const float sum = part.maximum == top ? part.sum : part.sum * exponential<E>(part.maximum - top);
  return {top, block_reduce<Sum>(sum, 0.0f, room + 32)};
}

}  // namespace ak
