// The tensor cores by mma.sync, and how operands of any strides come to them.
#pragma once
#include <autokernel/vec.cuh>

namespace ak {

/// c += a b^T for 16 rows of a and 8 rows of b, 16 deep, spread over a warp. Lane t has of a, in pairs of neighbours, rows t / 4 and
/// t / 4 + 8 at depth t % 4 * 2, then both at 8 further; of b row t / 4 at the same depths; of c columns t % 4 * 2 and the next of both rows.
template <class E>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (is_half<E>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

/// Two neighbouring elements of 16 bits.
template <class E>
__device__ __forceinline__ uint32_t pair(const E& at) {
  return *reinterpret_cast<const uint32_t*>(&at);
}

/// `count` elements, zeros behind them. Not inlined: its registers would be everyone's.
template <class E>
__device__ __noinline__ uint4 gather(const E* from, int64_t step, int count) {
  float values[lanes<E>];
#pragma unroll
  for (int e = 0; e < lanes<E>; ++e) values[e] = e < count ? to_float(from[e * step]) : 0.0f;
  return pack<E>(values);
}

}  // namespace ak
