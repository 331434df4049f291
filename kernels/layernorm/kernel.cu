/*autokernel
family  = "layernorm"
backend = "cuda"

[tune]
VECTORS   = { values = [1, 2, 4, 8, 16],                 default = 4,   tier = 1 }   # vectors of 16 bytes that a thread holds of a row
THREADS   = { values = [128, 256, 512, 1024],            default = 512, tier = 1 }   # of a block at most; a longer row is read again
SHORT     = { values = [1, 2, 4, 8],                     default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS     = { values = [1, 2, 4, 8],                     default = 4,   tier = 1 }   # of a block there
HINT      = { values = [0, 1, 2, 3],                     default = 0,   tier = 2 }   # 0: none; 1: rows are read once; 2: and written once; 3: read past the first cache
EARLY     = { values = [0, 1, 2],                        default = 1,   tier = 2 }   # weights come with the row, before they are needed: 1: to registers; 2: to shared memory
REGISTERS = { values = [0, 32, 40, 48, 56, 64, 72, 80, 96, 128], default = 80,  tier = 3 }   # of a thread at most where rows are held; 0: as many as it takes
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
  "EARLY < 2 || compute_capability >= 90",
  "ROWS == 1 || STAGES == 0 && CLUSTER == 1 && ROWS * max(SHORT, VECTORS) <= 8",
]

# Rows that a warp holds, one or several to a warp. A row that is not whole vectors may touch one more.
[[variant]]
when = """(N <= 1 || x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && bias.stride(0) <= 1
                      && (HAS_RESIDUAL == 0 || residual.stride(1) == 1) && (HAS_RESIDUAL_OUT == 0 || residual_out.stride(1) == 1))
          && N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0) <= 32 * SHORT"""
[[variant.launch]]
kernel  = "layernorm_warps"
grid    = ["cdiv(M, ROWS * (WARPS * 32 / pow2ceil(max(1, cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), SHORT)))))"]
block   = ["32 * WARPS"]
args    = ["x", "weight", "bias", "residual", "out", "residual_out", "M", "N", "x.stride(0)", "residual.stride(0)", "out.stride(0)",
           "residual_out.stride(0)",
           "pow2ceil(max(1, cdiv(N * sizeof(T) / 16 + 2 * (N * sizeof(T) % 16 != 0), SHORT)))", "eps"]
overlap = "OVERLAP"

# Blocks that stay, while the next rows come.
[[variant]]
when = """STAGES > 0 && x.stride(1) == 1 && out.stride(1) == 1 && weight.stride(0) <= 1 && bias.stride(0) <= 1
          && (HAS_RESIDUAL == 0 || residual.stride(1) == 1) && (HAS_RESIDUAL_OUT == 0 || residual_out.stride(1) == 1)
          && N * sizeof(T) <= 16 * VECTORS * THREADS - 32
          && STAGES * (1 + HAS_RESIDUAL) * (N * sizeof(T) + 32) + (EARLY == 2) * (HAS_WEIGHT + HAS_BIAS) * N * sizeof(T) <= shared_per_block - 2048"""
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
grid    = ["cdiv(M, ROWS) * CLUSTER"]
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

# Where a search begins: what won on an H200.
[[prior]]
when = "HAS_RESIDUAL && N * sizeof(T) > 4096 && M * N * sizeof(T) > 16777216"
set  = { SHORT = 1, VECTORS = 4, REGISTERS = 80, EARLY = 1 }
[[prior]]
when = "N * sizeof(T) > 8192"
set  = { SHORT = 1, VECTORS = 4, REGISTERS = 64, EARLY = 2 }
[[prior]]
when = "N * sizeof(T) > 8192"
set  = { SHORT = 1, VECTORS = 8, REGISTERS = 96, EARLY = 2 }
[[prior]]
when = "N * sizeof(T) > 4096 && N * sizeof(T) <= 8192"
set  = { SHORT = 1, VECTORS = 4, ROWS = 2, REGISTERS = 72, EARLY = 2 }
[[prior]]
when = "N * sizeof(T) > 4096 && N * sizeof(T) <= 8192"
set  = { SHORT = 1, VECTORS = 4, ROWS = 2, REGISTERS = 64, EARLY = 2 }
[[prior]]
when = "N * sizeof(T) > 4096 && N * sizeof(T) <= 16384"
set  = { SHORT = 1, VECTORS = 4, STAGES = 2, BLOCKS = 6, REGISTERS = 80, EARLY = 0 }
[[prior]]
when = "N * sizeof(T) > 512 && N * sizeof(T) <= 4096"
set  = { SHORT = 4, REGISTERS = 64, EARLY = 2 }
[[prior]]
when = "N * sizeof(T) > 512 && N * sizeof(T) <= 4096"
set  = { SHORT = 1, VECTORS = 2, ROWS = 2, REGISTERS = 64, EARLY = 2 }

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
  __device__ __forceinline__ float operator()(float x) const { return fmaf(x, scale, shift); }
};
/// Of rows that are reduced at once, and around what; `centred`: not all of them around 0.
template <int rows>
struct Found {
  Moments moments[rows];
  float centres[rows] = {};
  bool centred = true;
};
/// `centred` gives the same values where it need not be.
template <int rows, bool centred>
struct Normal {
  Found<rows> found;
  __device__ __forceinline__ float operator()(int row, float x) const {
    return found.moments[row](centred ? x - found.centres[row] : x);
  }
};

/// add(row, sums, centre) adds a thread's part of a row; first(row) is its first element; released() is called when all threads have what they
/// need for both. `share`: 1 / N.
template <int rows, class Team, class First, class Add, class Released>
__device__ __forceinline__ Found<rows> find_moments(Team& team, float share, float eps, const First& first, const Add& add,
                                                    const Released& released) {
  Sums sums[rows];
  Found<rows> found;
  float next[rows] = {};
  bool done[rows] = {};
  const auto try_next = [&] {
    bool all = true;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      sums[r] = Sums();
      add(r, sums[r], next[r]);
    }
    ak::reduce<Sums>(team, sums, Sums());
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if (!done[r]) {
        found.centres[r] = next[r];
        found.moments[r] = Moments(sums[r], share, eps);
      }
      done[r] |= sums[r].keep_digits(share);
      all &= done[r];
    }
    return !team.any(!all);
  };
  if constexpr (sizeof(T) == 2) {
    if (try_next()) {
      released();
      found.centred = false;
      return found;
    }
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) next[r] = first(r);
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    const bool all = try_next();
    if (pass == 0) released();
    if (all) break;
#pragma unroll
    for (int r = 0; r < rows; ++r) next[r] += sums[r].first * share;
  }
  return found;
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
  static constexpr bool loaded = n > 0;
  uint4 weights[n > 0 && HAS_WEIGHT ? n : 1], biases[n > 0 && HAS_BIAS ? n : 1];

  template <class Tile>
  __device__ __forceinline__ const uint4& weight(const Tile&, int k) const { return weights[k]; }
  template <class Tile>
  __device__ __forceinline__ const uint4& bias(const Tile&, int k) const { return biases[k]; }
};
template <class Tile>
constexpr int gains_of = Tile::aligned ? Tile::vectors : 0;

/// The same in shared memory.
template <class Tile>
constexpr bool gains_shared =
    EARLY == 2 && Tile::aligned && HAS_WEIGHT + HAS_BIAS > 0 && (HAS_WEIGHT + HAS_BIAS) * int64_t{AK_DIM_N} * sizeof(T) <= 40960;
template <class Rows>
struct SharedGains {
  static constexpr bool loaded = true;
  Rows& rows;

  template <class Tile>
  __device__ __forceinline__ uint4 weight(const Tile& tile, int k) const { return rows.beside(tile, k, 0); }
  template <class Tile>
  __device__ __forceinline__ uint4 bias(const Tile& tile, int k) const { return rows.beside(tile, k, HAS_WEIGHT); }
};

/// out = normal * weight + bias for rows that are held.
template <class Held, int rows, class Gains, class Normal>
__device__ __forceinline__ void write(const Held (&held)[rows], const Gains& gains, const T* weight, const T* bias, const Normal& normal) {
  constexpr int K = decltype(held[0].tile)::vectors;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float weights[L], biases[L];
    if constexpr (Gains::loaded && HAS_WEIGHT) ak::unpack<T>(gains.weight(held[0].tile, k), weights);
    if constexpr (Gains::loaded && HAS_BIAS) ak::unpack<T>(gains.bias(held[0].tile, k), biases);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const Held& row = held[r];
      if (!Gains::loaded && HAS_WEIGHT) row.tile.beside(weights, weight + row.at, k, ak::misalignment(weight + row.at) == 0);
      if (!Gains::loaded && HAS_BIAS) row.tile.beside(biases, bias + row.at, k, ak::misalignment(bias + row.at) == 0);
      float values[L];
      ak::unpack<T>(row.v[k], values);
#pragma unroll
      for (int e = 0; e < L; ++e) {
        values[e] = normal(r, values[e]);
        if (HAS_WEIGHT) values[e] *= weights[e];
        if (HAS_BIAS) values[e] += biases[e];
      }
      row.store(k, values, ak::misalignment(row.out) == 0);
    }
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
    if constexpr (gains_of<Tile> > 0 && HAS_WEIGHT) tile.load_beside(loaded.weights, weight);
    if constexpr (gains_of<Tile> > 0 && HAS_BIAS) tile.load_beside(loaded.biases, bias);
    return loaded;
  }
  template <class Tile>
  __device__ __forceinline__ auto early(const Tile& tile) const {
    if constexpr (gains_shared<Tile>) {
      using Rows = ak::SharedRows<T, gains_shared<Tile> ? AK_DIM_N : L, HAS_WEIGHT + HAS_BIAS>;
      __shared__ Rows rows;
      if constexpr (HAS_WEIGHT && HAS_BIAS) {
        rows.fetch({weight, bias});
      } else {
        rows.fetch({HAS_WEIGHT ? weight : bias});
      }
      return SharedGains<Rows>{rows};
    } else if constexpr (EARLY == 1) {
      return gains(tile);
    } else {
      return Gains<0>();
    }
  }

  template <class Team, class Tile, class Source, int rows, class Early, class Released>
  __device__ __forceinline__ void held(Team& team, ak::Held<Tile, Source> (&held)[rows], const Early& early, const Released& released) const {
    const auto found = find_moments<rows>(
        team, Tile::share, eps, [&](int r) { return held[r].source.first(); },
        [&](int r, Sums& sums, float centre) {
          add_vectors(sums, held[r].tile, held[r].v, centre);
          if constexpr (Tile::vectors > 2) ak::forget_unpacked(held[r].v);
        },
        released);
    const auto now = [&] {  // what came to registers does not have to stay where sums are taken again
      if constexpr (gains_shared<Tile>) {
        early.rows.wait();
        return early;
      } else {
        return gains(held[0].tile);
      }
    };
    if (found.centred) {
      write(held, now(), weight, bias, Normal<rows, true>{found});
    } else if constexpr (EARLY == 1) {
      write(held, early, weight, bias, Normal<rows, false>{found});
    } else {
      write(held, now(), weight, bias, Normal<rows, false>{found});
    }
  }

  template <class Team, class Pieces, class Source>
  __device__ __forceinline__ void any(Team& team, const Pieces& pieces, const Source& source, T* out) const {
    ak::Held<typename Pieces::Tile, Source> held[1] = {{.source = source, .present = true}};
    auto& piece = held[0];
    const auto found = find_moments<1>(
        team, __fdividef(1.0f, static_cast<float>(N)), eps, [&](int) { return source.first(); },
        [&](int, Sums& sums, float centre) {
          for (int i = 0; i < pieces.count; ++i) {
            load_piece(piece, pieces, i, out, fill());
            add_vectors(sums, piece.tile, piece.v, centre);
          }
        },
        [] {});
    const Normal<1, true> normal{found};
    for (int i = pieces.count - 1; i >= 0; --i) {  // the last one is still here
      if (i + 1 < pieces.count) load_piece(piece, pieces, i, out, fill());
      source.keep(piece.tile, piece.v, piece.at);
      write(held, Gains<0>(), weight, bias, normal);
    }
  }
};

using Rows = ak::Rows<T, HAS_RESIDUAL, HAS_RESIDUAL_OUT>;

}  // namespace

extern "C" __global__ void AK_ROW_LIMITS(32 * WARPS)
    layernorm_warps(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
                    T* __restrict__ out, T* __restrict__ residual_out, int64_t M, int64_t N, int64_t x_row, int64_t residual_row, int64_t out_row,
                    int64_t residual_out_row, int64_t lanes, float eps) {
  ak::wait_for_previous_launch();
  ak::rows_in_warps<SHORT, AK_DIM_N, ROWS>(Row{weight, bias, N, eps}, Rows{x, out, M, N, x_row, out_row, residual, residual_out, residual_row, residual_out_row}, static_cast<int>(lanes));
}

extern "C" __global__ void AK_ROW_LIMITS(THREADS)
    layernorm_block(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
                    T* __restrict__ out, T* __restrict__ residual_out, int64_t M, int64_t N, int64_t x_row, int64_t residual_row, int64_t out_row,
                    int64_t residual_out_row, float eps) {
  ak::wait_for_previous_launch();
  ak::rows_in_blocks<VECTORS, AK_DIM_N, THREADS, CLUSTER, ROWS>(Row{weight, bias, N, eps}, Rows{x, out, M, N, x_row, out_row, residual, residual_out, residual_row, residual_out_row});
}

#if STAGES > 0
extern "C" __global__ void AK_ROW_LIMITS(THREADS)
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
  const auto found = find_moments<1>(
      team, __fdividef(1.0f, static_cast<float>(N)), eps, [&](int) { return element(0); },
      [&](int, Sums& sums, float centre) {
        for (int64_t i = threadIdx.x; i < N; i += THREADS) sums.add(element(i) - centre);
      },
      [] {});
  const Normal<1, true> normal{found};
  for (int64_t i = threadIdx.x; i < N; i += THREADS) {
    float value = element(i);
    if (HAS_RESIDUAL_OUT) residual_out[i * residual_out_column] = ak::from_float<T>(value);
    value = normal(0, value);
    if (HAS_WEIGHT) value *= ak::to_float(weight[i * weight_step]);
    if (HAS_BIAS) value += ak::to_float(bias[i * bias_step]);
    out[i * out_column] = ak::from_float<T>(value);
  }
}
