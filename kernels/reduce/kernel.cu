/*autokernel
family  = "reduce"
backend = "cuda"

[tune]
VECTORS = { values = [1, 2, 4, 8],                  default = 4,   tier = 1 }   # vectors of 16 bytes that a thread reads at a time
THREADS = { values = [32, 64, 128, 256, 512, 1024], default = 256, tier = 1 }   # of a block, which has a row or a part of one
AHEAD   = { values = [0, 1],                        default = 1,   tier = 2 }   # read the next vectors before the last ones are added
SHORT   = { values = [1, 2, 4, 8],                  default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS   = { values = [1, 2, 4, 8],                  default = 4,   tier = 1 }   # of a block there
BLOCKS  = { values = [1, 2, 3, 4, 6, 8, 12, 16],    default = 8,   tier = 4 }   # of a multiprocessor, where they share few rows
FINISH  = { values = [0, 1, 2],                     default = 0,   tier = 6 }   # there: 0 a launch, 1 the last block, 2 of the last half
DEPTH   = { values = [64, 128, 256, 512, 1024],     default = 256, tier = 4 }   # rows above which columns side by side are split
SHARERS = { values = [4, 8, 16],                    default = 8,   tier = 1 }   # warps that share the same columns
UNROLL  = { values = [1, 2, 4, 8],                  default = 4,   tier = 3 }   # rows of them in flight
OVERLAP = { values = [0, 1],                        default = 0,   tier = 2 }   # a launch begins before the one before it has ended
require = ["VECTORS * THREADS <= 8192",                                         # the registers of a multiprocessor
           "SHARERS <= 8 || OP != 4 && OP != 5"]                                # its shared memory, with a place beside each value

[[prior]]
when = "INNER == 1 && OUTER < 2 * sm_count && compute_capability >= 90"
set = { VECTORS = 8, THREADS = 128, BLOCKS = 8, FINISH = 0, AHEAD = 0, OVERLAP = 1 }
[[prior]]
when = "INNER == 1 && OUTER < 2 * sm_count && compute_capability >= 90"
set = { VECTORS = 4, THREADS = 256, BLOCKS = 8, FINISH = 0, AHEAD = 0, OVERLAP = 1 }
[[prior]]
when = "INNER == 1 && OUTER < 2 * sm_count"
set = { VECTORS = 8, THREADS = 256, BLOCKS = 4, FINISH = 1, AHEAD = 0 }
[[prior]]
when = "INNER == 1 && OUTER < 2 * sm_count"
set = { VECTORS = 8, THREADS = 128, FINISH = 1, AHEAD = 0 }
[[prior]]
when = "INNER == 1 && N * sizeof(T) % 16 != 0"
set = { VECTORS = 4, THREADS = 128, AHEAD = 0 }
[[prior]]
when = "INNER == 1 && N * sizeof(T) <= 512"
set = { SHORT = 2, WARPS = 8 }
[[prior]]
when = "INNER == 1 && N * sizeof(T) >= 65536"
set = { VECTORS = 8, THREADS = 256, AHEAD = 0 }
[[prior]]
when = "INNER == 1"
set = { VECTORS = 4, THREADS = 512, AHEAD = 0 }

[scratch.parts]                               # results of the parts of a split reduction, each of 8 bytes or of 16 with its place
dtype = "int64"
shape = ["(INNER == 1 ? 2 * OUTER + BLOCKS * sm_count : cdiv(N, DEPTH) * OUTER * INNER) * (OP == 4 || OP == 5 ? 2 : 1)"]

[scratch.tickets]                             # how many blocks of a shared row have ended
dtype = "int32"
shape = ["FINISH == 2 ? OUTER : 0"]
[scratch.zeros]                               # the same, where there is no launch before that sets them to 0
dtype = "int32"
shape = ["FINISH == 1 && INNER == 1 && OUTER < 2 * sm_count ? OUTER : 0"]
zeroed = true

# Along short rows: a warp holds one or several.
[[variant]]
when = "INNER == 1 && (N <= 1 || x.stride(1) == 1) && N * sizeof(T) <= 512 * SHORT"
[[variant.launch]]
kernel = "reduce_warps"
grid   = ["cdiv(OUTER, WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT))))"]
block  = ["32 * WARPS"]
overlap = "OVERLAP"
args   = ["x", "out", "index", "OUTER", "N", "x.stride(0)", "out.stride(0) + index.stride(0)",
          "pow2ceil(max(1, cdiv(N * sizeof(T), 16 * SHORT)))"]

# Along rows.
[[variant]]
when = "INNER == 1 && x.stride(1) == 1 && (N * sizeof(T) <= 16 * VECTORS * THREADS || OUTER >= 2 * sm_count)"
[[variant.launch]]
kernel = "reduce_rows"
grid   = ["OUTER"]
block  = ["min(THREADS, align(cdiv(N * sizeof(T), 16 * VECTORS), 32))"]
overlap = "OVERLAP"
args   = ["x", "out", "index", "N", "x.stride(0)", "out.stride(0) + index.stride(0)"]

# Along few long rows: blocks share one, each with every so manieth piece.
[[variant]]
when = "INNER == 1 && x.stride(1) == 1 && FINISH == 0"
[[variant.launch]]
kernel = "reduce_row_parts"
grid   = ["min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER)))) * OUTER"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["x", "parts", "tickets", "N", "x.stride(0)",
          "min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER))))",
          "min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER))))"]
[[variant.launch]]
kernel = "reduce_parts_of_rows"
grid   = ["OUTER"]
block  = ["128"]
overlap = "OVERLAP"
args   = ["parts", "out", "index",
          "min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER))))",
          "N", "out.stride(0) + index.stride(0)"]
[[variant]]
when = "INNER == 1 && x.stride(1) == 1 && FINISH == 1"
[[variant.launch]]
kernel = "reduce_last_parts"
grid   = ["min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER)))) * OUTER"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["x", "parts", "zeros", "out", "index", "N", "x.stride(0)", "0",
          "min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER))))",
          "out.stride(0) + index.stride(0)"]
[[variant]]
when = "INNER == 1 && x.stride(1) == 1"
[[variant.launch]]
kernel = "reduce_row_parts"
grid   = ["min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER)))) / 2 * OUTER"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["x", "parts", "tickets", "N", "x.stride(0)",
          "min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER)))) / 2",
          "min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER))))"]
[[variant.launch]]
kernel = "reduce_last_parts"
grid   = ["(min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER)))) + 1) / 2 * OUTER"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["x", "parts", "tickets", "out", "index", "N", "x.stride(0)",
          "min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER)))) / 2",
          "min(cdiv(N * sizeof(T), 16 * VECTORS * THREADS), max(2, cdiv(BLOCKS * sm_count, max(1, OUTER))))",
          "out.stride(0) + index.stride(0)"]

# Across rows that lie one after the other.
[[variant]]
when = "x.stride(2) == 1 && INNER >= 32 && (N <= DEPTH || OUTER * cdiv(INNER * sizeof(T), 512) >= 4 * sm_count)"
[[variant.launch]]
kernel = "reduce_columns"
grid   = ["OUTER * cdiv(INNER * sizeof(T), 512)"]
block  = ["32", "SHARERS"]
overlap = "OVERLAP"
args   = ["x", "out", "index", "N", "INNER", "x.stride(0)", "x.stride(1)", "out.stride(0) + index.stride(0)",
          "out.stride(1) + index.stride(1)"]
[[variant]]
when = "x.stride(2) == 1 && INNER >= 32"
[[variant.launch]]
kernel = "reduce_column_parts"
grid   = ["cdiv(N, DEPTH) * OUTER * cdiv(INNER * sizeof(T), 512)"]
block  = ["32", "SHARERS"]
overlap = "OVERLAP"
args   = ["x", "parts", "OUTER", "N", "INNER", "x.stride(0)", "x.stride(1)"]
[[variant.launch]]
kernel = "reduce_parts_of_columns"
grid   = ["cdiv(OUTER * INNER, THREADS)"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["parts", "out", "index", "cdiv(N, DEPTH)", "OUTER", "INNER", "N", "out.stride(0) + index.stride(0)",
          "out.stride(1) + index.stride(1)"]

# Any strides.
[[launch]]
kernel = "reduce_strided"
grid   = ["cdiv(OUTER * INNER, 32)"]
block  = ["32", "SHARERS"]
overlap = "OVERLAP"
args   = ["x", "out", "index", "OUTER", "N", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)", "out.stride(0) + index.stride(0)",
          "out.stride(1) + index.stride(1)"]

[[recipe]]
name = "enough blocks"
tier = 1
when = "OUTER * INNER < 64"
gain = "up to the number of idle multiprocessors"
text = """
Few results and many elements: more BLOCKS or a lower DEPTH gives every multiprocessor several parts. The parts are merged in order."""
[[recipe]]
name = "bytes in flight"
tier = 1
when = "N * sizeof(T) >= 4096"
gain = "1.2x"
text = "Only memory counts: VECTORS or UNROLL loads of a thread in flight, and enough warps to fill the multiprocessors."
*/
#include <autokernel/async.cuh>
#include <autokernel/reduce.cuh>
#include <autokernel/stream.cuh>

namespace {

constexpr int L = ak::lanes<T>;
constexpr int unroll = UNROLL;  // a pragma does not expand macros

constexpr bool is_extreme = OP >= 2 && OP <= 5, is_largest = OP == 2 || OP == 4, has_place = OP == 4 || OP == 5;
constexpr bool is_mean = OP == 1, is_product = OP == 6, is_norm = OP == 7, is_sum = OP <= 1;
/// Squares that are exact in float, and far from its limits.
constexpr bool has_small_squares = ak::is_half<T>;

constexpr int64_t nowhere = 0x7fffffffffffffff;

/// An element and where it is in the reduced dimension.
struct Found {
  float value;
  int64_t place;
};

__device__ __forceinline__ float neutral() {
  return !is_extreme ? (is_product ? 1.0f : 0.0f) : is_largest ? -ak::infinity() : ak::infinity();
}

/// Whether `a` comes before `b` in the order that the extreme is the first of: NaN first.
__device__ __forceinline__ bool beats(float a, float b) { return (is_largest ? a > b : a < b) || (a != a && b == b); }
__device__ __forceinline__ float better(float a, float b) { return is_largest ? ak::Max::join(a, b) : ak::Min::join(a, b); }

// Sums and products are in double: those that cancel, overflow or vanish in between are then right to their last bits.
template <bool extreme, bool place>
struct TotalOf {
  using Type = double;
};
template <>
struct TotalOf<true, false> {
  using Type = float;
};
template <>
struct TotalOf<true, true> {
  using Type = Found;
};
using Total = TotalOf<is_extreme, has_place>::Type;

struct Join {
  static __device__ __forceinline__ double join(double a, double b) { return is_product ? a * b : a + b; }
  static __device__ __forceinline__ float join(float a, float b) { return better(a, b); }
  static __device__ __forceinline__ Found join(const Found& a, const Found& b) {
    const bool second = beats(b.value, a.value) || (!beats(a.value, b.value) && b.place < a.place);
    return second ? b : a;
  }
};

/// The result of no elements.
template <class Result>
__device__ __forceinline__ Result nothing_of() {
  if constexpr (sizeof(Result) == sizeof(Found)) {
    return {neutral(), nowhere};
  } else {
    return neutral();
  }
}
__device__ __forceinline__ Total nothing() { return nothing_of<Total>(); }

/// Take in one element.
__device__ __forceinline__ void take_one(double& total, float x, int64_t) {
  const double wide = x;
  total = is_norm ? total + wide * wide : is_product ? total * wide : total + wide;
}
__device__ __forceinline__ void take_one(float& total, float x, int64_t) { total = better(total, x); }
__device__ __forceinline__ void take_one(Found& total, float x, int64_t place) {
  if (beats(x, total.value) || total.place == nowhere) total = {x, place};
}

struct Add {
  static __device__ __forceinline__ float join(float a, float b) { return a + b; }
};
struct Better {
  static __device__ __forceinline__ float join(float a, float b) { return better(a, b); }
};

/// In a tree; n is a power of two.
template <class Op, int n>
__device__ __forceinline__ float fold(float (&values)[n]) {
#pragma unroll
  for (int step = n / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < step; ++i) values[i] = Op::join(values[i], values[i + step]);
  }
  return values[0];
}

/// Of K vectors, or of their squares.
template <class Op, int K>
__device__ __forceinline__ float fold_vectors(const uint4 (&v)[K]) {
  float folded[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[L];
    ak::unpack<T>(v[k], values);
    if (is_norm) {
#pragma unroll
      for (int e = 0; e < L; ++e) values[e] *= values[e];
    }
    folded[k] = fold<Op>(values);
  }
  return fold<Op>(folded);
}

/// The first place of `value`, which is in the vectors or in what fills them, else nowhere.
template <int K>
__device__ __forceinline__ int64_t place_of(float value, const uint4 (&v)[K], int64_t begin, int64_t step, int64_t count) {
  int64_t place = nowhere;
#pragma unroll
  for (int k = K - 1; k >= 0; --k) {
    float values[L];
    ak::unpack<T>(v[k], values);
#pragma unroll
    for (int e = L - 1; e >= 0; --e) {
      const int64_t here = begin + k * step + e;
      if ((values[e] == value || value != value && values[e] != values[e]) && 0 <= here && here < count) place = here;
    }
  }
  return place;
}

/// Take in the vectors of a thread; v[k] holds elements from begin + k * step on, of `count`.
template <int K>
__device__ __forceinline__ void take(double& total, const uint4 (&v)[K], int64_t, int64_t, int64_t) {
  if (is_sum || (is_norm && has_small_squares)) {
    total += static_cast<double>(fold_vectors<Add>(v));
    return;
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[L];
    ak::unpack<T>(v[k], values);
#pragma unroll
    for (int e = 0; e < L; ++e) take_one(total, values[e], 0);
  }
}
template <int K>
__device__ __forceinline__ void take(float& total, const uint4 (&v)[K], int64_t, int64_t, int64_t) {
  total = better(total, fold_vectors<Better>(v));
}
template <int K>
__device__ __forceinline__ void take(Found& total, const uint4 (&v)[K], int64_t begin, int64_t step, int64_t count) {
  const float extreme = fold_vectors<Better>(v);
  if (beats(extreme, total.value) || total.place == nowhere) total = {extreme, place_of(extreme, v, begin, step, count)};
}

/// What another block wrote: not from this multiprocessor's own cache.
__device__ __forceinline__ Total load_past_l1(const Total* p) {
  Total total;
#pragma unroll
  for (int i = 0; i < int{sizeof(Total) / 4}; ++i)
    reinterpret_cast<uint32_t*>(&total)[i] = __ldcg(reinterpret_cast<const uint32_t*>(p) + i);
  return total;
}

/// A result of N elements.
__device__ __forceinline__ void write(double total, int64_t N, T* out, int64_t*, int64_t at) {
  out[at] = ak::from_float<T>(static_cast<float>(is_mean ? total / static_cast<double>(N) : is_norm ? sqrt(total) : total));
}
__device__ __forceinline__ void write(float total, int64_t, T* out, int64_t*, int64_t at) { out[at] = ak::from_float<T>(total); }
__device__ __forceinline__ void write(const Found& total, int64_t, T*, int64_t* index, int64_t at) {
  index[at] = total.place == nowhere ? -1 : total.place;
}

/// What a block makes of the elements side by side of which it has every `parts`-th piece, beginning with piece `part`.
__device__ __forceinline__ Total reduce_packed(const T* __restrict__ x, int64_t count, int64_t part, int64_t parts) {
  __shared__ Total room[32];
  const int thread = threadIdx.x, threads = blockDim.x;
  const int64_t piece = int64_t{VECTORS} * threads;
  const ak::Stream<T> elements(x, count);
  Total total = nothing();
  uint4 v[VECTORS];
  if (part * piece < elements.size()) elements.load(v, part * piece, thread, threads, neutral());
  elements.each<AHEAD>(v, part * piece, parts * piece, thread, threads, neutral(),
                       [&](const uint4(&v)[VECTORS], int64_t begin) { take(total, v, begin, int64_t{threads} * L, count); });
  return ak::block_reduce<Join>(total, nothing(), room);
}

/// What a block makes of rows [0, N) of the L columns of each lane, `count` of which exist, the first at `first` in the reduced dimension;
/// the first warp has the result.
__device__ __forceinline__ void reduce_strip(Total (&totals)[L], const T* __restrict__ x, int64_t N, int64_t step, int count,
                                             int64_t first) {
  __shared__ Total room[SHARERS][32][L];
  const bool aligned = ak::misalignment(x) == 0 && step % L == 0;
#pragma unroll
  for (int e = 0; e < L; ++e) totals[e] = nothing();
  for (int64_t n = threadIdx.y; n < N; n += SHARERS * UNROLL) {
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      v[u] = ak::splat<T>(neutral());
      const int64_t row = n + u * SHARERS;
      if (row < N && count > 0) v[u] = ak::load_vector(x + row * step, 0, count, aligned);
    }
    float sums[L] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      float values[L];
      ak::unpack<T>(v[u], values);
#pragma unroll
      for (int e = 0; e < L; ++e) {
        if (is_sum) {
          sums[e] += values[e];
        } else if (n + u * SHARERS < N) {
          take_one(totals[e], values[e], first + n + u * SHARERS);
        }
      }
    }
    if (is_sum) {
#pragma unroll
      for (int e = 0; e < L; ++e) take_one(totals[e], sums[e], 0);
    }
  }
#pragma unroll
  for (int e = 0; e < L; ++e) room[threadIdx.y][threadIdx.x][e] = totals[e];
  __syncthreads();
  if (threadIdx.y > 0) return;
  for (int s = 1; s < SHARERS; ++s) {
#pragma unroll
    for (int e = 0; e < L; ++e) totals[e] = Join::join(totals[e], room[s][threadIdx.x][e]);
  }
}

}  // namespace

/// `group` lanes hold a row.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    reduce_warps(const T* __restrict__ x, T* __restrict__ out, int64_t* __restrict__ index, int64_t outer, int64_t N, int64_t x_row,
                 int64_t out_step, int64_t group) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int lanes = static_cast<int>(group), lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (32 * WARPS / lanes) + threadIdx.x / lanes;
  const int count = row < outer ? static_cast<int>(N) : 0;
  uint4 v[SHORT];
  ak::load_row<T>(v, x + (row < outer ? row : 0) * x_row, count, lane, lanes, ak::splat<T>(neutral()));
  Total total = nothing();
  take(total, v, lane * L, int64_t{lanes} * L, count);
  total = ak::warp_reduce<Join>(total, lanes);
  if (lane == 0 && row < outer) write(total, N, out, index, row * out_step);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows(const T* __restrict__ x, T* __restrict__ out, int64_t* __restrict__ index, int64_t N, int64_t x_row, int64_t out_step) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const Total total = reduce_packed(x + blockIdx.x * x_row, N, 0, 1);
  if (threadIdx.x == 0) write(total, N, out, index, blockIdx.x * out_step);
}

/// Parts [0, here) of each row; part p of row r goes to parts[r * parts_of_row + p]. The tickets are for the launch that has the others.
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_row_parts(const T* __restrict__ x, Total* __restrict__ parts, int* __restrict__ tickets, int64_t N, int64_t x_row, int64_t here,
                     int64_t parts_of_row) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t row = blockIdx.x / here, part = blockIdx.x % here;
  const Total total = reduce_packed(x + row * x_row, N, part, parts_of_row);
  if (threadIdx.x > 0) return;
  parts[row * parts_of_row + part] = total;
  if (FINISH == 2 && part == 0) tickets[row] = 0;
}

/// Parts [first, parts_of_row) of each row. The block that ends last joins them and those of the launch before, in order.
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_last_parts(const T* __restrict__ x, Total* parts, int* tickets, T* __restrict__ out, int64_t* __restrict__ index, int64_t N,
                      int64_t x_row, int64_t first, int64_t parts_of_row, int64_t out_step) {
  __shared__ bool is_last;
  __shared__ Total room[32];
  if (FINISH == 1) ak::wait_for_previous_launch();  // else the launch before has waited, and x is there
  ak::let_next_launch_begin();
  const int64_t here = parts_of_row - first, row = blockIdx.x / here, part = first + blockIdx.x % here;
  Total total = reduce_packed(x + row * x_row, N, part, parts_of_row);
  if (FINISH == 2) ak::wait_for_previous_launch();
  parts += row * parts_of_row;
  if (threadIdx.x == 0) {
    parts[part] = total;
    __threadfence();
    is_last = atomicAdd(tickets + row, 1) == here - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  total = nothing();
#pragma unroll 4
  for (int64_t each = threadIdx.x; each < parts_of_row; each += THREADS) total = Join::join(total, load_past_l1(parts + each));
  total = ak::block_reduce<Join>(total, nothing(), room);
  if (threadIdx.x == 0) write(total, N, out, index, row * out_step);
}

/// A small block: it waits where the blocks before it leave room.
extern "C" __global__ void __launch_bounds__(128) reduce_parts_of_rows(const Total* parts, T* __restrict__ out, int64_t* __restrict__ index,
                                                                       int64_t parts_of_row, int64_t N, int64_t out_step) {
  __shared__ Total room[32];
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  Total total = nothing();
#pragma unroll 8
  for (int64_t part = threadIdx.x; part < parts_of_row; part += 128) total = Join::join(total, parts[blockIdx.x * parts_of_row + part]);
  total = ak::block_reduce<Join>(total, nothing(), room);
  if (threadIdx.x == 0) write(total, N, out, index, blockIdx.x * out_step);
}

extern "C" __global__ void __launch_bounds__(32 * SHARERS)
    reduce_columns(const T* __restrict__ x, T* __restrict__ out, int64_t* __restrict__ index, int64_t N, int64_t inner, int64_t x_outer,
                   int64_t x_step, int64_t out_outer, int64_t out_inner) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t strips = (inner + 32 * L - 1) / (32 * L), slice = blockIdx.x / strips;
  const int64_t column = blockIdx.x % strips * (32 * L) + threadIdx.x * L;
  const int count = static_cast<int>(min(inner - column, int64_t{L}));
  Total totals[L];
  reduce_strip(totals, x + slice * x_outer + column, N, x_step, count, 0);
  if (threadIdx.y > 0) return;
#pragma unroll
  for (int e = 0; e < L; ++e) {
    if (e < count) write(totals[e], N, out, index, slice * out_outer + (column + e) * out_inner);
  }
}

/// Part p of outer slice o goes to parts[(p * outer + o) * inner …].
extern "C" __global__ void __launch_bounds__(32 * SHARERS)
    reduce_column_parts(const T* __restrict__ x, Total* __restrict__ parts, int64_t outer, int64_t N, int64_t inner, int64_t x_outer,
                        int64_t x_step) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t strips = (inner + 32 * L - 1) / (32 * L), place = blockIdx.x / strips, slice = place % outer, begin = place / outer * DEPTH;
  const int64_t column = blockIdx.x % strips * (32 * L) + threadIdx.x * L;
  const int count = static_cast<int>(min(inner - column, int64_t{L}));
  Total totals[L];
  reduce_strip(totals, x + slice * x_outer + begin * x_step + column, min(N - begin, int64_t{DEPTH}), x_step, count, begin);
  if (threadIdx.y > 0) return;
#pragma unroll
  for (int e = 0; e < L; ++e) {
    if (e < count) parts[place * inner + column + e] = totals[e];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_parts_of_columns(const Total* parts, T* __restrict__ out, int64_t* __restrict__ index, int64_t count, int64_t outer,
                            int64_t inner, int64_t N, int64_t out_outer, int64_t out_inner) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t place = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x, size = outer * inner;
  if (place >= size) return;
  Total total = nothing();
#pragma unroll 8
  for (int64_t part = 0; part < count; ++part) total = Join::join(total, parts[part * size + place]);
  write(total, N, out, index, place / inner * out_outer + place % inner * out_inner);
}

/// A warp reads one place of 32 neighbouring results; SHARERS warps share them.
extern "C" __global__ void __launch_bounds__(32 * SHARERS)
    reduce_strided(const T* __restrict__ x, T* __restrict__ out, int64_t* __restrict__ index, int64_t outer, int64_t N, int64_t inner,
                   int64_t x_outer, int64_t x_step, int64_t x_inner, int64_t out_outer, int64_t out_inner) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  __shared__ Total room[SHARERS][32];
  const int64_t place = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const bool exists = place < outer * inner;
  const int64_t o = exists ? place / inner : 0, i = exists ? place % inner : 0;
  x += o * x_outer + i * x_inner;
  Total total = nothing();
#pragma unroll unroll
  for (int64_t n = threadIdx.y; n < N; n += SHARERS) take_one(total, ak::to_float(x[n * x_step]), n);
  room[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y > 0 || !exists) return;
  for (int s = 1; s < SHARERS; ++s) total = Join::join(total, room[s][threadIdx.x]);
  write(total, N, out, index, o * out_outer + i * out_inner);
}
