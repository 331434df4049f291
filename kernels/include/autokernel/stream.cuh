// Elements side by side that are read once and in any order: aligned vectors of 16 bytes, several of a thread in flight, wherever the first
// element lies.
#pragma once
#include <autokernel/vec.cuh>

namespace ak {

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
      if (begin < first || begin + L > last) v[k] = keep_range<E>(v[k], splat<E>(fill), first - begin, last - begin);
    }
  }

  /// Vectors that hold elements.
  __device__ __forceinline__ int64_t size() const { return (skip + count + L - 1) / L; }

  /// Call visit(v, begin) for K vectors of each of `threads` threads, `at` and every `step` vectors further; v[k] holds the elements from
  /// begin + k * threads * L on, or `fill` before the first and after the last. `now` holds what load() gave for `at`, which so can be
  /// under way earlier. `ahead`: the next vectors are under way during a visit.
  template <bool ahead, int K, class Visit>
  __device__ __forceinline__ void each(uint4 (&now)[K], int64_t at, int64_t step, int thread, int threads, float fill,
                                       const Visit& visit) const {
    const int64_t end = size();
    while (at < end) {
      const int64_t begin = (at + thread) * L - skip;
      at += step;
      if (ahead) {
        uint4 next[K];
        if (at < end) load(next, at, thread, threads, fill);
        visit(now, begin);
#pragma unroll
        for (int k = 0; k < K; ++k) now[k] = next[k];
      } else {
        visit(now, begin);
        if (at < end) load(now, at, thread, threads, fill);
      }
    }
  }
};

}  // namespace ak
