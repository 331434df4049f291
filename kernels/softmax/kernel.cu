/*autokernel
family  = "softmax"
backend = "cuda"

[tune]
VECTORS = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # vectors of 16 bytes that a thread holds of a row
THREADS = { values = [128, 256, 512, 1024], default = 512, tier = 1 }   # of a block at most; a longer row is read twice
SHORT   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # of a block there
DEPTH   = { values = [4, 8, 16, 32],        default = 16,  tier = 1 }   # threads to a row where rows lie side by side
require = ["VECTORS * THREADS <= 4096"]                                 # the registers of a multiprocessor

# Rows that a warp holds, one or several to a warp.
[[variant]]
when = "(N <= 1 || x.stride(1) == 1 && out.stride(1) == 1) && N * sizeof(T) <= 512 * SHORT"
[[variant.launch]]
kernel = "softmax_warps"
grid   = ["cdiv(M, WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT))))"]
block  = ["32 * WARPS"]
args   = ["x", "out", "M", "N", "x.stride(0)", "out.stride(0)", "pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT)))", "scale"]

# Rows that a block holds.
[[variant]]
when = "x.stride(1) == 1 && out.stride(1) == 1 && N * sizeof(T) <= 16 * VECTORS * THREADS"
[[variant.launch]]
kernel = "softmax_block"
grid   = ["M"]
block  = ["align(cdiv(N * sizeof(T), 16 * VECTORS), 32)"]
args   = ["x", "out", "N", "x.stride(0)", "out.stride(0)", "scale"]

# Longer rows.
[[variant]]
when = "x.stride(1) == 1 && out.stride(1) == 1"
[[variant.launch]]
kernel = "softmax_long"
grid   = ["M"]
block  = ["THREADS"]
args   = ["x", "out", "N", "x.stride(0)", "out.stride(0)", "scale"]

# Rows side by side, and any strides.
[[launch]]
kernel = "softmax_columns"
grid   = ["cdiv(M, 32)"]
block  = ["32", "DEPTH"]
args   = ["x", "out", "M", "N", "x.stride(0)", "x.stride(1)", "out.stride(0)", "out.stride(1)", "scale"]

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
name = "split the row over a cluster"
tier = 6
when = "N * sizeof(T) > 65536"
gain = "one read of memory instead of two"
text = "Blocks of a cluster hold a part of the row each in registers, and exchange maximum and sum through distributed shared memory."
*/
#include <autokernel/reduce.cuh>

namespace {

constexpr int L = ak::lanes<T>;

/// x * scale or x / scale. A divisor that is a power of two becomes a factor, which is exact.
struct Scale {
  float factor = 1.0f, divisor = 1.0f;
  bool keeps_order;  // -inf stays -inf

  explicit __device__ Scale(float scale) : keeps_order(scale > 0.0f && scale < ak::infinity()) {
    const uint32_t bits = __float_as_uint(scale), exponent = (bits >> 23) & 0xff;
    if (!DIVIDE) {
      factor = scale;
    } else if ((bits & 0x7fffff) == 0 && exponent > 1 && exponent < 253) {
      factor = 1.0f / scale;
    } else {
      divisor = scale;
    }
  }
  /// Rounded as a product, whatever is subtracted from it.
  __device__ __forceinline__ float operator()(float x) const {
    const float product = __fmul_rn(x, factor);
    return DIVIDE && divisor != 1.0f ? product / divisor : product;
  }
};

/// The scaled elements that a thread holds of a row, -inf past its end.
template <int K>
__device__ __forceinline__ void load_scaled(float (&values)[K * L], const T* x, int count, int thread, int threads, const Scale& scale) {
  uint4 v[K];
  ak::load_row<T>(v, x, count, thread, threads, ak::splat<T>(-ak::infinity()));
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float unpacked[L];
    ak::unpack<T>(v[k], unpacked);
#pragma unroll
    for (int e = 0; e < L; ++e) values[k * L + e] = scale(unpacked[e]);
  }
  if (!scale.keeps_order) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int e = 0; e < L; ++e) {
        if (ak::place<T>(k, thread, threads) + e >= count) values[k * L + e] = -ak::infinity();
      }
    }
  }
}

template <int n>
__device__ __forceinline__ float max_of(const float (&values)[n]) {
  float top = values[0];
#pragma unroll
  for (int i = 1; i < n; ++i) top = fmaxf(top, values[i]);
  return top;
}

/// Replace scaled elements by their exponentials, or by what is less than the maximum, and return the sum of exponentials.
template <int n>
__device__ __forceinline__ float exponentials(float (&values)[n], float top) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    values[i] -= top;
    const float power = ak::exponential<T>(values[i]);
    sum += power;
    if (!LOG) values[i] = power;
  }
  return sum;
}

/// From what `exponentials` left: `total` is the sum, of which the logarithm or the inverse is `last`.
__device__ __forceinline__ float last_of(float sum) { return LOG ? logf(sum) : 1.0f / sum; }
__device__ __forceinline__ float finish(float value, float last) { return LOG ? value - last : value * last; }
/// The same from a scaled element.
__device__ __forceinline__ float result(float scaled, float top, float last) {
  return finish(LOG ? scaled - top : ak::exponential<T>(scaled - top), last);
}

}  // namespace

/// `group` lanes hold a row.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    softmax_warps(const T* __restrict__ x, T* __restrict__ out, int64_t M, int64_t N, int64_t x_row, int64_t out_row, int64_t group,
                  float scale) {
  const int lanes = static_cast<int>(group), lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (32 * WARPS / lanes) + threadIdx.x / lanes;
  const int count = row < M ? static_cast<int>(N) : 0;
  float values[SHORT * L];
  load_scaled<SHORT>(values, x + (row < M ? row : 0) * x_row, count, lane, lanes, Scale(scale));
  const float top = ak::warp_reduce<ak::MaxNumber>(max_of(values), lanes);
  const float last = last_of(ak::warp_reduce<ak::Sum>(exponentials(values, top), lanes));
  const bool aligned = ak::misalignment(out) == 0 && out_row % L == 0;
  ak::store_row<T, SHORT>(out + row * out_row, count, lane, lanes, lanes, aligned, [&](int k, float(&v)[L]) {
#pragma unroll
    for (int e = 0; e < L; ++e) v[e] = finish(values[k * L + e], last);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_block(const T* __restrict__ x, T* __restrict__ out, int64_t N, int64_t x_row, int64_t out_row, float scale) {
  __shared__ float room[64];
  const int count = static_cast<int>(N);
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  float values[VECTORS * L];
  load_scaled<VECTORS>(values, x, count, threadIdx.x, blockDim.x, Scale(scale));
  const float top = ak::block_reduce<ak::MaxNumber>(max_of(values), -ak::infinity(), room);
  const float last = last_of(ak::block_reduce<ak::Sum>(exponentials(values, top), 0.0f, room + 32));
  ak::store_row<T, VECTORS>(out, count, threadIdx.x, blockDim.x, 32, ak::misalignment(out) == 0, [&](int k, float(&v)[L]) {
#pragma unroll
    for (int e = 0; e < L; ++e) v[e] = finish(values[k * L + e], last);
  });
}

/// Read once for maximum and sum, and again to write.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    softmax_long(const T* __restrict__ x, T* __restrict__ out, int64_t N, int64_t x_row, int64_t out_row, float factor) {
  __shared__ float room[64];
  constexpr int step = THREADS * VECTORS * L;
  const Scale scale(factor);
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  float values[VECTORS * L];
  ak::SumExp part = {-ak::infinity(), 0.0f};
  for (int64_t begin = 0; begin < N; begin += step) {
    load_scaled<VECTORS>(values, x + begin, static_cast<int>(min(N - begin, int64_t{step})), threadIdx.x, THREADS, scale);
    ak::add_exponentials<T>(part, values);
  }
  const ak::SumExp whole = ak::block_sum_exp<T>(part, room);
  const float last = last_of(whole.sum);
  for (int64_t begin = 0; begin < N; begin += step) {
    const int count = static_cast<int>(min(N - begin, int64_t{step}));
    load_scaled<VECTORS>(values, x + begin, count, threadIdx.x, THREADS, scale);
    ak::store_row<T, VECTORS>(out + begin, count, threadIdx.x, THREADS, 32, ak::misalignment(out) == 0, [&](int k, float(&v)[L]) {
#pragma unroll
      for (int e = 0; e < L; ++e) v[e] = result(values[k * L + e], whole.maximum, last);
    });
  }
}

/// A warp reads 32 neighbouring rows at one place; DEPTH warps share them.
extern "C" __global__ void __launch_bounds__(32 * DEPTH, 1)
    softmax_columns(const T* __restrict__ x, T* __restrict__ out, int64_t M, int64_t N, int64_t x_row, int64_t x_column, int64_t out_row,
                    int64_t out_column, float factor) {
  __shared__ ak::SumExp parts[DEPTH][32];
  const Scale scale(factor);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const int64_t end = row < M ? N : 0;
  x += row * x_row;
  out += row * out_row;

  constexpr int unroll = 4;
  ak::SumExp part = {-ak::infinity(), 0.0f};
  for (int64_t i = threadIdx.y; i < end; i += unroll * DEPTH) {
    float values[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) values[u] = i + u * DEPTH < end ? scale(ak::to_float(x[(i + u * DEPTH) * x_column])) : -ak::infinity();
    ak::add_exponentials<T>(part, values);
  }
  parts[threadIdx.y][threadIdx.x] = part;
  __syncthreads();
  float top = -ak::infinity(), sum = 0.0f;
  for (int d = 0; d < DEPTH; ++d) top = fmaxf(top, parts[d][threadIdx.x].maximum);
  for (int d = 0; d < DEPTH; ++d) {
    const ak::SumExp other = parts[d][threadIdx.x];
    sum += other.maximum == top ? other.sum : other.sum * ak::exponential<T>(other.maximum - top);
  }
  const float last = last_of(sum);
#pragma unroll 4
  for (int64_t i = threadIdx.y; i < end; i += DEPTH)
    out[i * out_column] = ak::from_float<T>(result(scale(ak::to_float(x[i * x_column])), top, last));
}
