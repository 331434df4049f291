/*autokernel
family  = "layernorm"
backend = "cuda"

[tune]
VECTORS = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # vectors of 16 bytes that a thread holds of a row
THREADS = { values = [128, 256, 512, 1024], default = 512, tier = 1 }   # of a block at most; a longer row is read three times
SHORT   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # of a block there
require = ["VECTORS * THREADS <= 4096"]                                 # the registers of a multiprocessor

# Rows that a warp holds, one or several to a warp.
[[variant]]
when = "(N <= 1 || x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && bias.stride(0) <= 1) && N * sizeof(T) <= 512 * SHORT"
[[variant.launch]]
kernel = "layernorm_warps"
grid   = ["cdiv(M, WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT))))"]
block  = ["32 * WARPS"]
args   = ["x", "weight", "bias", "out", "M", "N", "x.stride(0)", "out.stride(0)", "pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT)))",
          "eps"]

# Rows that a block holds.
[[variant]]
when = "x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && bias.stride(0) <= 1 && N * sizeof(T) <= 16 * VECTORS * THREADS"
[[variant.launch]]
kernel = "layernorm_block"
grid   = ["M"]
block  = ["align(cdiv(N * sizeof(T), 16 * VECTORS), 32)"]
args   = ["x", "weight", "bias", "out", "N", "x.stride(0)", "out.stride(0)", "eps"]

# Longer rows.
[[variant]]
when = "x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && bias.stride(0) <= 1"
[[variant.launch]]
kernel = "layernorm_long"
grid   = ["M"]
block  = ["THREADS"]
args   = ["x", "weight", "bias", "out", "N", "x.stride(0)", "out.stride(0)", "eps"]

# Any strides.
[[launch]]
kernel = "layernorm_strided"
grid   = ["M"]
block  = ["THREADS"]
args   = ["x", "weight", "bias", "out", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "bias.stride(0)", "out.stride(0)",
          "out.stride(1)", "eps"]

[[recipe]]
name = "few threads with much each"
tier = 1
when = "N * sizeof(T) >= 4096"
gain = "1.2x over one vector a thread"
text = "Long rows are bound by memory: several loads of a thread in flight, and several small blocks of a multiprocessor at once."
[[recipe]]
name = "more threads for few rows"
tier = 1
when = "M < sm_count"
gain = "1.5x where latency rules"
text = "With fewer rows than multiprocessors nothing overlaps: a smaller VECTORS or SHORT spreads a row over more threads."
[[recipe]]
name = "one read of a long row"
tier = 4
when = "N * sizeof(T) > 65536"
gain = "one read of the second cache in three"
text = "Merge the moments of vectors by Chan's formula, so that mean and squares take one pass."
*/
#include <autokernel/reduce.cuh>

namespace {

constexpr int L = ak::lanes<T>;

// The mean is found around the first element of the row, so that equal elements give exactly 0 and a common offset costs no digits; what the
// mean lacks as a float is found with the squares.

/// What a thread adds up around a centre.
struct Sums {
  float first = 0.0f, second = 0.0f;

  __device__ __forceinline__ void add(float difference) {
    first += difference;
    second += difference * difference;
  }
};

/// The normal value is (x - mean - lack) * scale.
struct Moments {
  float mean, lack, scale;

  __device__ __forceinline__ Moments(float mean, const Sums& around_mean, int64_t N, float eps) : mean(mean) {
    lack = around_mean.first / static_cast<float>(N);
    const float excess = around_mean.second < ak::infinity() ? around_mean.first * lack : 0.0f;
    const float variance = (around_mean.second - excess) / static_cast<float>(N);
    scale = 1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + eps);
  }
  __device__ __forceinline__ float operator()(float x) const { return (x - mean - lack) * scale; }
};

/// Over the elements of the row among the vectors of a thread.
template <int K>
__device__ __forceinline__ void add_vectors(Sums& sums, const uint4 (&v)[K], float centre, int count, int thread, int threads) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int left = count - ak::place<T>(k, thread, threads);
    float values[L];
    ak::unpack<T>(v[k], values);
    if (left >= L) {
#pragma unroll
      for (int e = 0; e < L; ++e) sums.add(values[e] - centre);
    } else if (left > 0) {
#pragma unroll
      for (int e = 0; e < L; ++e) sums.add(e < left ? values[e] - centre : 0.0f);
    }
  }
}

/// out = normal * weight + bias, for the vectors of a thread.
template <bool aligned, int K>
__device__ __forceinline__ void write_vectors(const uint4 (&v)[K], const T* __restrict__ weight, const T* __restrict__ bias,
                                              T* __restrict__ out, int count, const Moments& normal, int thread, int threads, int group) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int i = ak::place<T>(k, thread, threads);
    float values[L], weights[L], biases[L];
    ak::unpack<T>(v[k], values);
    if (HAS_WEIGHT) ak::unpack<T>(ak::load_vector(weight, i, count, aligned), weights);
    if (HAS_BIAS) ak::unpack<T>(ak::load_vector(bias, i, count, aligned), biases);
#pragma unroll
    for (int e = 0; e < L; ++e) {
      values[e] = normal(values[e]);
      if (HAS_WEIGHT) values[e] *= weights[e];
      if (HAS_BIAS) values[e] += biases[e];
    }
    ak::store_vector(out, i, ak::pack<T>(values), count, aligned, thread % group, group);
  }
}

/// `aligned`: out, weight and bias begin at multiples of 16 bytes.
template <int K>
__device__ __forceinline__ void write_row(const uint4 (&v)[K], const T* weight, const T* bias, T* out, int count, const Moments& normal,
                                          int thread, int threads, int group, bool aligned) {
  if (aligned) {
    write_vectors<true>(v, weight, bias, out, count, normal, thread, threads, group);
  } else {
    write_vectors<false>(v, weight, bias, out, count, normal, thread, threads, group);
  }
}

__device__ __forceinline__ bool aligned(const T* weight, const T* bias, const T* out) {
  return (!HAS_WEIGHT || ak::misalignment(weight) == 0) && (!HAS_BIAS || ak::misalignment(bias) == 0) && ak::misalignment(out) == 0;
}

template <class Range>
__device__ __forceinline__ Moments block_moments(float first, int64_t N, float eps, float* room, const Range& add_range) {
  Sums rough, fine;
  add_range(rough, first);
  const float mean = first + ak::block_reduce<ak::Sum>(rough.first, 0.0f, room) / static_cast<float>(N);
  add_range(fine, mean);
  fine.first = ak::block_reduce<ak::Sum>(fine.first, 0.0f, room + 32);
  fine.second = ak::block_reduce<ak::Sum>(fine.second, 0.0f, room + 64);
  return Moments(mean, fine, N, eps);
}

}  // namespace

/// `group` lanes hold a row.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    layernorm_warps(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out, int64_t M,
                    int64_t N, int64_t x_row, int64_t out_row, int64_t group, float eps) {
  const int lanes = static_cast<int>(group), lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (32 * WARPS / lanes) + threadIdx.x / lanes;
  const int count = row < M ? static_cast<int>(N) : 0;
  x += (row < M ? row : 0) * x_row;
  uint4 v[SHORT];
  ak::load_row<T>(v, x, count, lane, lanes, make_uint4(0, 0, 0, 0));
  const float first = count > 0 ? ak::to_float(x[0]) : 0.0f;
  Sums rough, fine;
  add_vectors(rough, v, first, count, lane, lanes);
  const float mean = first + ak::warp_reduce<ak::Sum>(rough.first, lanes) / static_cast<float>(N);
  add_vectors(fine, v, mean, count, lane, lanes);
  fine.first = ak::warp_reduce<ak::Sum>(fine.first, lanes);
  fine.second = ak::warp_reduce<ak::Sum>(fine.second, lanes);
  const bool rows_aligned = aligned(weight, bias, out) && out_row % L == 0;
  write_row(v, weight, bias, out + row * out_row, count, Moments(mean, fine, N, eps), lane, lanes, lanes, rows_aligned);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layernorm_block(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out, int64_t N,
                    int64_t x_row, int64_t out_row, float eps) {
  __shared__ float room[96];
  const int count = static_cast<int>(N);
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  uint4 v[VECTORS];
  ak::load_row<T>(v, x, count, threadIdx.x, blockDim.x, make_uint4(0, 0, 0, 0));
  const Moments normal = block_moments(ak::to_float(x[0]), N, eps, room, [&](Sums& sums, float centre) {
    add_vectors(sums, v, centre, count, threadIdx.x, blockDim.x);
  });
  write_row(v, weight, bias, out, count, normal, threadIdx.x, blockDim.x, 32, aligned(weight, bias, out));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    layernorm_long(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out, int64_t N,
                   int64_t x_row, int64_t out_row, float eps) {
  __shared__ float room[96];
  constexpr int step = THREADS * VECTORS * L;
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  uint4 v[VECTORS];
  const auto load = [&](int64_t begin) {
    const int count = static_cast<int>(min(N - begin, int64_t{step}));
    ak::load_row<T>(v, x + begin, count, threadIdx.x, THREADS, make_uint4(0, 0, 0, 0));
    return count;
  };
  const Moments normal = block_moments(ak::to_float(x[0]), N, eps, room, [&](Sums& sums, float centre) {
    for (int64_t begin = 0; begin < N; begin += step) {
      const int count = load(begin);
      add_vectors(sums, v, centre, count, threadIdx.x, THREADS);
    }
  });
  for (int64_t begin = 0; begin < N; begin += step) {
    const int count = load(begin);
    write_row(v, HAS_WEIGHT ? weight + begin : weight, HAS_BIAS ? bias + begin : bias, out + begin, count, normal, threadIdx.x, THREADS, 32,
              aligned(weight, bias, out));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layernorm_strided(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out, int64_t N,
                      int64_t x_row, int64_t x_column, int64_t weight_step, int64_t bias_step, int64_t out_row, int64_t out_column,
                      float eps) {
  __shared__ float room[96];
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  const Moments normal = block_moments(ak::to_float(x[0]), N, eps, room, [&](Sums& sums, float centre) {
    for (int64_t i = threadIdx.x; i < N; i += THREADS) sums.add(ak::to_float(x[i * x_column]) - centre);
  });
  for (int64_t i = threadIdx.x; i < N; i += THREADS) {
    float value = normal(ak::to_float(x[i * x_column]));
    if (HAS_WEIGHT) value *= ak::to_float(weight[i * weight_step]);
    if (HAS_BIAS) value += ak::to_float(bias[i * bias_step]);
    out[i * out_column] = ak::from_float<T>(value);
  }
}
