/*autokernel
family  = "reduce"
backend = "cuda"

[tune]
VECTORS = { values = [1, 2, 4, 8],                default = 8,     tier = 1 }   # vectors of 16 bytes that a thread reads at a time
THREADS = { values = [128, 256, 512, 1024],       default = 256,   tier = 1 }   # of a block, which has a row or a part of one
SHORT   = { values = [1, 2, 4, 8],                default = 4,     tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS   = { values = [1, 2, 4, 8],                default = 4,     tier = 1 }   # of a block there
SPAN    = { values = [4096, 16384, 65536, 262144], default = 16384, tier = 4 }  # elements of a row, above which few rows are split
DEPTH   = { values = [64, 128, 256, 512, 1024],   default = 256,   tier = 4 }   # the same for columns side by side
SHARERS = { values = [4, 8, 16],                  default = 8,     tier = 1 }   # warps that share the same columns
UNROLL  = { values = [1, 2, 4, 8],                default = 4,     tier = 3 }   # rows of them in flight
require = ["VECTORS * THREADS <= 4096"]                                         # the registers of a multiprocessor

[scratch.parts]                               # results of the parts of a split reduction
dtype = "float32"
shape = ["max(cdiv(N, SPAN), cdiv(N, DEPTH)) * OUTER * INNER"]

# Along short rows: a warp holds one or several.
[[variant]]
when = "INNER == 1 && (N <= 1 || x.stride(1) == 1) && N * sizeof(T) <= 512 * SHORT"
[[variant.launch]]
kernel = "reduce_warps"
grid   = ["cdiv(OUTER, WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT))))"]
block  = ["32 * WARPS"]
args   = ["x", "out", "OUTER", "N", "x.stride(0)", "out.stride(0)", "pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT)))"]

# Along rows.
[[variant]]
when = "INNER == 1 && x.stride(1) == 1 && (N <= SPAN || OUTER >= 2 * sm_count)"
[[variant.launch]]
kernel = "reduce_rows"
grid   = ["OUTER"]
block  = ["min(THREADS, align(cdiv(N * sizeof(T), 16 * VECTORS), 32))"]
args   = ["x", "out", "N", "x.stride(0)", "out.stride(0)"]

# Along few long rows.
[[variant]]
when = "INNER == 1 && x.stride(1) == 1"
[[variant.launch]]
kernel = "reduce_row_parts"
grid   = ["cdiv(N, SPAN) * OUTER"]
block  = ["THREADS"]
args   = ["x", "parts", "N", "x.stride(0)", "cdiv(N, SPAN)"]
[[variant.launch]]
kernel = "reduce_parts_of_rows"
grid   = ["OUTER"]
block  = ["THREADS"]
args   = ["parts", "out", "cdiv(N, SPAN)", "N", "out.stride(0)"]

# Across rows that lie one after the other.
[[variant]]
when = "x.stride(2) == 1 && INNER >= 32 && (N <= DEPTH || OUTER * cdiv(INNER * sizeof(T), 512) >= 4 * sm_count)"
[[variant.launch]]
kernel = "reduce_columns"
grid   = ["OUTER * cdiv(INNER * sizeof(T), 512)"]
block  = ["32", "SHARERS"]
args   = ["x", "out", "N", "INNER", "x.stride(0)", "x.stride(1)", "out.stride(0)", "out.stride(1)"]
[[variant]]
when = "x.stride(2) == 1 && INNER >= 32"
[[variant.launch]]
kernel = "reduce_column_parts"
grid   = ["cdiv(N, DEPTH) * OUTER * cdiv(INNER * sizeof(T), 512)"]
block  = ["32", "SHARERS"]
args   = ["x", "parts", "OUTER", "N", "INNER", "x.stride(0)", "x.stride(1)"]
[[variant.launch]]
kernel = "reduce_parts_of_columns"
grid   = ["cdiv(OUTER * INNER, THREADS)"]
block  = ["THREADS"]
args   = ["parts", "out", "cdiv(N, DEPTH)", "OUTER", "INNER", "N", "out.stride(0)", "out.stride(1)"]

# Any strides.
[[launch]]
kernel = "reduce_strided"
grid   = ["cdiv(OUTER * INNER, 32)"]
block  = ["32", "SHARERS"]
args   = ["x", "out", "OUTER", "N", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)", "out.stride(0)", "out.stride(1)"]

[[recipe]]
name = "enough blocks"
tier = 1
when = "OUTER * INNER < 64"
gain = "up to the number of idle multiprocessors"
text = """
Few results and many elements: a lower SPAN or DEPTH gives every multiprocessor several parts. The parts are merged in order."""
[[recipe]]
name = "bytes in flight"
tier = 1
when = "N * sizeof(T) >= 4096"
gain = "1.2x"
text = "Only memory counts: VECTORS or UNROLL loads of a thread in flight, and enough warps to fill the multiprocessors."
[[recipe]]
name = "one launch"
tier = 6
when = "OUTER * INNER < 64 && OUTER * N * INNER * sizeof(T) < l2_bytes"
gain = "2 us"
text = "The block that finishes last, by a counter that it sets back, merges the parts of all in order."
*/
#include <autokernel/reduce.cuh>

namespace {

constexpr int L = ak::lanes<T>;
constexpr int unroll = UNROLL;  // a pragma does not expand macros
constexpr bool is_sum = OP < 2;

template <int op>
struct Operation : ak::Sum {
  using Total = double;  // sums that cancel are then right to their last bits
};
template <>
struct Operation<2> : ak::Max {
  using Total = float;
};
template <>
struct Operation<3> : ak::Min {
  using Total = float;
};
using Op = Operation<OP>;
using Total = Op::Total;

__device__ __forceinline__ float neutral() { return is_sum ? 0.0f : OP == 2 ? -ak::infinity() : ak::infinity(); }
__device__ __forceinline__ float mean_of(Total total, int64_t N) {
  return static_cast<float>(OP == 1 ? static_cast<double>(total) / static_cast<double>(N) : total);
}

/// In a tree; n is a power of two.
template <int n>
__device__ __forceinline__ float fold(float (&values)[n]) {
#pragma unroll
  for (int step = n / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < step; ++i) values[i] = Op::join(values[i], values[i + step]);
  }
  return values[0];
}

template <int K, class E>
__device__ __forceinline__ float fold_vectors(const uint4 (&v)[K]) {
  constexpr int lanes = ak::lanes<E>;
  float folded[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[lanes];
    ak::unpack<E>(v[k], values);
    folded[k] = fold(values);
  }
  return fold(folded);
}

/// What a block makes of `count` elements side by side.
template <class E>
__device__ __forceinline__ Total reduce_packed(const E* __restrict__ x, int64_t count) {
  __shared__ Total room[32];
  const int threads = blockDim.x, step = threads * VECTORS * ak::lanes<E>;
  Total total = neutral();
  for (int64_t begin = 0; begin < count; begin += step) {
    uint4 v[VECTORS];
    ak::load_row<E>(v, x + begin, static_cast<int>(min(count - begin, int64_t{step})), threadIdx.x, threads, ak::splat<E>(neutral()));
    total = Op::join(total, static_cast<Total>(fold_vectors<VECTORS, E>(v)));
  }
  return ak::block_reduce<Op>(total, static_cast<Total>(neutral()), room);
}

/// What a block makes of rows [0, N) of the L columns of each lane, `count` of which exist; the first warp has the result.
__device__ __forceinline__ void reduce_strip(Total (&totals)[L], const T* __restrict__ x, int64_t N, int64_t step, int count) {
  __shared__ Total room[SHARERS][32][L];
  const bool aligned = ak::misalignment(x) == 0 && step % L == 0;
#pragma unroll
  for (int e = 0; e < L; ++e) totals[e] = neutral();
  for (int64_t n = threadIdx.y; n < N; n += SHARERS * UNROLL) {
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      v[u] = ak::splat<T>(neutral());
      const int64_t row = n + u * SHARERS;
      if (row < N && count > 0) v[u] = ak::load_vector(x + row * step, 0, count, aligned);
    }
    float values[L];
    ak::unpack<T>(v[0], values);
#pragma unroll
    for (int u = 1; u < UNROLL; ++u) {
      float others[L];
      ak::unpack<T>(v[u], others);
#pragma unroll
      for (int e = 0; e < L; ++e) values[e] = Op::join(values[e], others[e]);
    }
#pragma unroll
    for (int e = 0; e < L; ++e) totals[e] = Op::join(totals[e], static_cast<Total>(values[e]));
  }
#pragma unroll
  for (int e = 0; e < L; ++e) room[threadIdx.y][threadIdx.x][e] = totals[e];
  __syncthreads();
  if (threadIdx.y > 0) return;
  for (int s = 1; s < SHARERS; ++s) {
#pragma unroll
    for (int e = 0; e < L; ++e) totals[e] = Op::join(totals[e], room[s][threadIdx.x][e]);
  }
}

}  // namespace

/// `group` lanes hold a row.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    reduce_warps(const T* __restrict__ x, T* __restrict__ out, int64_t outer, int64_t N, int64_t x_row, int64_t out_step, int64_t group) {
  const int lanes = static_cast<int>(group), lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (32 * WARPS / lanes) + threadIdx.x / lanes;
  const int count = row < outer ? static_cast<int>(N) : 0;
  uint4 v[SHORT];
  ak::load_row<T>(v, x + (row < outer ? row : 0) * x_row, count, lane, lanes, ak::splat<T>(neutral()));
  const Total total = ak::warp_reduce<Op>(static_cast<Total>(fold_vectors<SHORT, T>(v)), lanes);
  if (lane == 0 && row < outer) out[row * out_step] = ak::from_float<T>(mean_of(total, N));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows(const T* __restrict__ x, T* __restrict__ out, int64_t N, int64_t x_row, int64_t out_step) {
  const Total total = reduce_packed(x + blockIdx.x * x_row, N);
  if (threadIdx.x == 0) out[blockIdx.x * out_step] = ak::from_float<T>(mean_of(total, N));
}

/// Part p of row r goes to parts[r * parts_of_row + p].
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_row_parts(const T* __restrict__ x, float* __restrict__ parts, int64_t N, int64_t x_row, int64_t parts_of_row) {
  const int64_t row = blockIdx.x / parts_of_row, begin = blockIdx.x % parts_of_row * SPAN;
  const Total total = reduce_packed(x + row * x_row + begin, min(N - begin, int64_t{SPAN}));
  if (threadIdx.x == 0) parts[blockIdx.x] = static_cast<float>(total);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_parts_of_rows(const float* __restrict__ parts, T* __restrict__ out, int64_t parts_of_row, int64_t N, int64_t out_step) {
  const Total total = reduce_packed(parts + blockIdx.x * parts_of_row, parts_of_row);
  if (threadIdx.x == 0) out[blockIdx.x * out_step] = ak::from_float<T>(mean_of(total, N));
}

extern "C" __global__ void __launch_bounds__(32 * SHARERS)
    reduce_columns(const T* __restrict__ x, T* __restrict__ out, int64_t N, int64_t inner, int64_t x_outer, int64_t x_step,
                   int64_t out_outer, int64_t out_inner) {
  const int64_t strips = (inner + 32 * L - 1) / (32 * L), slice = blockIdx.x / strips;
  const int64_t column = blockIdx.x % strips * (32 * L) + threadIdx.x * L;
  const int count = static_cast<int>(min(inner - column, int64_t{L}));
  Total totals[L];
  reduce_strip(totals, x + slice * x_outer + column, N, x_step, count);
  if (threadIdx.y > 0) return;
#pragma unroll
  for (int e = 0; e < L; ++e) {
    if (e < count) out[slice * out_outer + (column + e) * out_inner] = ak::from_float<T>(mean_of(totals[e], N));
  }
}

/// Part p of outer slice o goes to parts[(p * outer + o) * inner …].
extern "C" __global__ void __launch_bounds__(32 * SHARERS)
    reduce_column_parts(const T* __restrict__ x, float* __restrict__ parts, int64_t outer, int64_t N, int64_t inner, int64_t x_outer,
                        int64_t x_step) {
  const int64_t strips = (inner + 32 * L - 1) / (32 * L), place = blockIdx.x / strips, slice = place % outer, begin = place / outer * DEPTH;
  const int64_t column = blockIdx.x % strips * (32 * L) + threadIdx.x * L;
  const int count = static_cast<int>(min(inner - column, int64_t{L}));
  Total totals[L];
  reduce_strip(totals, x + slice * x_outer + begin * x_step + column, min(N - begin, int64_t{DEPTH}), x_step, count);
  if (threadIdx.y > 0) return;
#pragma unroll
  for (int e = 0; e < L; ++e) {
    if (e < count) parts[place * inner + column + e] = static_cast<float>(totals[e]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_parts_of_columns(const float* __restrict__ parts, T* __restrict__ out, int64_t count, int64_t outer, int64_t inner, int64_t N,
                            int64_t out_outer, int64_t out_inner) {
  const int64_t place = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x, size = outer * inner;
  if (place >= size) return;
  Total total = neutral();
#pragma unroll 8
  for (int64_t part = 0; part < count; ++part) total = Op::join(total, static_cast<Total>(parts[part * size + place]));
  out[place / inner * out_outer + place % inner * out_inner] = ak::from_float<T>(mean_of(total, N));
}

/// A warp reads one place of 32 neighbouring results; SHARERS warps share them.
extern "C" __global__ void __launch_bounds__(32 * SHARERS)
    reduce_strided(const T* __restrict__ x, T* __restrict__ out, int64_t outer, int64_t N, int64_t inner, int64_t x_outer, int64_t x_step,
                   int64_t x_inner, int64_t out_outer, int64_t out_inner) {
  __shared__ Total room[SHARERS][32];
  const int64_t place = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const bool exists = place < outer * inner;
  const int64_t o = exists ? place / inner : 0, i = exists ? place % inner : 0;
  x += o * x_outer + i * x_inner;
  Total total = neutral();
#pragma unroll unroll
  for (int64_t n = threadIdx.y; n < N; n += SHARERS) total = Op::join(total, static_cast<Total>(ak::to_float(x[n * x_step])));
  room[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y > 0 || !exists) return;
  for (int s = 1; s < SHARERS; ++s) total = Op::join(total, room[s][threadIdx.x]);
  out[o * out_outer + i * out_inner] = ak::from_float<T>(mean_of(total, N));
}
