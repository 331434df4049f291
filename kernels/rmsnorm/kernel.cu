/*autokernel
family  = "rmsnorm"
backend = "cuda"

[tune]
VECTORS   = { values = [1, 2, 4, 8, 16],                 default = 4,   tier = 1 }   # vectors of 16 bytes that a thread holds of a row
THREADS   = { values = [128, 256, 512, 1024],            default = 512, tier = 1 }   # of a block at most; a longer row is read again
SHORT     = { values = [1, 2, 4, 8],                     default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS     = { values = [1, 2, 4, 8],                     default = 4,   tier = 1 }   # of a block there
HINT      = { values = [0, 1, 2, 3],                     default = 0,   tier = 2 }   # 0: none; 1: rows are read once; 2: and written once; 3: read past the first cache
EARLY     = { values = [0, 1],                           default = 1,   tier = 2 }   # weights come with the row, before they are needed
REGISTERS = { values = [0, 32, 40, 48, 56, 64, 72, 80, 96, 128], default = 0,   tier = 3 }   # of a thread at most where rows are held; 0: as many as it takes
STAGES    = { values = [0, 1, 2, 3, 4, 6],               default = 0,   tier = 4 }   # rows that come ahead by bulk copies, to blocks that stay; 0: a block for each row
BLOCKS    = { values = [1, 2, 3, 4, 6, 8, 16],           default = 4,   tier = 4 }   # of a multiprocessor that stay
CLUSTER   = { values = [1, 2, 4, 8],                     default = 1,   tier = 5 }   # blocks that share a row
ROWS      = { values = [1, 2, 4],                        default = 1,   tier = 2 }   # rows that a warp or a block holds at once
OVERLAP   = { values = [0, 1],                           default = 1,   tier = 2 }   # a launch begins before the one before it has ended
require = [
  "VECTORS * THREADS <= 8192",  # the registers of a multiprocessor
  "REGISTERS * min(THREADS, align(cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), VECTORS * CLUSTER), 128)) <= 65536",
  "STAGES == 0 && CLUSTER == 1 || compute_capability >= 90",
  "STAGES == 0 || CLUSTER == 1",
  "ROWS == 1 || STAGES == 0 && CLUSTER == 1 && ROWS * max(SHORT, VECTORS) <= 16",
]

# Rows that a warp holds, one or several to a warp. A row that is not whole vectors may touch one more.
[[variant]]
when = """(N <= 1 || x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1
                      && (HAS_RESIDUAL == 0 || residual.stride(1) == 1) && (HAS_RESIDUAL_OUT == 0 || residual_out.stride(1) == 1))
          && N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0) <= 32 * SHORT"""
[[variant.launch]]
kernel  = "rmsnorm_warps"
grid    = ["cdiv(M, ROWS * (WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), SHORT)))))"]
block   = ["32 * WARPS"]
args    = ["x", "weight", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "residual.stride(0)", "out.stride(0)", "residual_out.stride(0)",
           "pow2ceil(max(1, cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), SHORT)))", "eps"]
overlap = "OVERLAP"

# Blocks that stay, while the next rows come.
[[variant]]
when = """STAGES > 0 && x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1
          && (HAS_RESIDUAL == 0 || residual.stride(1) == 1) && (HAS_RESIDUAL_OUT == 0 || residual_out.stride(1) == 1)
          && N * sizeof(T) <= 16 * VECTORS * THREADS - 32 && STAGES * (1 + HAS_RESIDUAL) * (N * sizeof(T) + 32) <= shared_per_block - 2048"""
[[variant.launch]]
kernel  = "rmsnorm_ahead"
grid    = ["min(M, sm_count * BLOCKS)"]
block   = ["align(cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), VECTORS), 32)"]
shared  = "STAGES * (1 + HAS_RESIDUAL) * 16 * (N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0))"
args    = ["x", "weight", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "residual.stride(0)", "out.stride(0)", "residual_out.stride(0)", "eps"]
overlap = "OVERLAP"

# A row to a block or a cluster, that holds it or reads it twice.
[[variant]]
when = """x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1
          && (HAS_RESIDUAL == 0 || residual.stride(1) == 1) && (HAS_RESIDUAL_OUT == 0 || residual_out.stride(1) == 1)"""
[[variant.launch]]
kernel  = "rmsnorm_block"
grid    = ["cdiv(M, ROWS) * CLUSTER"]
block   = ["min(THREADS, align(cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), VECTORS * CLUSTER), 32))"]
cluster = ["CLUSTER"]
args    = ["x", "weight", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "residual.stride(0)", "out.stride(0)", "residual_out.stride(0)", "eps"]
overlap = "OVERLAP"

# Any strides.
[[launch]]
kernel  = "rmsnorm_strided"
grid    = ["M"]
block   = ["THREADS"]
args    = ["x", "weight", "residual", "out", "residual_out", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "residual.stride(0)",
           "residual.stride(1)", "out.stride(0)", "out.stride(1)", "residual_out.stride(0)", "residual_out.stride(1)", "eps"]
overlap = "OVERLAP"

# Where a search begins: what won on an H200. The defaults did on most shapes.
[[prior]]
when = "HAS_RESIDUAL && N * sizeof(T) > 4096 && M * N * sizeof(T) > 16777216"
set  = { SHORT = 1, VECTORS = 4, REGISTERS = 80, EARLY = 1 }

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
text = "With fewer rows than SMs nothing overlaps: a smaller VECTORS or SHORT spreads a row over more threads, CLUSTER over more SMs."
[[recipe]]
name = "loads ahead of the row"
tier = 4
when = "M >= 2 * sm_count && N * sizeof(T) <= 16384"
gain = "1.1x below 32 MB"
text = "STAGES: blocks that stay and fetch the next rows by bulk copies hide the start of each block."
*/
#include <autokernel/rows.cuh>

namespace {

constexpr int L = ak::lanes<T>;

/// 1 / the root of the mean square; `share`: 1 / N.
__device__ __forceinline__ float scale_of(float squares, float share, float eps) {
  if (MACHINE_EPS) eps = 1.1920929e-7f;
  return __frsqrt_rn(squares * share + eps);
}

template <int K>
__device__ __forceinline__ float sum_squares(const uint4 (&v)[K]) {
  float sums[4] = {};  // short chains of additions
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[L];
    ak::unpack<T>(v[k], values);
#pragma unroll
    for (int e = 0; e < L; ++e) sums[e % 4] += values[e] * values[e];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__device__ __forceinline__ float gain(float normal, float weight) { return normal * (WEIGHT_OFFSET ? weight + 1.0f : weight); }

/// The weights beside the vectors of an aligned tile.
template <int n>
struct Gains {
  uint4 weight[n > 0 ? n : 1];
};
template <class Tile>
constexpr int gains_of = HAS_WEIGHT && Tile::aligned ? Tile::vectors : 0;

/// out = x * scale * gain for rows that are held.
template <class Held, int rows, int n>
__device__ __forceinline__ void write(const Held (&held)[rows], const Gains<n>& gains, const T* weight, const float (&scales)[rows]) {
  constexpr int K = decltype(held[0].tile)::vectors;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float weights[L];
    if constexpr (n > 0 && HAS_WEIGHT) ak::unpack<T>(gains.weight[k], weights);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const Held& row = held[r];
      if (n == 0 && HAS_WEIGHT) row.tile.beside(weights, weight + row.at, k, ak::misalignment(weight + row.at) == 0);
      float values[L];
      ak::unpack<T>(row.v[k], values);
#pragma unroll
      for (int e = 0; e < L; ++e) {
        values[e] *= scales[r];
        if (HAS_WEIGHT) values[e] = gain(values[e], weights[e]);
      }
      row.store(k, values, ak::misalignment(row.out) == 0);
    }
  }
}

/// What ak::rows_… do with a row.
struct Row {
  const T* __restrict__ weight;
  int64_t N;
  float eps;

  static constexpr ak::Hint hint = static_cast<ak::Hint>(HINT);
  __device__ static float fill() { return 0.0f; }
  __device__ bool aligned() const { return !HAS_WEIGHT || ak::misalignment(weight) == 0; }

  template <class Tile>
  __device__ __forceinline__ Gains<gains_of<Tile>> gains(const Tile& tile) const {
    Gains<gains_of<Tile>> loaded = {};
    if constexpr (gains_of<Tile> > 0) tile.load_beside(loaded.weight, weight);
    return loaded;
  }
  template <class Tile>
  __device__ __forceinline__ Gains<gains_of<Tile>> early(const Tile& tile) const {
    if constexpr (EARLY) return gains(tile);
    return {};
  }

  template <class Team, class Tile, class Source, int rows, int n, class Released>
  __device__ __forceinline__ void held(Team& team, ak::Held<Tile, Source> (&held)[rows], const Gains<n>& early, const Released& released) const {
    float squares[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) squares[r] = sum_squares(held[r].v);
    ak::reduce<ak::Sum>(team, squares, 0.0f);
    released();
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if constexpr (rows > 1 || Tile::vectors > 8) ak::forget_unpacked(held[r].v);
    }
    float scales[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) scales[r] = scale_of(squares[r], Tile::share, eps);
    write(held, EARLY ? early : gains(held[0].tile), weight, scales);
  }

  template <class Team, class Pieces, class Source>
  __device__ __forceinline__ void any(Team& team, const Pieces& pieces, const Source& source, T* out) const {
    ak::Held<typename Pieces::Tile, Source> held[1] = {{.source = source, .present = true}};
    auto& piece = held[0];
    float squares = 0.0f;
    for (int i = 0; i < pieces.count; ++i) {
      load_piece(piece, pieces, i, out, fill());
      squares += sum_squares(piece.v);
    }
    const float scales[1] = {scale_of(ak::sum(team, squares), 1.0f / static_cast<float>(N), eps)};
    for (int i = pieces.count - 1; i >= 0; --i) {  // the last one is still here
      if (i + 1 < pieces.count) load_piece(piece, pieces, i, out, fill());
      source.keep(piece.tile, piece.v, piece.at);
      write(held, Gains<0>(), weight, scales);
    }
  }
};

using Rows = ak::Rows<T, HAS_RESIDUAL, HAS_RESIDUAL_OUT>;

}  // namespace

extern "C" __global__ void AK_ROW_LIMITS(32 * WARPS)
    rmsnorm_warps(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ residual, T* __restrict__ out,
                  T* __restrict__ residual_out, int64_t M, int64_t N, int64_t x_row, int64_t residual_row, int64_t out_row,
                  int64_t residual_out_row, int64_t lanes, float eps) {
  ak::wait_for_previous_launch();
  ak::rows_in_warps<SHORT, AK_DIM_N, ROWS>(Row{weight, N, eps}, Rows{x, out, M, N, x_row, out_row, residual, residual_out, residual_row, residual_out_row}, static_cast<int>(lanes));
}

extern "C" __global__ void AK_ROW_LIMITS(THREADS)
    rmsnorm_block(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ residual, T* __restrict__ out,
                  T* __restrict__ residual_out, int64_t M, int64_t N, int64_t x_row, int64_t residual_row, int64_t out_row,
                  int64_t residual_out_row, float eps) {
  ak::wait_for_previous_launch();
  ak::rows_in_blocks<VECTORS, AK_DIM_N, THREADS, CLUSTER, ROWS>(Row{weight, N, eps}, Rows{x, out, M, N, x_row, out_row, residual, residual_out, residual_row, residual_out_row});
}

#if STAGES > 0
extern "C" __global__ void AK_ROW_LIMITS(THREADS)
    rmsnorm_ahead(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ residual, T* __restrict__ out,
                  T* __restrict__ residual_out, int64_t M, int64_t N, int64_t x_row, int64_t residual_row, int64_t out_row,
                  int64_t residual_out_row, float eps) {
  ak::wait_for_previous_launch();
  ak::rows_ahead<VECTORS, AK_DIM_N, THREADS, STAGES>(Row{weight, N, eps}, Rows{x, out, M, N, x_row, out_row, residual, residual_out, residual_row, residual_out_row});
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    rmsnorm_strided(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ residual, T* __restrict__ out,
                    T* __restrict__ residual_out, int64_t N, int64_t x_row, int64_t x_column, int64_t weight_step, int64_t residual_row,
                    int64_t residual_column, int64_t out_row, int64_t out_column, int64_t residual_out_row, int64_t residual_out_column, float eps) {
  __shared__ ak::Rooms<> rooms;
  ak::wait_for_previous_launch();
  ak::BlockTeam<> team(rooms);
  x += blockIdx.x * x_row;
  out += blockIdx.x * out_row;
  if (HAS_RESIDUAL) residual += blockIdx.x * residual_row;
  if (HAS_RESIDUAL_OUT) residual_out += blockIdx.x * residual_out_row;
  const auto element = [&](int64_t i) {
    const float value = ak::to_float(x[i * x_column]);
    return HAS_RESIDUAL ? ak::to_float(ak::from_float<T>(value + ak::to_float(residual[i * residual_column]))) : value;
  };
  float squares = 0.0f;
  for (int64_t i = threadIdx.x; i < N; i += THREADS) {
    const float value = element(i);
    squares += value * value;
  }
  const float scale = scale_of(ak::sum(team, squares), 1.0f / static_cast<float>(N), eps);
  for (int64_t i = threadIdx.x; i < N; i += THREADS) {
    float value = element(i);
    if (HAS_RESIDUAL_OUT) residual_out[i * residual_out_column] = ak::from_float<T>(value);
    value *= scale;
    if (HAS_WEIGHT) value = gain(value, ak::to_float(weight[i * weight_step]));
    out[i * out_column] = ak::from_float<T>(value);
  }
}
