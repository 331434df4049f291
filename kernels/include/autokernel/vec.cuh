// Storage types of a CUDA kernel file, and rows of them moved 16 bytes at a time at any address of an element.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using int64_t = long;  // NVRTC has no <cstdint>
using uint32_t = unsigned int;
using uint64_t = unsigned long;

namespace ak {

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }
template <class E>
constexpr bool is_half = false;
template <>
constexpr bool is_half<__half> = true;

constexpr uint32_t all_lanes = 0xffffffffu;

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Round to nearest even.
template <class E>
__device__ __forceinline__ E from_float(float value) {
  if constexpr (sizeof(E) == 4) {
    return value;
  } else if constexpr (is_half<E>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

// ---- 16 bytes ------------------------------------------------------------------------------------------------------

/// Elements of a vector of 16 bytes.
template <class E>
constexpr int lanes = 16 / int{sizeof(E)};

/// How 16 aligned bytes are moved that are read or written once: `load`, `both`: to be evicted first; `past_l1`: read past the first cache.
enum class Hint { none, load, both, past_l1 };

template <Hint hint = Hint::none>
__device__ __forceinline__ uint4 load_16(const void* p) {
  const uint4* const from = static_cast<const uint4*>(p);
  if constexpr (hint == Hint::load || hint == Hint::both) return __ldcs(from);
  if constexpr (hint == Hint::past_l1) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
  }
  return *from;
}
/// At this place of the program, or at least before the next barrier of the warp or the block. (The assembler moves ld.global.nc past them.)
__device__ __forceinline__ uint4 load_16_now(const void* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
/// Where it is `wanted`, without a branch. (NVRTC may make four stores of an assignment.)
template <Hint hint = Hint::none>
__device__ __forceinline__ void store_16(void* p, const uint4& v, bool wanted = true) {
#define AK_STORE(how) \
  asm volatile("{ .reg .pred wanted; setp.ne.s32 wanted, %5, 0; @wanted st.global" how ".v4.u32 [%0], {%1, %2, %3, %4}; }" ::"l"(p), \
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(static_cast<int>(wanted)) : "memory")
  if constexpr (hint == Hint::both) {
    AK_STORE(".cs");
  } else {
    AK_STORE("");
  }
#undef AK_STORE
}

template <class E>
__device__ __forceinline__ void unpack(const uint4& packed, float (&values)[lanes<E>]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(E) == 4) {
      values[i] = __uint_as_float(words[i]);
    } else if constexpr (is_half<E>) {
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    } else {  // by instructions that the compiler doesn't move to where the values are long not needed
      asm("shl.b32 %0, %1, 16;" : "=f"(values[2 * i]) : "r"(words[i]));
      asm("and.b32 %0, %1, 0xffff0000;" : "=f"(values[2 * i + 1]) : "r"(words[i]));
    }
  }
}

template <class E>
__device__ __forceinline__ uint4 pack(const float (&values)[lanes<E>]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(E) == 4) {
      words[i] = __float_as_uint(values[i]);
    } else if constexpr (is_half<E>) {
      const __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      words[i] = reinterpret_cast<const uint32_t&>(pair);
    } else {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      words[i] = reinterpret_cast<const uint32_t&>(pair);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Let the compilers take the vectors for new ones, so that they unpack them again rather than keep what was unpacked in twice the registers.
/// (An exclusive or with the third number of the block, 0 in a grid of fewer dimensions. The assembler sees through a mere move.)
template <int K>
__device__ __forceinline__ void forget_unpacked(uint4 (&v)[K]) {
  const uint32_t zero = blockIdx.z;
#pragma unroll
  for (int k = 0; k < K; ++k) v[k] = make_uint4(v[k].x ^ zero, v[k].y ^ zero, v[k].z ^ zero, v[k].w ^ zero);
}

/// The maxima of the elements at each place of two vectors; of a number and NaN the number.
template <class E>
__device__ __forceinline__ uint4 larger(const uint4& a, const uint4& b) {
  uint32_t words[4] = {a.x, a.y, a.z, a.w};
  const uint32_t others[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(E) == 4) {
      words[i] = __float_as_uint(fmaxf(__uint_as_float(words[i]), __uint_as_float(others[i])));
    } else if constexpr (is_half<E>) {
      asm("max.f16x2 %0, %0, %1;" : "+r"(words[i]) : "r"(others[i]));
    } else {
      asm("max.bf16x2 %0, %0, %1;" : "+r"(words[i]) : "r"(others[i]));
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// The sums of the elements at each place of two vectors, rounded.
template <class E>
__device__ __forceinline__ uint4 add_16(const uint4& a, const uint4& b) {
  float values[lanes<E>], others[lanes<E>];
  unpack<E>(a, values);
  unpack<E>(b, others);
#pragma unroll
  for (int e = 0; e < lanes<E>; ++e) values[e] += others[e];
  return pack<E>(values);
}

/// A vector whose elements are all `value`.
template <class E>
__device__ __forceinline__ uint4 splat(float value) {
  float values[lanes<E>];
#pragma unroll
  for (int e = 0; e < lanes<E>; ++e) values[e] = value;
  return pack<E>(values);
}

/// Bytes [begin, begin + 16) of the 32 bytes `low`, `high`; 0 <= begin <= 16, a multiple of 2.
__device__ __forceinline__ uint4 cut(const uint4& low, const uint4& high, int begin) {
  uint32_t w[9] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w, 0};
  if (begin & 16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = w[i + 4];
  }
  if (begin & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = w[i + 2];
  }
  if (begin & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 1];
  }
  const uint32_t bits = 8 * (begin & 2);
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits), __funnelshift_r(w[2], w[3], bits),
                    __funnelshift_r(w[3], w[4], bits));
}

/// The first `count` elements of `v`, then those of `fill`.
template <class E>
__device__ __forceinline__ uint4 keep_first(const uint4& v, const uint4& fill, int count) {
  uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(E) == 4) {
      if (i >= count) words[i] = fill.x;
    } else {
      if (2 * i >= count) words[i] = fill.x;
      if (2 * i + 1 == count) words[i] = (words[i] & 0xffffu) | (fill.x & 0xffff0000u);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// The elements [begin, end) of `v`, and those of `fill`, which are all alike, elsewhere.
template <class E>
__device__ __forceinline__ uint4 keep_range(const uint4& v, const uint4& fill, int begin, int end) {
  uint32_t words[4] = {v.x, v.y, v.z, v.w};
  constexpr int in_word = lanes<E> / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int first = i * in_word;
    if (begin >= first + in_word || end <= first) {
      words[i] = fill.x;
    } else if (in_word == 2) {
      if (begin == first + 1) words[i] = (words[i] & 0xffff0000u) | (fill.x & 0xffffu);
      if (end == first + 1) words[i] = (words[i] & 0xffffu) | (fill.x & 0xffff0000u);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ int misalignment(const void* p) { return static_cast<int>(reinterpret_cast<uint64_t>(p) & 15); }

/// 16 bytes from any address of an element, of which `count` elements are wanted. An aligned block of 16 bytes that holds none of them is
/// not touched.
template <class E>
__device__ __forceinline__ uint4 load_any(const E* p, int count) {
  const int offset = misalignment(p);
  const uint4* const blocks = reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(p) - offset);
  const int wanted = (count < lanes<E> ? count : lanes<E>)*int{sizeof(E)};
  const uint4 low = blocks[0];
  uint4 high = low;
  if (offset + wanted > 16) high = blocks[1];
  return cut(low, high, offset);
}

template <class E>
__device__ __forceinline__ void store_first(E* p, const uint4& v, int begin, int end) {
  float values[lanes<E>];
  unpack<E>(v, values);
#pragma unroll
  for (int e = 0; e < lanes<E>; ++e) {
    if (begin <= e && e < end) p[e] = from_float<E>(values[e]);
  }
}

/// Store vectors that lie side by side over the lanes of a group, at any address of an element. All lanes of the warp call it; `lane` is
/// the place in a group of `group` lanes, a power of two, and `count` how many elements of `v` exist, 0 or less for none.
/// Each lane joins its first elements to the last ones of the lane before it into an aligned store.
template <class E>
__device__ __forceinline__ void store_any(E* p, const uint4& v, int count, int lane, int group) {
  uint4 before;
  before.x = __shfl_up_sync(all_lanes, v.x, 1, group);
  before.y = __shfl_up_sync(all_lanes, v.y, 1, group);
  before.z = __shfl_up_sync(all_lanes, v.z, 1, group);
  before.w = __shfl_up_sync(all_lanes, v.w, 1, group);
  const int next_count = __shfl_down_sync(all_lanes, count, 1, group);

  const int offset = misalignment(p);
  const int own = lanes<E> - offset / int{sizeof(E)};  // elements from here on share a block with the next lane's
  const bool joins = count >= lanes<E> && (lane > 0 || offset == 0);
  const bool next_joins = lane + 1 < group && next_count >= lanes<E>;
  if (joins) *reinterpret_cast<uint4*>(reinterpret_cast<char*>(p) - offset) = cut(before, v, 16 - offset);
  const int end = count < lanes<E> ? count : lanes<E>;
  const int from = joins ? own : 0, to = next_joins && own < end ? own : end;
  if (from < to) store_first(p, v, from, to);
}

// ---- rows ----------------------------------------------------------------------------------------------------------

/// The elements of vector k of a thread begin here in its row: the vectors of the threads of a row lie side by side.
template <class E>
__device__ __forceinline__ int place(int k, int thread, int threads) {
  return (k * threads + thread) * lanes<E>;
}

/// Load K vectors a thread of a row of `count` elements that lie side by side, and `fill` past its end.
template <class E, int K>
__device__ __forceinline__ void load_row(uint4 (&v)[K], const E* __restrict__ row, int count, int thread, int threads, const uint4& fill) {
  if (misalignment(row) == 0) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int i = place<E>(k, thread, threads);
      v[k] = fill;
      if (i < count) v[k] = *reinterpret_cast<const uint4*>(row + i);
    }
  } else {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int i = place<E>(k, thread, threads);
      v[k] = fill;
      if (i < count) v[k] = load_any(row + i, count - i);
    }
  }
  if (count % lanes<E>) {
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] = keep_first<E>(v[k], fill, count - place<E>(k, thread, threads));
  }
}

/// One vector of a row, like load_row.
template <class E>
__device__ __forceinline__ uint4 load_vector(const E* __restrict__ row, int i, int count, bool aligned) {
  if (i >= count) return make_uint4(0, 0, 0, 0);
  if (aligned) return *reinterpret_cast<const uint4*>(row + i);
  return load_any(row + i, count - i);
}

/// Store one vector of a row; all lanes of the warp call it. `aligned`: rows begin at multiples of 16 bytes, the same for the whole warp.
template <class E>
__device__ __forceinline__ void store_vector(E* __restrict__ row, int i, const uint4& v, int count, bool aligned, int lane, int group) {
  if (!aligned) {
    store_any(row + i, v, count - i, lane, group);
  } else if (i + lanes<E> <= count) {
    *reinterpret_cast<uint4*>(row + i) = v;
  } else if (i < count) {
    store_first(row + i, v, 0, count - i);
  }
}

/// Store K vectors a thread of a row; all lanes of the warp call it. `values(k, floats)` gives those of vector k.
template <class E, int K, class Values>
__device__ __forceinline__ void store_row(E* __restrict__ row, int count, int thread, int threads, int group, bool aligned,
                                          const Values& values) {
  float v[lanes<E>];
  if (aligned) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      values(k, v);
      store_vector(row, place<E>(k, thread, threads), pack<E>(v), count, true, thread % group, group);
    }
  } else {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      values(k, v);
      store_vector(row, place<E>(k, thread, threads), pack<E>(v), count, false, thread % group, group);
    }
  }
}

}  // namespace ak
