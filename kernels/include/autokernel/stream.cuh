// Elements side by side that are read once and in any order: aligned vectors of 16 bytes, several of a thread in flight, wherever the first
// element lies.
#pragma once
#include <autokernel/vec.cuh>

namespace ak {

/// Elements [begin, end) of `v`, and `fill` instead of the others.
template <class E>
__device__ __forceinline__ uint4 keep_between(const uint4& v, float fill, int begin, int end) {
  float values[lanes<E>];
  unpack<E>(v, values);
#pragma unroll
  for (int e = 0; e < lanes<E>; ++e) values[e] = begin <= e && e < end ? values[e] : fill;
  return pack<E>(values);
}

/// `count` elements from `first` on, as the aligned vectors that hold them: the first and the last may hold others, too.
template <class E>
struct Stream {
  static constexpr int L = lanes<E>;
  const uint4* vectors;
  int skip;  // elements before the first in its vector
  int64_t count;

  __device__ __forceinline__ Stream(const E* first, int64_t count) : skip(misalignment(first) / int{sizeof(E)}), count(count) {
    vectors = reinterpret_cast<const uint4*>(first - skip);
  }

  /// Load vectors at, at + threads, …; `fill` where there is no element. `at` is that of thread 0.
  template <int K>
  __device__ __forceinline__ void load(uint4 (&v)[K], int64_t at, int thread, int threads, float fill) const {
    const uint4* const own = vectors + at + thread;
    const int first = at == 0 ? skip : 0;  // from here on and before `last` elements of all that is loaded exist
    const int last = static_cast<int>(min(skip + count - at * L, int64_t{K} * threads * L));
    if (first == 0 && last == K * threads * L) {
#pragma unroll
      for (int k = 0; k < K; ++k) v[k] = own[k * threads];
      return;
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      v[k] = splat<E>(fill);
      if ((k * threads + thread) * L < last) v[k] = own[k * threads];
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int begin = (k * threads + thread) * L;
      if (begin < first || begin + L > last) v[k] = keep_between<E>(v[k], fill, first - begin, last - begin);
    }
  }

  /// Call visit(v, begin) for K vectors of each of `threads` threads after the other; v[k] holds the elements from begin + k * threads * L
  /// on, or `fill` before the first and after the last. `ahead`: the next ones are under way meanwhile.
  template <int K, bool ahead, class Visit>
  __device__ __forceinline__ void each(int thread, int threads, float fill, const Visit& visit) const {
    const int64_t end = (skip + count + L - 1) / L, step = int64_t{K} * threads;
    uint4 now[K];
    if (ahead && end > 0) load(now, 0, thread, threads, fill);
    for (int64_t at = 0; at < end; at += step) {
      uint4 next[K];
      if (ahead) {
        if (at + step < end) load(next, at + step, thread, threads, fill);
      } else {
        load(now, at, thread, threads, fill);
      }
      visit(now, (at + thread) * L - skip);
      if (ahead) {
#pragma unroll
        for (int k = 0; k < K; ++k) now[k] = next[k];
      }
    }
  }
};

}  // namespace ak
