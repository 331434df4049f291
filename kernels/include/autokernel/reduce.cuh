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

/// e^x: to 2 ulp of float where float is stored, else to 1e-6 relative for |x| < 20. Where e^x is denormal it is 0 but for float, or, with
/// `denormal`, wherever E has such numbers: the price is some instructions, which a part of a sum need not pay.
template <class E, bool denormal = false>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (sizeof(E) == 4) return expf(x);
  constexpr float log2_e = 1.4426950408889634f;
  float y;
  if constexpr (denormal && !is_half<E>) {
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x * log2_e));
  } else {
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * log2_e));
  }
  return y;
}

/// e^x * lift<E> for x <= 0, which is not denormal wherever e^x rounded to E is not 0, so that the product with 1 / lift<E> is as
/// exponential<E, true> is.
template <class E>
constexpr float lift = sizeof(E) == 2 && !is_half<E> ? 1024.0f : 1.0f;
template <class E>
__device__ __forceinline__ float lifted_exponential(float x) {
  if constexpr (lift<E> == 1.0f) return exponential<E>(x);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x, 1.4426950408889634f, 10.0f)));
  return y;
}

/// A sum of exponentials relative to `maximum`. A NaN is not in the maximum but in the sum.
struct SumExp {
  float maximum, sum;
};

/// The sum over both, relative to the maximum of both.
template <class E>
struct JoinSumExp {
  static __device__ __forceinline__ float relative(const SumExp& part, float top) {
    return part.maximum == top ? part.sum : part.sum * exponential<E>(part.maximum - top);
  }
  static __device__ __forceinline__ SumExp join(const SumExp& a, const SumExp& b) {
    const float top = fmaxf(a.maximum, b.maximum);
    return {top, relative(a, top) + relative(b, top)};
  }
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

/// Add the exponentials of the elements of K vectors, read once.
template <class E, int K>
__device__ __forceinline__ void add_exponentials(SumExp& so_far, const uint4 (&v)[K]) {
  constexpr int L = lanes<E>;
  uint4 largest = v[0];
#pragma unroll
  for (int k = 1; k < K; ++k) largest = larger<E>(largest, v[k]);
  float values[L], top = so_far.maximum;
  unpack<E>(largest, values);
#pragma unroll
  for (int e = 0; e < L; ++e) top = fmaxf(top, values[e]);
  const float pivot = top == -infinity() ? 0.0f : top;
  float sums[4] = {so_far.sum * exponential<E>(so_far.maximum - pivot), 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    unpack<E>(v[k], values);
#pragma unroll
    for (int e = 0; e < L; ++e) sums[e % 4] += exponential<E>(values[e] - pivot);
  }
  so_far = {top, (sums[0] + sums[1]) + (sums[2] + sums[3])};
}

/// The value of the lane whose number differs in the bits of `step`; of 4, 8, … bytes.
template <class V>
__device__ __forceinline__ V shuffle_xor(const V& value, int step) {
  V other;
#pragma unroll
  for (int i = 0; i < int{sizeof(V) / 4}; ++i)
    reinterpret_cast<uint32_t*>(&other)[i] = __shfl_xor_sync(all_lanes, reinterpret_cast<const uint32_t*>(&value)[i], step);
  return other;
}

/// Over each group of `group` neighbouring lanes, a power of two; all lanes of the warp call it, each gets the result.
template <class Op, class V>
__device__ __forceinline__ V warp_reduce(V value, int group = 32) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (step < group) value = Op::join(value, shuffle_xor(value, step));
  }
  return value;
}

/// The same with one exponential a lane: first the maximum, then the sum.
template <class Op>
__device__ __forceinline__ SumExp warp_reduce(const SumExp& part, int group = 32) {
  const float top = warp_reduce<MaxNumber>(part.maximum, group);
  return {top, warp_reduce<Sum>(Op::relative(part, top), group)};
}

/// n values side by side in memory.
template <class Op, int n, class V>
__device__ __forceinline__ V join_all(const V* parts) {
  V all = parts[0];
#pragma unroll
  for (int i = 1; i < n; ++i) all = Op::join(all, parts[i]);
  return all;
}
/// The same with exponentials that do not wait for each other.
template <class Op, int n>
__device__ __forceinline__ SumExp join_all(const SumExp* parts) {
  float top = parts[0].maximum;
#pragma unroll
  for (int i = 1; i < n; ++i) top = fmaxf(top, parts[i].maximum);
  float sum = Op::relative(parts[0], top);
#pragma unroll
  for (int i = 1; i < n; ++i) sum += Op::relative(parts[i], top);
  return {top, sum};
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
