// What a CPU kernel file stands on: fixed-width types, storage types, float vectors, exp, sums, and AK_KERNEL. No standard header, so it compiles fast.
#pragma once
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than the target's registers never cross a compiled boundary

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

template <class E>
struct StorageOf {
  using type = E;
};
template <>
struct StorageOf<bfloat16> {
  using type = uint16_t;
};
/// W values of a storage type, as they lie in memory.
template <class E, int W>
using Stored = typename VectorOf<typename StorageOf<E>::type, W>::type;

/// The lower and the upper half of a vector.
template <class Half, class Whole>
inline Half lower_half(const Whole& v) {
  Half h;
  __builtin_memcpy(&h, &v, sizeof h);
  return h;
}
template <class Half, class Whole>
inline Half upper_half(const Whole& v) {
  Half h;
  __builtin_memcpy(&h, reinterpret_cast<const char*>(&v) + sizeof h, sizeof h);
  return h;
}
template <class Whole, class Half>
inline Whole join(const Half& low, const Half& high) {
  Whole v;
  __builtin_memcpy(&v, &low, sizeof low);
  __builtin_memcpy(reinterpret_cast<char*>(&v) + sizeof low, &high, sizeof high);
  return v;
}

/// Widen W stored values to float, exactly.
template <class E, int W>
inline Floats<W> widen(const Stored<E, W>& v) {
  if constexpr (__is_same(E, float)) {
    return v;
  } else if constexpr (__is_same(E, bfloat16)) {
    using U = typename VectorOf<uint32_t, W>::type;
#if defined(__AVX512F__)
    if constexpr (W == 16) {  // GCC widens in two halves
      U wide;
      asm("vpmovzxwd %1, %0" : "=v"(wide) : "v"(v));
      return (Floats<W>)(wide << 16);
    }
#endif
    return (Floats<W>)(__builtin_convertvector(v, U) << 16);
#if defined(__F16C__)
  } else if constexpr (W == 8 || (W == 16 && native_lanes == 16)) {  // GCC converts vectors of _Float16 one lane at a time
    Floats<W> wide;
    asm("vcvtph2ps %1, %0" : "=v"(wide) : "v"(v));
    return wide;
  } else if constexpr (W > 8) {
    using Half = Stored<E, W / 2>;
    return join<Floats<W>>(widen<E, W / 2>(lower_half<Half>(v)), widen<E, W / 2>(upper_half<Half>(v)));
#endif
  } else {
    return __builtin_convertvector(v, Floats<W>);
  }
}

/// Round W floats to a storage type: nearest even, NaN stays NaN.
template <class E, int W>
inline Stored<E, W> narrow(const Floats<W>& v) {
  if constexpr (__is_same(E, float)) {
    return v;
  } else if constexpr (__is_same(E, bfloat16)) {
    using U = typename VectorOf<uint32_t, W>::type;
    const U u = (U)v;
    const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const U quiet = (u >> 16) | 0x40u;
    const U is_nan = (U)((u & 0x7fffffffu) > 0x7f800000u);
    const U bits = (rounded & ~is_nan) | (quiet & is_nan);
#if defined(__AVX512F__)
    if constexpr (W == 16) {
      Stored<E, W> low;
      asm("vpmovdw %1, %0" : "=v"(low) : "v"(bits));
      return low;
    }
#endif
    return __builtin_convertvector(bits, Stored<E, W>);
#if defined(__F16C__)
  } else if constexpr (W == 8 || (W == 16 && native_lanes == 16)) {
    Stored<E, W> half;
    asm("vcvtps2ph $0, %1, %0" : "=v"(half) : "v"(v));
    return half;
  } else if constexpr (W > 8) {
    return join<Stored<E, W>>(narrow<E, W / 2>(lower_half<Floats<W / 2>>(v)), narrow<E, W / 2>(upper_half<Floats<W / 2>>(v)));
#endif
  } else {
    return __builtin_convertvector(v, Stored<E, W>);
  }
}

/// Load W elements from any alignment and widen them to float.
template <int W, class E>
inline Floats<W> load(const E* p) {
  Stored<E, W> v;
  __builtin_memcpy(&v, p, sizeof v);
  return widen<E, W>(v);
}
/// Load the first `count` < W elements; the other lanes hold `fill`. Reads nothing else.
template <int W, class E>
inline Floats<W> load_first(const E* p, int64_t count, float fill) {
  float lanes[W];
  for (int64_t i = 0; i < W; ++i) lanes[i] = i < count ? static_cast<float>(p[i]) : fill;
  return load<W>(static_cast<const float*>(lanes));
}

/// The first `count` lanes of v, and `fill` in the others.
template <int W>
inline Floats<W> keep_first(const Floats<W>& v, int64_t count, float fill) {
  float lanes[W];
  __builtin_memcpy(lanes, &v, sizeof v);
  return load_first<W>(static_cast<const float*>(lanes), count, fill);
}

/// Round W floats to the storage type and store them at any alignment.
template <int W, class E>
inline void store(E* p, const Floats<W>& v) {
  const auto stored = narrow<E, W>(v);
  __builtin_memcpy(p, &stored, sizeof stored);
}
/// Store the first `count` < W lanes, and nothing else.
template <int W, class E>
inline void store_first(E* p, const Floats<W>& v, int64_t count) {
  const auto stored = narrow<E, W>(v);
  __builtin_memcpy(p, &stored, static_cast<uint64_t>(count) * sizeof(E));
}
/// Store a + b, W elements of each, and load them again as they were rounded.
template <int W, class E>
inline Floats<W> store_sum(E* p, const E* a, const E* b) {
  store<W>(p, load<W>(a) + load<W>(b));
  return load<W>(static_cast<const E*>(p));
}
/// The first `count` < W elements, the other lanes being 0.
template <int W, class E>
inline Floats<W> store_first_sum(E* p, const E* a, const E* b, int64_t count) {
  store_first<W>(p, load_first<W>(a, count, 0.0f) + load_first<W>(b, count, 0.0f), count);
  return load_first<W>(static_cast<const E*>(p), count, 0.0f);
}
/// Store past the caches where the address allows it. A kernel that uses it ends with `stream_fence()`.
template <int W, class E>
inline void stream(E* p, const Floats<W>& v) {
#if defined(__AVX__)
  constexpr uint64_t bytes = W * sizeof(E);
  if constexpr (bytes == 16 || bytes == 32 || (bytes == 64 && native_lanes == 16)) {
    if ((reinterpret_cast<uint64_t>(p) & (bytes - 1)) == 0) {
      const auto stored = narrow<E, W>(v);
      asm volatile("vmovntdq %1, %0" : "=m"(*reinterpret_cast<Stored<E, W>*>(p)) : "v"(stored));
      return;
    }
  }
#endif
  store<W>(p, v);
}
inline void stream_fence() {
#if defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#endif
}

/// All lanes equal to `value`.
template <int W>
inline Floats<W> splat(float value) {
  return value - Floats<W>{};  // not `+`: that would lose the sign of -0
}

/// The larger (smaller) of each lane; where either is NaN, the second. GCC makes two instructions of the comparison, x86 has one.
template <int W>
inline Floats<W> larger(const Floats<W>& a, const Floats<W>& b) {
#if defined(__AVX__)
  if constexpr (W == 8 || (W == 16 && native_lanes == 16)) {
    Floats<W> most;
    asm("vmaxps %2, %1, %0" : "=v"(most) : "v"(a), "v"(b));
    return most;
  }
#endif
  return a > b ? a : b;
}
template <int W>
inline Floats<W> smaller(const Floats<W>& a, const Floats<W>& b) {
#if defined(__AVX__)
  if constexpr (W == 8 || (W == 16 && native_lanes == 16)) {
    Floats<W> least;
    asm("vminps %2, %1, %0" : "=v"(least) : "v"(a), "v"(b));
    return least;
  }
#endif
  return a < b ? a : b;
}

// ---- reductions over lanes and rows --------------------------------------------------------------------------------

/// Fold the lanes in halves with `combine` (a generic lambda over two vectors or two floats).
template <int W, class Combine>
inline float fold_lanes(const Floats<W>& v, Combine combine) {
  if constexpr (W == 2) {
    return combine(Floats<2>{v[0], v[0]}, Floats<2>{v[1], v[1]})[0];
  } else {
    return fold_lanes<W / 2>(combine(lower_half<Floats<W / 2>>(v), upper_half<Floats<W / 2>>(v)), combine);
  }
}
template <int W>
inline float sum_lanes(const Floats<W>& v) {
  return fold_lanes<W>(v, [](auto a, auto b) { return a + b; });
}
/// A NaN may be lost: use it where the NaN comes back through another path, as in softmax.
template <int W>
inline float max_lanes(const Floats<W>& v) {
  return fold_lanes<W>(v, [](auto a, auto b) { return a > b ? a : b; });
}

/// Sums of W lanes in double, for the outer level of a sum and for sums that must not round.
template <int W>
struct WideSum {
  using Half = typename VectorOf<double, W / 2>::type;
  Half low = {}, high = {};

  void read(const double* p) {
    __builtin_memcpy(&low, p, sizeof low);
    __builtin_memcpy(&high, p + W / 2, sizeof high);
  }
  void write(double* p) const {
    __builtin_memcpy(p, &low, sizeof low);
    __builtin_memcpy(p + W / 2, &high, sizeof high);
  }
  void add(const Floats<W>& v) {
    low += __builtin_convertvector(lower_half<Floats<W / 2>>(v), Half);
    high += __builtin_convertvector(upper_half<Floats<W / 2>>(v), Half);
  }
  Floats<W> lanes() const {
    using Part = Floats<W / 2>;
    return join<Floats<W>>(__builtin_convertvector(low, Part), __builtin_convertvector(high, Part));
  }
  double total() const {
    const Half both = low + high;
    double sum = 0;
    for (int i = 0; i < W / 2; ++i) sum += both[i];
    return sum;
  }
};

template <int W, int count>
inline Floats<W> add_all(Floats<W> (&v)[count]) {
#pragma GCC unroll 4
  for (int gap = 1; gap < count; gap *= 2) {
#pragma GCC unroll 16
    for (int u = 0; u + gap < count; u += 2 * gap) v[u] += v[u + gap];
  }
  return v[0];
}

/// Sum `term(i)` over the whole vectors of 0 <= i < count, and `tail(i, n)` over the n < W elements left (its other lanes must be 0).
/// Sums of at most 32 terms a lane are folded into doubles, so that the error does not grow with the row; the order depends on
/// `count` alone, so the result is the same on any thread and at any address.
template <int W, int unroll, class Term, class Tail>
inline double sum_terms(int64_t count, Term term, Tail tail) {
  constexpr int64_t step = int64_t{W} * unroll;
  WideSum<W> total;
  Floats<W> part[unroll] = {};
  int64_t i = 0;
  while (i + step <= count) {
    const int64_t end = i + 32 * step < count ? i + 32 * step : count;
    for (; i + step <= end; i += step) {
#pragma GCC unroll 16
      for (int u = 0; u < unroll; ++u) part[u] += term(i + u * W);
    }
    if (i + step > count) break;
    total.add(add_all<W>(part));
#pragma GCC unroll 16
    for (int u = 0; u < unroll; ++u) part[u] = Floats<W>{};
  }
  for (; i + W <= count; i += W) part[0] += term(i);
  if (i < count) part[unroll - 1] += tail(i, count - i);
  total.add(add_all<W>(part));
  return total.total();
}

/// The same in double throughout: exact for a row of equal values.
template <int W, int unroll, class Term, class Tail>
inline double sum_exactly(int64_t count, Term term, Tail tail) {
  constexpr int64_t step = int64_t{W} * unroll;
  WideSum<W> total[unroll];
  int64_t i = 0;
  for (; i + step <= count; i += step) {
#pragma GCC unroll 16
    for (int u = 0; u < unroll; ++u) total[u].add(term(i + u * W));
  }
  for (; i + W <= count; i += W) total[0].add(term(i));
  if (i < count) total[unroll - 1].add(tail(i, count - i));
  for (int u = 1; u < unroll; ++u) {
    total[0].low += total[u].low;
    total[0].high += total[u].high;
  }
  return total[0].total();
}

/// Fold `term(i)` and `tail(i, n)` with `combine`, from `first`: `tail` fills its other lanes with what does not change the result.
template <int W, int unroll, class Term, class Tail, class Combine>
inline float fold_terms(int64_t count, float first, Term term, Tail tail, Combine combine) {
  constexpr int64_t step = int64_t{W} * unroll;
  Floats<W> part[unroll];
#pragma GCC unroll 16
  for (int u = 0; u < unroll; ++u) part[u] = splat<W>(first);
  int64_t i = 0;
  for (; i + step <= count; i += step) {
#pragma GCC unroll 16
    for (int u = 0; u < unroll; ++u) part[u] = combine(term(i + u * W), part[u]);
  }
  for (; i + W <= count; i += W) part[0] = combine(term(i), part[0]);
  if (i < count) part[unroll - 1] = combine(tail(i, count - i), part[unroll - 1]);
  for (int u = 1; u < unroll; ++u) part[0] = combine(part[u], part[0]);
  return fold_lanes<W>(part[0], combine);
}

/// A row of `count` elements that lie side by side: the row itself, or a copy of it in `room` where the stride is not 1.
template <class E>
inline const E* packed_row(const E* row, int64_t stride, int64_t count, E* room) {
  if (stride == 1) return row;
  for (int64_t i = 0; i < count; ++i) room[i] = row[i * stride];
  return room;
}
/// The way back: spread `packed` over a row whose stride is not 1.
template <class E>
inline void spread_row(const E* packed, E* row, int64_t stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i * stride] = packed[i];
}

/// Of the rows that come next, where not null: their elements, to be fetched into the cache.
template <class E>
struct NextRows {
  const E *x, *added;

  void fetch(int64_t i) const {
    if (x) __builtin_prefetch(x + i);
    if (added) __builtin_prefetch(added + i);
  }
};

// ---- exp -----------------------------------------------------------------------------------------------------------

/// e to the x: within 1 ulp at degree 6 (2 ulp at 5), denormal results included; exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
/// x = n ln 2 + r with |r| <= ln 2 / 2; exp r = 1 + r + r² q(r), q a minimax polynomial; the product with 2^n rounds once.
template <int W, int degree = 6>
inline Floats<W> exp(Floats<W> x) {
  static_assert(degree == 5 || degree == 6, "q has coefficients for these");
  const Floats<W> low = splat<W>(-105.0f), high = splat<W>(89.0f);
  x = larger<W>(low, x);
  x = smaller<W>(high, x);
  constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Floats<W> shifted = x * 1.44269504088896341f + to_integer;
  const Floats<W> n = shifted - to_integer;
  const Floats<W> r = (x - n * 0.693359375f) - n * -2.12194440054690583e-4f;
  Floats<W> q;
  if constexpr (degree == 6) {
    q = r * 0.0013814598564839825f + 0.008368716983647006f;
    q = q * r + 0.04166838805441543f;
    q = q * r + 0.1666652063083407f;
    q = q * r + 0.4999999344773531f;
  } else {
    q = r * 0.008312520386996414f + 0.04189015764370604f;
    q = q * r + 0.1666711465035889f;
    q = q * r + 0.49999231489369694f;
  }
  const Floats<W> y = (r * r * q + r) + 1.0f;
#if defined(__AVX512F__)
  if constexpr (W == 16) {
    Floats<W> scaled;
    asm("vscalefps %2, %1, %0" : "=v"(scaled) : "v"(y), "v"(n));
    return scaled;
  }
#endif
  const Ints<W> exponent = (Ints<W>)shifted - 0x4b400000;
  const Ints<W> first = exponent >> 1;
  return y * (Floats<W>)((first + 127) << 23) * (Floats<W>)((exponent - first + 127) << 23);
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
