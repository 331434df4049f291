/*autokernel
family  = "softmax"
backend = "cuda"

[tune]
VECTORS   = { values = [1, 2, 4, 8, 16],                 default = 8,   tier = 1 }   # vectors of 16 bytes that a thread holds of a row
THREADS   = { values = [128, 256, 512, 1024],            default = 512, tier = 1 }   # of a block at most; a longer row is read again
SHORT     = { values = [1, 2, 4, 8],                     default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS     = { values = [1, 2, 4, 8],                     default = 4,   tier = 1 }   # of a block there
DEPTH     = { values = [4, 8, 16, 32],                   default = 16,  tier = 1 }   # threads to a row where rows lie side by side
HINT      = { values = [0, 1, 2, 3],                     default = 0,   tier = 2 }   # 0: none; 1: rows are read once; 2: and written once; 3: read past the first cache
KEEP      = { values = [0, 1, 2],                        default = 0,   tier = 3 }   # a thread keeps 0: elements; 1: exponentials, so that each is computed once; 2: rounded
REGISTERS = { values = [0, 32, 40, 48, 56, 64, 72, 80, 96, 128], default = 0,   tier = 3 }   # of a thread at most where rows are held; 0: as many as it takes
STAGES    = { values = [0, 1, 2, 3, 4, 6],               default = 0,   tier = 4 }   # rows that come ahead by bulk copies, to blocks that stay; 0: a block for each row
BLOCKS    = { values = [1, 2, 3, 4, 6, 8, 16],           default = 4,   tier = 4 }   # of a multiprocessor that stay
CLUSTER   = { values = [1, 2, 4, 8],                     default = 1,   tier = 5 }   # blocks that share a row
OVERLAP   = { values = [0, 1],                           default = 1,   tier = 2 }   # a launch begins before the one before it has ended
require = [
  "VECTORS * THREADS <= 8192",  # the registers of a multiprocessor
  "REGISTERS * min(THREADS, align(cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), VECTORS * CLUSTER), 128)) <= 65536",
  "STAGES == 0 && CLUSTER == 1 || compute_capability >= 90",
]

# Rows that a warp holds, one or several to a warp. A row that is not whole vectors may touch one more.
[[variant]]
when = "(N <= 1 || x.stride(1) == 1 && out.stride(1) == 1) && N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0) <= 32 * SHORT"
[[variant.launch]]
kernel  = "softmax_warps"
grid    = ["cdiv(M, WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), SHORT))))"]
block   = ["32 * WARPS"]
args    = ["x", "out", "M", "N", "x.stride(0)", "out.stride(0)",
           "pow2ceil(max(1, cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), SHORT)))", "scale"]
overlap = "OVERLAP"

# Clusters that stay, while the next rows come, each block with vectors side by side. Rows that are not whole vectors begin at those of a line.
[[variant]]
when = """STAGES > 0 && x.stride(1) == 1 && out.stride(1) == 1
          && align(cdiv(N * sizeof(T) / 16 + 9 * (N * sizeof(T) % 16 != 0), CLUSTER), 1 + 7 * (N * sizeof(T) % 16 != 0)) <= VECTORS * (THREADS / 128 * 128)
          && STAGES * 16 * align(cdiv(N * sizeof(T) / 16 + 9 * (N * sizeof(T) % 16 != 0), CLUSTER), 1 + 7 * (N * sizeof(T) % 16 != 0)) <= shared_per_block - 4096
          && (N * sizeof(T) % 16 == 0 ? N * sizeof(T) / 16 % CLUSTER == 0 : N * sizeof(T) >= 288 * CLUSTER * CLUSTER)"""
[[variant.launch]]
kernel  = "softmax_ahead"
grid    = ["min(M, sm_count * BLOCKS / CLUSTER) * CLUSTER"]
block   = ["align(cdiv(align(cdiv(N * sizeof(T) / 16 + 9 * (N * sizeof(T) % 16 != 0), CLUSTER), 1 + 7 * (N * sizeof(T) % 16 != 0)), VECTORS), 128)"]
shared  = "STAGES * 16 * align(cdiv(N * sizeof(T) / 16 + 9 * (N * sizeof(T) % 16 != 0), CLUSTER), 1 + 7 * (N * sizeof(T) % 16 != 0))"
cluster = ["CLUSTER"]
args    = ["x", "out", "M", "N", "x.stride(0)", "out.stride(0)", "scale"]
overlap = "OVERLAP"

# A row to a block or a cluster, that holds it or reads it twice.
[[variant]]
when = "x.stride(1) == 1 && out.stride(1) == 1"
[[variant.launch]]
kernel  = "softmax_block"
grid    = ["M * CLUSTER"]
block   = ["min(THREADS, align(cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), VECTORS * CLUSTER), 32))"]
cluster = ["CLUSTER"]
args    = ["x", "out", "M", "N", "x.stride(0)", "out.stride(0)", "scale"]
overlap = "OVERLAP"

# Rows side by side, and any strides.
[[launch]]
kernel  = "softmax_columns"
grid    = ["cdiv(M, 32)"]
block   = ["32", "DEPTH"]
args    = ["x", "out", "M", "N", "x.stride(0)", "x.stride(1)", "out.stride(0)", "out.stride(1)", "scale"]
overlap = "OVERLAP"

# Where a search begins: what won on an H200.
[[prior]]
when = "N * sizeof(T) > 65536"
set  = { SHORT = 1, VECTORS = 16, THREADS = 512, REGISTERS = 128, STAGES = 2, BLOCKS = 1, KEEP = 2 }
[[prior]]
when = "N * sizeof(T) > 32768"
set  = { SHORT = 1, VECTORS = 8, THREADS = 512, REGISTERS = 96, STAGES = 2, BLOCKS = 1, KEEP = 2 }
[[prior]]
when = "N * sizeof(T) > 32768"
set  = { SHORT = 1, VECTORS = 16, REGISTERS = 80, CLUSTER = 2, KEEP = 2 }
[[prior]]
when = "N * sizeof(T) > 4096 && N * sizeof(T) <= 32768"
set  = { SHORT = 1, VECTORS = 8, KEEP = 1 }
[[prior]]
when = "N * sizeof(T) > 4096 && N * sizeof(T) <= 32768"
set  = { SHORT = 1, VECTORS = 8, REGISTERS = 64, HINT = 2 }
[[prior]]
when = "N * sizeof(T) > 512 && N * sizeof(T) <= 4096"
set  = { SHORT = 4, WARPS = 4, KEEP = 1 }
[[prior]]
when = "N * sizeof(T) <= 512"
set  = { SHORT = 2, WARPS = 4, KEEP = 1 }

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
tier = 5
when = "N * sizeof(T) > 65536"
gain = "one read of memory instead of two"
text = "CLUSTER: blocks hold a part of the row each, and exchange maximum and sum through distributed shared memory."
*/
#include <autokernel/rows.cuh>

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

/// The scaled elements of vector k of a tile, -inf where there is no element of the row.
template <class Tile>
__device__ __forceinline__ void scaled(float (&values)[L], const Tile& tile, const uint4& v, int k, const Scale& scale) {
  ak::unpack<T>(v, values);
#pragma unroll
  for (int e = 0; e < L; ++e) values[e] = scale(values[e]);
  if (!scale.keeps_order && !tile.all(k)) {
#pragma unroll
    for (int e = 0; e < L; ++e) values[e] = tile.has(k, e) ? values[e] : -ak::infinity();
  }
}

/// The largest of the scaled elements in the vectors of a tile. Scaling by a positive factor keeps their order, also when it rounds.
template <class Tile, int K>
__device__ __forceinline__ float max_of(const uint4 (&v)[K], const Tile& tile, const Scale& scale) {
  float top = -ak::infinity(), values[L];
  if (scale.keeps_order) {
    uint4 largest = v[0];
#pragma unroll
    for (int k = 1; k < K; ++k) largest = ak::larger<T>(largest, v[k]);
    ak::unpack<T>(largest, values);
#pragma unroll
    for (int e = 0; e < L; ++e) top = fmaxf(top, values[e]);
    return scale(top);
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    scaled(values, tile, v[k], k, scale);
#pragma unroll
    for (int e = 0; e < L; ++e) top = fmaxf(top, values[e]);
  }
  return top;
}

/// What the elements are finished with, from the sum of exponentials.
__device__ __forceinline__ float last_of(float sum) { return LOG ? logf(sum) : 1.0f / sum / ak::lift<T>; }
__device__ __forceinline__ float result(float scaled, float top, float last) {
  return LOG ? scaled - top - last : ak::lifted_exponential<T>(scaled - top) * last;
}

/// What ak::rows_… do with a row.
struct Row {
  float scale;

  static constexpr ak::Hint hint = static_cast<ak::Hint>(HINT);
  __device__ static float fill() { return -ak::infinity(); }
  __device__ bool aligned() const { return true; }

  struct Nothing {};
  template <class Tile>
  __device__ __forceinline__ Nothing early(const Tile&) const {
    return {};
  }

  template <class Team, class Tile, class Source, class Released>
  __device__ __forceinline__ void held(Team& team, ak::Held<Tile, Source> (&held)[1], Nothing, const Released& released) const {
    constexpr int K = Tile::vectors;
    auto& [tile, source, out, at, present, v] = held[0];
    constexpr int keep = LOG ? 0 : KEEP;
    const Scale of(scale);
    float kept[keep == 1 ? K * L : 1];
    const float top = max_of(v, tile, of), pivot = top == -ak::infinity() ? 0.0f : top;
    float sums[4] = {};  // short chains of additions
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float values[L];
      scaled(values, tile, v[k], k, of);
#pragma unroll
      for (int e = 0; e < L; ++e) {
        values[e] = keep == 0 ? ak::exponential<T>(values[e] - pivot) : ak::lifted_exponential<T>(values[e] - pivot);
        sums[e % 4] += values[e];
        if (keep == 1) kept[k * L + e] = values[e];
      }
      if (keep == 2) v[k] = ak::pack<T>(values);
    }
    const ak::SumExp own = {top, ((sums[0] + sums[1]) + (sums[2] + sums[3])) * (keep == 0 ? 1.0f : 1.0f / ak::lift<T>)};
    const ak::SumExp whole = team.template reduce<ak::JoinSumExp<T>>(own, ak::SumExp{-ak::infinity(), 0.0f});
    released();
    if (!present) return;
    if (keep == 0) ak::forget_unpacked(v);
    const float last = last_of(whole.sum);
    const float factor = own.maximum == whole.maximum ? last : last * ak::exponential<T, true>(own.maximum - whole.maximum);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float values[L];
      if (keep == 0) {
        scaled(values, tile, v[k], k, of);
      } else if (keep == 2) {
        ak::unpack<T>(v[k], values);
      }
#pragma unroll
      for (int e = 0; e < L; ++e) values[e] = keep == 0 ? result(values[e], whole.maximum, last) : (keep == 1 ? kept[k * L + e] : values[e]) * factor;
      tile.store(out, k, values, true);
    }
  }

  template <class Team, class Pieces, class Source>
  __device__ __forceinline__ void any(Team& team, const Pieces& pieces, const Source& source, T* out) const {
    constexpr int K = Pieces::Tile::vectors;
    const Scale of(scale);
    uint4 v[K];
    ak::SumExp own = {-ak::infinity(), 0.0f};
    for (int piece = 0; piece < pieces.count; ++piece) {
      const auto tile = pieces.tile(piece);
      source.load(tile, v, pieces.offset(piece), fill());
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float values[L];
        scaled(values, tile, v[k], k, of);
        ak::add_exponentials<T>(own, values);
      }
    }
    const ak::SumExp whole = team.template reduce<ak::JoinSumExp<T>>(own, ak::SumExp{-ak::infinity(), 0.0f});
    const float last = last_of(whole.sum);
    for (int piece = pieces.count - 1; piece >= 0; --piece) {  // the last one is still here
      const auto tile = pieces.tile(piece);
      const int64_t at = pieces.offset(piece);
      if (piece + 1 < pieces.count) source.load(tile, v, at, fill());
      const bool aligned = ak::misalignment(out + at) == 0;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float values[L];
        scaled(values, tile, v[k], k, of);
#pragma unroll
        for (int e = 0; e < L; ++e) values[e] = result(values[e], whole.maximum, last);
        tile.store(out + at, k, values, aligned);
      }
    }
  }
};

}  // namespace

extern "C" __global__ void AK_ROW_LIMITS(32 * WARPS)
    softmax_warps(const T* __restrict__ x, T* __restrict__ out, int64_t M,
                  int64_t N, int64_t x_row, int64_t out_row, int64_t lanes, float scale) {
  ak::wait_for_previous_launch();
  ak::rows_in_warps<SHORT, AK_DIM_N, 1>(Row{scale}, ak::Rows<T>{x, out, M, N, x_row, out_row}, static_cast<int>(lanes));
}

extern "C" __global__ void AK_ROW_LIMITS(THREADS)
    softmax_block(const T* __restrict__ x, T* __restrict__ out, int64_t M,
                  int64_t N, int64_t x_row, int64_t out_row, float scale) {
  ak::wait_for_previous_launch();
  ak::rows_in_blocks<VECTORS, AK_DIM_N, THREADS, CLUSTER, 1>(Row{scale}, ak::Rows<T>{x, out, M, N, x_row, out_row});
}

#if STAGES > 0
extern "C" __global__ void AK_ROW_LIMITS(THREADS)
    softmax_ahead(const T* __restrict__ x, T* __restrict__ out, int64_t M,
                  int64_t N, int64_t x_row, int64_t out_row, float scale) {
  ak::wait_for_previous_launch();
  ak::parts_ahead<VECTORS, AK_DIM_N, THREADS, STAGES, CLUSTER>(Row{scale}, ak::Rows<T>{x, out, M, N, x_row, out_row});
}
#endif

/// A warp reads 32 neighbouring rows at one place; DEPTH warps share them.
extern "C" __global__ void __launch_bounds__(32 * DEPTH, 1)
    softmax_columns(const T* __restrict__ x, T* __restrict__ out, int64_t M, int64_t N, int64_t x_row, int64_t x_column, int64_t out_row,
                    int64_t out_column, float factor) {
  __shared__ ak::SumExp parts[DEPTH][32];
  ak::wait_for_previous_launch();
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
  for (int d = 0; d < DEPTH; ++d) sum += ak::JoinSumExp<T>::relative(parts[d][threadIdx.x], top);
  const float last = last_of(sum);
#pragma unroll 4
  for (int64_t i = threadIdx.y; i < end; i += DEPTH)
    out[i * out_column] = ak::from_float<T>(result(scale(ak::to_float(x[i * x_column])), top, last));
}
