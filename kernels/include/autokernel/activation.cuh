// Activation functions of one value, accurate to float32.
#pragma once
#include <autokernel/vec.cuh>

namespace ak {

/// The activation that a family's option ACTIVATION names: 0 none, 1 GELU (erf), 2 GELU (tanh), 3 ReLU, 4 SiLU, 5 squared ReLU.
template <int kind>
__device__ __forceinline__ float activate(float x) {
  static_assert(0 <= kind && kind <= 5);
  if constexpr (kind == 1) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  } else if constexpr (kind == 2) {  // (1 + tanh u) / 2 = 1 / (1 + exp(-2u))
    return x / (1.0f + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
  } else if constexpr (kind == 3) {
    return x < 0.0f ? 0.0f : x;
  } else if constexpr (kind == 4) {
    return x / (1.0f + expf(-x));
  } else if constexpr (kind == 5) {
    const float positive = x < 0.0f ? 0.0f : x;
    return positive * positive;
  } else {
    return x;
  }
}

}  // namespace ak
