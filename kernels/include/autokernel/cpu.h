// What a CPU kernel file stands on: fixed-width types, storage types, float vectors, and AK_KERNEL. No standard header, so it compiles fast.
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;

namespace ak {

// ---- storage types -------------------------------------------------------------------------------------------------

using float16 = _Float16;

/// bfloat16 as stored: the upper half of a float, rounded to nearest even.
struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  bfloat16(float value) {
    const uint32_t u = __builtin_bit_cast(uint32_t, value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(is_nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  operator float() const { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }
};

// ---- vectors of float ----------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
inline constexpr int native_lanes = 16;  // floats in the widest register of the target
#elif defined(__AVX2__)
inline constexpr int native_lanes = 8;
#else
inline constexpr int native_lanes = 4;
#endif

/// W values of type E in one GCC vector; arithmetic and comparison are element-wise.
template <class E, int W>
struct VectorOf {
  typedef E type __attribute__((vector_size(W * sizeof(E))));
};
template <int W>
using Floats = typename VectorOf<float, W>::type;
template <int W>
using Ints = typename VectorOf<int32_t, W>::type;

using Vec = Floats<native_lanes>;

/// Load W elements from any alignment and widen them to float.
template <int W>
inline Floats<W> load(const float* p) {
  Floats<W> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <int W>
inline Floats<W> load(const float16* p) {
  typename VectorOf<float16, W>::type v;
  __builtin_memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Floats<W>);
}
template <int W>
inline Floats<W> load(const bfloat16* p) {
  typename VectorOf<uint16_t, W>::type v;
  __builtin_memcpy(&v, p, sizeof v);
  return (Floats<W>)(__builtin_convertvector(v, typename VectorOf<uint32_t, W>::type) << 16);
}

/// Round W floats to the storage type and store them at any alignment.
template <int W>
inline void store(float* p, Floats<W> v) {
  __builtin_memcpy(p, &v, sizeof v);
}
template <int W>
inline void store(float16* p, Floats<W> v) {
  const auto narrow = __builtin_convertvector(v, typename VectorOf<float16, W>::type);
  __builtin_memcpy(p, &narrow, sizeof narrow);
}
template <int W>
inline void store(bfloat16* p, Floats<W> v) {
  using U = typename VectorOf<uint32_t, W>::type;
  const U u = (U)v;
  const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U quiet = (u >> 16) | 0x40u;
  const U is_nan = (U)((u & 0x7fffffffu) > 0x7f800000u);
  const auto narrow = __builtin_convertvector((rounded & ~is_nan) | (quiet & is_nan), typename VectorOf<uint16_t, W>::type);
  __builtin_memcpy(p, &narrow, sizeof narrow);
}

// ---- publishing kernels --------------------------------------------------------------------------------------------

/// One parameter of a published kernel; the plan is checked against it before the first launch.
struct Parameter {
  int32_t kind;  // 0 pointer, 1 integer, 2 float
  int32_t size_bytes;
};

/// What the launcher finds in the shared object under the name ak_kernel_<name>.
struct KernelRecord {
  int32_t version;  // of this layout: 1
  int32_t parameter_count;
  const Parameter* parameters;
  void (*call)(int64_t block, int64_t worker, void* scratch, void* const* arguments);
};

namespace detail {

template <class A>
struct Kind { static constexpr int32_t value = 1; };
template <class A>
struct Kind<A*> { static constexpr int32_t value = 0; };
template <>
struct Kind<float> { static constexpr int32_t value = 2; };

template <class I, I... indices>
struct Sequence {};
#if __has_builtin(__make_integer_seq)
template <int n>
using Indices = __make_integer_seq<Sequence, int, n>;
#else
template <int n>
using Indices = Sequence<int, __integer_pack(n)...>;
#endif

template <auto kernel>
struct Exported;

template <class... A, void (*kernel)(int64_t, int64_t, void*, A...)>
struct Exported<kernel> {
  static constexpr int32_t count = sizeof...(A);
  static constexpr Parameter parameters[count + 1] = {{Kind<A>::value, sizeof(A)}..., {0, 0}};

  template <int... i>
  static void unpack(int64_t block, int64_t worker, void* scratch, void* const* arguments, Sequence<int, i...>) {
    kernel(block, worker, scratch, *static_cast<A*>(arguments[i])...);
  }
  static void call(int64_t block, int64_t worker, void* scratch, void* const* arguments) {
    unpack(block, worker, scratch, arguments, Indices<count>{});
  }
};

}  // namespace detail
}  // namespace ak

/// Publish a kernel, after its definition: `void f(int64_t block, int64_t worker, void* scratch, arguments…)`.
#define AK_KERNEL(f)                                                                          \
  extern "C" {                                                                                \
  extern const ak::KernelRecord ak_kernel_##f;                                                \
  const ak::KernelRecord ak_kernel_##f = {1, ak::detail::Exported<&f>::count,                 \
                                          ak::detail::Exported<&f>::parameters,               \
                                          &ak::detail::Exported<&f>::call};                   \
  }
