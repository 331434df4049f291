/*autokernel
family  = "rmsnorm"
backend = "cuda"

[tune]
VECTORS = { values = [1, 2, 4, 8, 16],      default = 8,   tier = 1 }   # vectors of 16 bytes that a thread holds of a row
THREADS = { values = [128, 256, 512, 1024], default = 512, tier = 1 }   # of a block at most; a longer row is read twice
SHORT   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # of a block there
require = ["VECTORS * THREADS <= 8192"]                                 # the registers of a multiprocessor

# Rows that a warp holds, one or several to a warp.
[[variant]]
when = "(N <= 1 || x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1) && N * sizeof(T) <= 512 * SHORT"
[[variant.launch]]
kernel = "rmsnorm_warps"
grid   = ["cdiv(M, WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT))))"]
block  = ["32 * WARPS"]
args   = ["x", "weight", "out", "M", "N", "x.stride(0)", "out.stride(0)", "pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT)))", "eps"]

# Rows that a block holds.
[[variant]]
when = "x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && N * sizeof(T) <= 16 * VECTORS * THREADS"
[[variant.launch]]
kernel = "rmsnorm_block"
grid   = ["M"]
block  = ["align(cdiv(N * sizeof(T), 16 * VECTORS), 32)"]
args   = ["x", "weight", "out", "N", "x.stride(0)", "out.stride(0)", "eps"]

# Longer rows.
[[variant]]
when = "x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1"
[[variant.launch]]
kernel = "rmsnorm_long"
grid   = ["M"]
block  = ["THREADS"]
args   = ["x", "weight", "out", "N", "x.stride(0)", "out.stride(0)", "eps"]

# Any strides.
[[launch]]
kernel = "rmsnorm_strided"
grid   = ["M"]
block  = ["THREADS"]
args   = ["x", "weight", "out", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "out.stride(0)", "out.stride(1)", "eps"]

[[recipe]]
name = "few threads with much each"
tier = 1
when = "N * sizeof(T) >= 4096"
gain = "1.3x over one vector a thread"
text = """
Long rows are bound by memory: VECTORS = 8 keeps eight loads of a thread in flight, and several small blocks of an SM overlap one's
stores with another's loads."""
[[recipe]]
name = "more threads for few rows"
tier = 1
when = "M < sm_count"
gain = "1.5x where latency rules"
text = "With fewer rows than SMs nothing overlaps: a smaller VECTORS or SHORT spreads a row over more threads."
[[recipe]]
name = "loads ahead of the row"
tier = 6
when = "M >= 2 * sm_count && N * sizeof(T) <= 16384"
gain = "1.1x below 32 MB"
text = "Persistent blocks that fetch the next rows by bulk copies into shared memory, 4 stages deep, hide the start of each block."
*/
#include <autokernel/reduce.cuh>

namespace {

constexpr int L = ak::lanes<T>;

/// 1 / the root of the mean square.
__device__ __forceinline__ float scale_of(float squares, int64_t N, float eps) {
  if (MACHINE_EPS) eps = 1.1920929e-7f;
  return 1.0f / sqrtf(squares / static_cast<float>(N) + eps);
}

template <int K>
__device__ __forceinline__ float sum_squares(const uint4 (&v)[K]) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[L];
    ak::unpack<T>(v[k], values);
#pragma unroll
    for (int e = 0; e < L; ++e) sum += values[e] * values[e];
  }
  return sum;
}

__device__ __forceinline__ float gain(float normal, float weight) { return normal * (WEIGHT_OFFSET ? weight + 1.0f : weight); }

/// out = x * scale * gain, for the vectors of a thread.
template <bool aligned, int K>
__device__ __forceinline__ void write_vectors(const uint4 (&v)[K], const T* __restrict__ weight, T* __restrict__ out, int count, float scale, int thread,
                              int threads, int group) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int i = ak::place<T>(k, thread, threads);
    float values[L], weights[L];
    ak::unpack<T>(v[k], values);
    if (HAS_WEIGHT) ak::unpack<T>(ak::load_vector(weight, i, count, aligned), weights);
#pragma unroll
    for (int e = 0; e < L; ++e) {
      values[e] *= scale;
      if (HAS_WEIGHT) values[e] = gain(values[e], weights[e]);
    }
    ak::store_vector(out, i, ak::pack<T>(values), count, aligned, thread % group, group);
  }
}

/// `aligned`: out and weight begin at multiples of 16 bytes.
template <int K>
__device__ __forceinline__ void write_row(const uint4 (&v)[K], const T* __restrict__ weight, T* __restrict__ out, int count, float scale, int thread,
                          int threads, int group, bool aligned) {
  if (aligned) {
    write_vectors<true>(v, weight, out, count, scale, thread, threads, group);
  } else {
    write_vectors<false>(v, weight, out, count, scale, thread, threads, group);
  }
}

__device__ __forceinline__ bool aligned(const T* weight, const T* out) { return (!HAS_WEIGHT || ak::misalignment(weight) == 0) && ak::misalignment(out) == 0; }

}  // namespace

/// `group` lanes hold a row.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    rmsnorm_warps(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ out, int64_t M, int64_t N, int64_t x_row,
                  int64_t out_row, int64_t group, float eps) {
  const int lanes = static_cast<int>(group), lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (32 * WARPS / lanes) + threadIdx.x / lanes;
  const int count = row < M ? static_cast<int>(N) : 0;
  uint4 v[SHORT];
  ak::load_row<T>(v, x + (row < M ? row : 0) * x_row, count, lane, lanes, ak::splat<T>(0.0f));
  const float scale = scale_of(ak::warp_reduce<ak::Sum>(sum_squares(v), lanes), N, eps);
  const bool rows_aligned = aligned(weight, out) && out_row % L == 0;
  write_row(v, weight, out + row * out_row, count, scale, lane, lanes, lanes, rows_aligned);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rmsnorm_block(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ out, int64_t N, int64_t x_row, int64_t out_row,
                  float eps) {
  __shared__ float room[32];
  const int count = static_cast<int>(N);
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  uint4 v[VECTORS];
  ak::load_row<T>(v, x, count, threadIdx.x, blockDim.x, ak::splat<T>(0.0f));
  const float scale = scale_of(ak::block_reduce<ak::Sum>(sum_squares(v), 0.0f, room), N, eps);
  write_row(v, weight, out, count, scale, threadIdx.x, blockDim.x, 32, aligned(weight, out));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    rmsnorm_long(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ out, int64_t N, int64_t x_row, int64_t out_row,
                 float eps) {
  __shared__ float room[32];
  constexpr int step = THREADS * VECTORS * L;
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  uint4 v[VECTORS];
  float sum = 0.0f;
  for (int64_t begin = 0; begin < N; begin += step) {
    ak::load_row<T>(v, x + begin, static_cast<int>(min(N - begin, int64_t{step})), threadIdx.x, THREADS, ak::splat<T>(0.0f));
    sum += sum_squares(v);
  }
  const float scale = scale_of(ak::block_reduce<ak::Sum>(sum, 0.0f, room), N, eps);
  for (int64_t begin = 0; begin < N; begin += step) {
    const int count = static_cast<int>(min(N - begin, int64_t{step}));
    ak::load_row<T>(v, x + begin, count, threadIdx.x, THREADS, ak::splat<T>(0.0f));
    write_row(v, HAS_WEIGHT ? weight + begin : weight, out + begin, count, scale, threadIdx.x, THREADS, 32, aligned(weight, out));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rmsnorm_strided(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ out, int64_t N, int64_t x_row, int64_t x_column,
                    int64_t weight_step, int64_t out_row, int64_t out_column, float eps) {
  __shared__ float room[32];
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < N; i += THREADS) {
    const float value = ak::to_float(x[i * x_column]);
    sum += value * value;
  }
  const float scale = scale_of(ak::block_reduce<ak::Sum>(sum, 0.0f, room), N, eps);
  for (int64_t i = threadIdx.x; i < N; i += THREADS) {
    float value = ak::to_float(x[i * x_column]) * scale;
    if (HAS_WEIGHT) value = gain(value, ak::to_float(weight[i * weight_step]));
    out[i * out_column] = ak::from_float<T>(value);
  }
}
