// Activation functions on float vectors, accurate to float32.
#pragma once
#include <autokernel/cpu.h>

namespace ak {

/// The error function, absolute error below 1.3e-7; NaN stays NaN.
/// Below 1, x + x p(x²); beyond, 1 - exp(q(|x|)), which is 1 in float from 4 on. p and q are Chebyshev fits to erf(x)/x - 1 and ln erfc(x).
template <int W>
inline Floats<W> erf(const Floats<W>& x) {
  const Floats<W> four = splat<W>(4.0f);
  const Floats<W> size = smaller<W>(four, x < 0.0f ? -x : x);
  const Floats<W> z = size * size;
  Floats<W> p = z * 7.882497448008507e-05f - 0.0008018855005502701f;
  p = p * z + 0.005189312156289816f;
  p = p * z - 0.02685432881116867f;
  p = p * z + 0.11283597350120544f;
  p = p * z - 0.3761262595653534f;
  p = p * z + 0.12837910652160645f;
  Floats<W> q = size * 1.6140616025950294e-06f - 4.559062290354632e-05f;
  q = q * size + 0.0005927695310674608f;
  q = q * size - 0.004740222357213497f;
  q = q * size + 0.02636471763253212f;
  q = q * size - 0.10997824370861053f;
  q = q * size - 0.6319370865821838f;
  q = q * size - 1.1301666498184204f;
  q = q * size + 0.00030321296071633697f;
  const Floats<W> y = size < 1.0f ? size * p + size : 1.0f - exp<W>(q);
  return x < 0.0f ? -y : y;
}

/// x / (1 + exp(-x)); NaN at -inf, as -inf * 0 in PyTorch.
template <int W>
inline Floats<W> silu(const Floats<W>& x) {
  return x / (1.0f + exp<W>(-x));
}

/// The activation that a family's option ACTIVATION names: 0 none, 1 GELU (erf), 2 GELU (tanh), 3 ReLU, 4 SiLU, 5 squared ReLU.
template <int kind, int W>
inline Floats<W> activate(const Floats<W>& x) {
  static_assert(0 <= kind && kind <= 5);
  if constexpr (kind == 1) {
    return 0.5f * x * (1.0f + erf<W>(x * 0.70710678118654752f));
  } else if constexpr (kind == 2) {  // (1 + tanh u) / 2 = 1 / (1 + exp(-2u))
    return x / (1.0f + exp<W>(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
  } else if constexpr (kind == 3) {
    return x < 0.0f ? Floats<W>{} : x;
  } else if constexpr (kind == 4) {
    return silu<W>(x);
  } else if constexpr (kind == 5) {
    const Floats<W> positive = x < 0.0f ? Floats<W>{} : x;
    return positive * positive;
  } else {
    return x;
  }
}

}  // namespace ak
