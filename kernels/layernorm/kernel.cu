/*autokernel
family  = "layernorm"
backend = "cuda"

[tune]
VECTORS   = { values = [1, 2, 4, 8, 16],                 default = 4,   tier = 1 }   # vectors of 16 bytes that a thread holds of a row
THREADS   = { values = [128, 256, 512, 1024],            default = 512, tier = 1 }   # of a block at most; a longer row is read again
SHORT     = { values = [1, 2, 4, 8],                     default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS     = { values = [1, 2, 4, 8],                     default = 4,   tier = 1 }   # of a block there
HINT      = { values = [0, 1, 2, 3],                     default = 0,   tier = 2 }   # 0: none; 1: rows are read once; 2: and written once; 3: read past the first cache
EARLY     = { values = [0, 1],                           default = 1,   tier = 2 }   # weights come with the row, before they are needed
REGISTERS = { values = [0, 32, 40, 48, 56, 64, 72, 80, 96, 128], default = 80,  tier = 3 }   # of a thread at most where blocks hold rows; 0: as many as it takes
STAGES    = { values = [0, 1, 2, 3, 4, 6],               default = 0,   tier = 4 }   # rows that come ahead by bulk copies, to blocks that stay; 0: a block for each row
BLOCKS    = { values = [1, 2, 3, 4, 6, 8, 16],           default = 4,   tier = 4 }   # of a multiprocessor that stay
CLUSTER   = { values = [1, 2, 4, 8],                     default = 1,   tier = 5 }   # blocks that share a row
OVERLAP   = { values = [0, 1],                           default = 1,   tier = 2 }   # a launch begins before the one before it has ended
require = [
  "VECTORS * THREADS <= 8192",  # the registers of a multiprocessor
  "REGISTERS * min(THREADS, align(cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), VECTORS * CLUSTER), 128)) <= 65536",
  "STAGES == 0 && CLUSTER == 1 || compute_capability >= 90",
  "STAGES == 0 || CLUSTER == 1",
]

# Rows that a warp holds, one or several to a warp. A row that is not whole vectors may touch one more.
[[variant]]
when = """(N <= 1 || x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && bias.stride(0) <= 1
                      && (HAS_RESIDUAL == 0 || residual.stride(1) == 1) && (HAS_RESIDUAL_OUT == 0 || residual_out.stride(1) == 1))
          && N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0) <= 32 * SHORT"""
[[variant.launch]]
kernel  = "layernorm_warps"
grid    = ["cdiv(M, WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), SHORT))))"]
block   = ["32 * WARPS"]
args    = ["x", "weight", "bias", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "residual.stride(0)", "out.stride(0)",
           "residual_out.stride(0)",
           "pow2ceil(max(1, cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), SHORT)))", "eps"]
overlap = "OVERLAP"

# Blocks that stay, while the next rows come.
[[variant]]
when = """STAGES > 0 && x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && bias.stride(0) <= 1
          && (HAS_RESIDUAL == 0 || residual.stride(1) == 1) && (HAS_RESIDUAL_OUT == 0 || residual_out.stride(1) == 1)
          && N * sizeof(T) <= 16 * VECTORS * THREADS - 32 && STAGES * (1 + HAS_RESIDUAL) * (N * sizeof(T) + 32) <= shared_per_block - 2048"""
[[variant.launch]]
kernel  = "layernorm_ahead"
grid    = ["min(M, sm_count * BLOCKS)"]
block   = ["align(cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), VECTORS), 32)"]
shared  = "STAGES * (1 + HAS_RESIDUAL) * 16 * (N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0))"
args    = ["x", "weight", "bias", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "residual.stride(0)", "out.stride(0)",
           "residual_out.stride(0)", "eps"]
overlap = "OVERLAP"

# A row to a block or a cluster, that holds it or reads it twice.
[[variant]]
when = """x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && bias.stride(0) <= 1
          && (HAS_RESIDUAL == 0 || residual.stride(1) == 1) && (HAS_RESIDUAL_OUT == 0 || residual_out.stride(1) == 1)"""
[[variant.launch]]
kernel  = "layernorm_block"
grid    = ["M * CLUSTER"]
block   = ["min(THREADS, align(cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), VECTORS * CLUSTER), 32))"]
cluster = ["CLUSTER"]
args    = ["x", "weight", "bias", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "residual.stride(0)", "out.stride(0)",
           "residual_out.stride(0)", "eps"]
overlap = "OVERLAP"

# Any strides.
[[launch]]
kernel  = "layernorm_strided"
grid    = ["M"]
block   = ["THREADS"]
args    = ["x", "weight", "bias", "residual", "out", "residual_out", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "bias.stride(0)",
           "residual.stride(0)", "residual.stride(1)", "out.stride(0)", "out.stride(1)", "residual_out.stride(0)", "residual_out.stride(1)", "eps"]
overlap = "OVERLAP"

# Where a search begins; what won on an H200.
[[prior]]
when = "N * sizeof(T) > 8192 && M * N * sizeof(T) > 50331648"
set  = { SHORT = 1, VECTORS = 8, REGISTERS = 128, EARLY = 1 }
[[prior]]
when = "N * sizeof(T) > 4096 && M * N * sizeof(T) > 16777216"
set  = { SHORT = 1, VECTORS = 4, REGISTERS = 64, HINT = 2, EARLY = 1 }
[[prior]]
when = "N * sizeof(T) > 4096 && N * sizeof(T) <= 16384"
set  = { SHORT = 1, VECTORS = 4, STAGES = 2, BLOCKS = 6, REGISTERS = 80, EARLY = 0 }
[[prior]]
when = "N * sizeof(T) > 512 && N * sizeof(T) <= 4096"
set  = { SHORT = 1, VECTORS = 4, STAGES = 2, BLOCKS = 8, REGISTERS = 80 }

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
text = "With fewer rows than multiprocessors nothing overlaps: a smaller VECTORS or SHORT spreads a row over more threads, CLUSTER over more of them."
*/
#include <autokernel/rows.cuh>

namespace {

constexpr int L = ak::lanes<T>;

// Sums are around 0, or, where too many of their digits would cancel and for float, around the first element of the row, so that equal
// elements give exactly 0 and a common offset costs no digits. Where that element is far out, or for float, they are taken once more, around
// the mean; what the mean lacks as a float is found with them.

/// Sums over elements minus a centre.
struct Sums {
  float first = 0.0f, second = 0.0f;

  __device__ __forceinline__ void add(float difference) {
    first += difference;
    second += difference * difference;
  }
  static __device__ __forceinline__ Sums join(const Sums& a, const Sums& b) { return {a.first + b.first, a.second + b.second}; }

  /// Of the 24 bits of the squares no more than 6 cancel, which leaves more than enough for 16-bit elements; none has overflown or vanished.
  __device__ __forceinline__ bool keep_digits(float share) const {
    return sizeof(T) == 2 && second < ak::infinity() && (second > 0.0f || first == 0.0f) && first * (first * share) <= 63.0f / 64.0f * second;
  }
};

/// The normal value is (x - lack) * scale for an x minus the centre of the sums; `shift` is -lack * scale.
struct Moments {
  float scale, shift;

  Moments() = default;
  __device__ __forceinline__ Moments(const Sums& sums, float share, float eps) {
    const float lack = sums.first * share;
    const float excess = sums.second < ak::infinity() ? sums.first * lack : 0.0f;
    const float variance = (sums.second - excess) * share;
    scale = __frsqrt_rn((variance < 0.0f ? 0.0f : variance) + eps);
    shift = -lack * scale;
  }
  static constexpr bool centred = false;
  __device__ __forceinline__ float operator()(float x) const { return fmaf(x, scale, shift); }
};
struct CentredMoments {
  float centre;
  Moments moments;

  static constexpr bool centred = true;
  __device__ __forceinline__ float operator()(float x) const { return moments(x - centre); }
};

/// Call use(Moments) or, where some row of the team's warp needs it, use(CentredMoments), which give a row the same values. add(sums, centre)
/// adds a thread's part of the row; released() is called when all threads have what they need of the source. `share`: 1 / N.
template <class Team, class Source, class Add, class Released, class Use>
__device__ __forceinline__ void with_moments(Team& team, const Source& source, float share, float eps, const Add& add,
                                             const Released& released, const Use& use) {
  CentredMoments result;
  bool done = false;
  const auto sums_around = [&](float centre) {
    Sums sums;
    add(sums, centre);
    sums = team.template reduce<Sums>(sums, Sums());
    if (!done) result = {centre, Moments(sums, share, eps)};
    done |= sums.keep_digits(share);
    return sums;
  };
  if constexpr (sizeof(T) == 2) {
    sums_around(0.0f);
    if (!team.any(!done)) {
      released();
      use(result.moments);
      return;
    }
  }
  float centre = source.first();
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    centre += sums_around(centre).first * share;
    if (pass == 0) released();
    if (!team.any(!done)) break;
  }
  use(result);
}

/// Over the elements of the row among the vectors of a tile; beside them lies 0.
template <class Tile, int K>
__device__ __forceinline__ void add_vectors(Sums& sums, const Tile& tile, const uint4 (&v)[K], float centre) {
  Sums parts[4];  // short chains of additions
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[L];
    ak::unpack<T>(v[k], values);
    if (centre == 0.0f || tile.all(k)) {
#pragma unroll
      for (int e = 0; e < L; ++e) parts[e % 4].add(values[e] - centre);
    } else if (tile.any(k)) {
#pragma unroll
      for (int e = 0; e < L; ++e) parts[e % 4].add(tile.has(k, e) ? values[e] - centre : 0.0f);
    }
  }
  sums = Sums::join(sums, Sums::join(Sums::join(parts[0], parts[1]), Sums::join(parts[2], parts[3])));
}

/// The weights and biases beside the vectors of an aligned tile.
template <int n>
struct Gains {
  uint4 weight[n > 0 && HAS_WEIGHT ? n : 1], bias[n > 0 && HAS_BIAS ? n : 1];
};
template <class Tile>
constexpr int gains_of = Tile::aligned ? Tile::vectors : 0;

/// out = normal * weight + bias for the vectors of a tile, which begins at `weight`, `bias` and `out`.
template <class Tile, int K, int n, class Normal>
__device__ __forceinline__ void write(const Tile& tile, const uint4 (&v)[K], const Gains<n>& gains, const T* weight, const T* bias, T* out,
                                      const Normal& normal) {
  const bool weight_aligned = ak::misalignment(weight) == 0, bias_aligned = ak::misalignment(bias) == 0,
             out_aligned = ak::misalignment(out) == 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[L], weights[L], biases[L];
    ak::unpack<T>(v[k], values);
    if constexpr (n > 0) {
      if constexpr (HAS_WEIGHT) ak::unpack<T>(gains.weight[k], weights);
      if constexpr (HAS_BIAS) ak::unpack<T>(gains.bias[k], biases);
    } else {
      if (HAS_WEIGHT) tile.beside(weights, weight, k, weight_aligned);
      if (HAS_BIAS) tile.beside(biases, bias, k, bias_aligned);
    }
#pragma unroll
    for (int e = 0; e < L; ++e) {
      values[e] = normal(values[e]);
      if (HAS_WEIGHT) values[e] *= weights[e];
      if (HAS_BIAS) values[e] += biases[e];
    }
    tile.store(out, k, values, out_aligned);
  }
}

/// What ak::rows_… do with a row.
struct Row {
  const T* __restrict__ weight;
  const T* __restrict__ bias;
  int64_t N;
  float eps;

  static constexpr ak::Hint hint = static_cast<ak::Hint>(HINT);
  __device__ static float fill() { return 0.0f; }
  __device__ bool aligned() const {
    return (!HAS_WEIGHT || ak::misalignment(weight) == 0) && (!HAS_BIAS || ak::misalignment(bias) == 0);
  }

  template <class Tile>
  __device__ __forceinline__ Gains<gains_of<Tile>> gains(const Tile& tile) const {
    Gains<gains_of<Tile>> loaded = {};
    if constexpr (gains_of<Tile> > 0 && HAS_WEIGHT) tile.load_beside(loaded.weight, weight);
    if constexpr (gains_of<Tile> > 0 && HAS_BIAS) tile.load_beside(loaded.bias, bias);
    return loaded;
  }
  template <class Tile>
  __device__ __forceinline__ Gains<gains_of<Tile>> early(const Tile& tile) const {
    if constexpr (EARLY) return gains(tile);
    return {};
  }

  template <class Team, class Tile, int K, int n, class Source, class Released>
  __device__ __forceinline__ void held(Team& team, const Tile& tile, uint4 (&v)[K], const Gains<n>& early, const Source& source, T* out,
                                       int64_t at, bool present, const Released& released) const {
    with_moments(
        team, source, Tile::share, eps,
        [&](Sums& sums, float centre) {
          add_vectors(sums, tile, v, centre);
          if constexpr (K > 2) ak::forget_unpacked(v);
        },
        released,
        [&]<class Normal>(const Normal& normal) {  // what came early does not have to stay where sums are taken again
          if (present) write(tile, v, EARLY && !Normal::centred ? early : gains(tile), weight + at, bias + at, out, normal);
        });
  }

  template <class Team, class Pieces, class Source>
  __device__ __forceinline__ void any(Team& team, const Pieces& pieces, const Source& source, T* out) const {
    uint4 v[Pieces::vectors];
    with_moments(
        team, source, 1.0f / static_cast<float>(N), eps,
        [&](Sums& sums, float centre) {
          for (int piece = 0; piece < pieces.count; ++piece) {
            source.load(pieces.tile(piece), v, pieces.offset(piece), fill());
            add_vectors(sums, pieces.tile(piece), v, centre);
          }
        },
        [] {},
        [&](const auto& normal) {
          for (int piece = pieces.count - 1; piece >= 0; --piece) {  // the last one is still here
            const auto tile = pieces.tile(piece);
            const int64_t at = pieces.offset(piece);
            if (piece + 1 < pieces.count) source.load(tile, v, at, fill());
            source.keep(tile, v, at);
            write(tile, v, Gains<0>(), weight + at, bias + at, out + at, normal);
          }
        });
  }
};

using Rows = ak::Rows<T, HAS_RESIDUAL, HAS_RESIDUAL_OUT>;

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    layernorm_warps(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
                    T* __restrict__ out, T* __restrict__ residual_out, int64_t M, int64_t N, int64_t x_row, int64_t residual_row, int64_t out_row,
                    int64_t residual_out_row, int64_t lanes, float eps) {
  ak::wait_for_previous_launch();
  ak::rows_in_warps<SHORT, AK_DIM_N>(Row{weight, bias, N, eps}, Rows{x, out, M, N, x_row, out_row, residual, residual_out, residual_row, residual_out_row}, static_cast<int>(lanes));
}

#if REGISTERS > 0
#define LIMITS __maxnreg__(REGISTERS)
#else
#define LIMITS __launch_bounds__(THREADS)
#endif
extern "C" __global__ void LIMITS
    layernorm_block(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
                    T* __restrict__ out, T* __restrict__ residual_out, int64_t M, int64_t N, int64_t x_row, int64_t residual_row, int64_t out_row,
                    int64_t residual_out_row, float eps) {
  ak::wait_for_previous_launch();
  ak::rows_in_blocks<VECTORS, AK_DIM_N, THREADS, CLUSTER>(Row{weight, bias, N, eps}, Rows{x, out, M, N, x_row, out_row, residual, residual_out, residual_row, residual_out_row});
}

#if STAGES > 0
extern "C" __global__ void LIMITS
    layernorm_ahead(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
                    T* __restrict__ out, T* __restrict__ residual_out, int64_t M, int64_t N, int64_t x_row, int64_t residual_row, int64_t out_row,
                    int64_t residual_out_row, float eps) {
  ak::wait_for_previous_launch();
  ak::rows_ahead<VECTORS, AK_DIM_N, THREADS, STAGES>(Row{weight, bias, N, eps}, Rows{x, out, M, N, x_row, out_row, residual, residual_out, residual_row, residual_out_row});
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    layernorm_strided(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
                      T* __restrict__ out, T* __restrict__ residual_out, int64_t N, int64_t x_row, int64_t x_column, int64_t weight_step,
                      int64_t bias_step, int64_t residual_row, int64_t residual_column, int64_t out_row, int64_t out_column,
                      int64_t residual_out_row, int64_t residual_out_column, float eps) {
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
  with_moments(
      team, ak::Source<T, HAS_RESIDUAL, false>{x, residual, nullptr}, 1.0f / static_cast<float>(N), eps,
      [&](Sums& sums, float centre) {
        for (int64_t i = threadIdx.x; i < N; i += THREADS) sums.add(element(i) - centre);
      },
      [] {},
      [&](const auto& normal) {
        for (int64_t i = threadIdx.x; i < N; i += THREADS) {
          float value = element(i);
          if (HAS_RESIDUAL_OUT) residual_out[i * residual_out_column] = ak::from_float<T>(value);
          value = normal(value);
          if (HAS_WEIGHT) value *= ak::to_float(weight[i * weight_step]);
          if (HAS_BIAS) value += ak::to_float(bias[i * bias_step]);
          out[i * out_column] = ak::from_float<T>(value);
        }
      });
}
