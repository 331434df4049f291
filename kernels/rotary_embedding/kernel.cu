/*autokernel
family  = "rotary_embedding"
backend = "cuda"

[tune]
HEADS   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # heads whose vectors a thread has in flight
ROUNDS  = { values = [1, 2, 4, 8],          default = 1,   tier = 1 }   # times that a thread does so with the same angles
THREADS = { values = [64, 128, 256, 512],   default = 64,  tier = 1 }   # of a block
OVERLAP = { values = [0, 1],                default = 1,   tier = 2 }   # a launch begins before the one before it has ended

[[prior]]
set = { HEADS = 2, THREADS = 128 }
[[prior]]
set = { HEADS = 2, THREADS = 256 }
[[prior]]
when = "B * (H + PAIR * G) * S * D * sizeof(T) >= l2_bytes"
set = { HEADS = 4, THREADS = 128 }
[[prior]]
set = { HEADS = 1, THREADS = 128 }

# Whole vectors: a thread has a vector of columns, and that of their partners.
[[variant]]
when = """x.stride(3) == 1 && out.stride(3) == 1 && cos.stride(1) == 1 && sin.stride(1) == 1
  && x.stride(0) * sizeof(T) % 16 == 0 && x.stride(1) * sizeof(T) % 16 == 0 && x.stride(2) * sizeof(T) % 16 == 0
  && out.stride(0) * sizeof(T) % 16 == 0 && out.stride(1) * sizeof(T) % 16 == 0 && out.stride(2) * sizeof(T) % 16 == 0
  && (!PAIR || k.stride(3) == 1 && out_k.stride(3) == 1
      && k.stride(0) * sizeof(T) % 16 == 0 && k.stride(1) * sizeof(T) % 16 == 0 && k.stride(2) * sizeof(T) % 16 == 0
      && out_k.stride(0) * sizeof(T) % 16 == 0 && out_k.stride(1) * sizeof(T) % 16 == 0 && out_k.stride(2) * sizeof(T) % 16 == 0)
  && cos.stride(0) * sizeof(T) % 16 == 0 && sin.stride(0) * sizeof(T) % 16 == 0
  && C * (1 + HALF_TABLE) * sizeof(T) % 32 == 0 && D * sizeof(T) % 16 == 0 && D * sizeof(T) <= 16 * THREADS"""
[[variant.launch]]
kernel = "rotate_vectors"
grid   = ["""B * (cdiv(H, HEADS * ROUNDS) + PAIR * cdiv(G, HEADS * ROUNDS))
  * cdiv(S, THREADS / max(1, D * sizeof(T) / 16 - (INTERLEAVED ? 0 : C * (1 + HALF_TABLE) * sizeof(T) / 32)))"""]
block  = ["max(1, D * sizeof(T) / 16 - (INTERLEAVED ? 0 : C * (1 + HALF_TABLE) * sizeof(T) / 32))",
          "THREADS / max(1, D * sizeof(T) / 16 - (INTERLEAVED ? 0 : C * (1 + HALF_TABLE) * sizeof(T) / 32))"]
overlap = "OVERLAP"
args   = ["x", "k", "cos", "sin", "out", "out_k", "H", "PAIR * G", "S", "C", "x.stride(0)", "x.stride(1)", "x.stride(2)", "k.stride(0)",
          "k.stride(1)", "k.stride(2)", "cos.stride(0)", "sin.stride(0)", "out.stride(0)", "out.stride(1)", "out.stride(2)",
          "out_k.stride(0)", "out_k.stride(1)", "out_k.stride(2)"]

# Any sizes and strides.
[[launch]]
kernel = "rotate_elements"
grid   = ["cdiv(B * H * S * D, THREADS)"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["x", "cos", "sin", "out", "B * H * S * D", "H", "S", "D", "C", "x.stride(0)", "x.stride(1)", "x.stride(2)", "x.stride(3)",
          "cos.stride(0)", "cos.stride(1)", "sin.stride(0)", "sin.stride(1)", "out.stride(0)", "out.stride(1)", "out.stride(2)",
          "out.stride(3)"]
[[launch]]
kernel = "rotate_elements"
when   = "PAIR"
grid   = ["cdiv(B * G * S * D, THREADS)"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["k", "cos", "sin", "out_k", "B * G * S * D", "G", "S", "D", "C", "k.stride(0)", "k.stride(1)", "k.stride(2)", "k.stride(3)",
          "cos.stride(0)", "cos.stride(1)", "sin.stride(0)", "sin.stride(1)", "out_k.stride(0)", "out_k.stride(1)", "out_k.stride(2)",
          "out_k.stride(3)"]

[[recipe]]
name = "tables shared by heads"
tier = 1
when = "H > 1"
gain = "1.2x"
text = """
A thread keeps the angles of its columns in registers over HEADS * ROUNDS heads, and has the vectors of HEADS of them in flight at
once."""
[[recipe]]
name = "fewer heads for little work"
tier = 1
when = "B * H * S * D * sizeof(T) < 262144 * sm_count / 8"
gain = "up to the number of idle multiprocessors"
text = "A small tensor needs many threads more than it needs loads of one thread in flight: HEADS = 1."
*/
#include <autokernel/async.cuh>

namespace {

constexpr int L = ak::lanes<T>;

/// own * x + other * partner, rounded the same way in every kernel.
__device__ __forceinline__ float rotate(float x, float own, float partner, float other) {
  return __fmaf_rn(x, own, __fmul_rn(partner, other));
}
/// The factor of the partner: sin, negative for the first of a pair.
__device__ __forceinline__ float partner_factor(float sine, bool is_first) { return is_first != (BACKWARD != 0) ? -sine : sine; }

__device__ __forceinline__ uint4 load(const T* p, bool aligned) {
  return aligned ? *reinterpret_cast<const uint4*>(p) : ak::load_any(p, L);
}

__device__ __forceinline__ void store(T* p, const float (&values)[L], bool aligned) {
  if (aligned) {
    *reinterpret_cast<uint4*>(p) = ak::pack<T>(values);
  } else {
#pragma unroll
    for (int e = 0; e < L; ++e) p[e] = ak::from_float<T>(values[e]);
  }
}

/// The cosines and sines of a vector of columns, as they are stored: unpacked they would take twice the registers.
struct Angles {
  uint4 cosines, sines;

  /// Of pairs that are neighbours, from column `column`.
  __device__ __forceinline__ void load_neighbours(const T* cos, const T* sin, uint32_t column, bool aligned) {
    if (HALF_TABLE) {
      cosines = load_doubled(cos + column / 2, aligned);
      sines = load_doubled(sin + column / 2, aligned);
    } else {
      cosines = load(cos + column, aligned);
      sines = load(sin + column, aligned);
    }
  }
  __device__ __forceinline__ void load_columns(const T* cos, const T* sin, bool aligned) {
    cosines = load(cos, aligned);
    sines = load(sin, aligned);
  }

 private:
  /// L / 2 elements, each twice.
  static __device__ __forceinline__ uint4 load_doubled(const T* p, bool aligned) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (aligned) {
      const uint2 half = *reinterpret_cast<const uint2*>(p);
      v.x = half.x;
      v.y = half.y;
    } else {
      v = ak::load_any(p, L / 2);
    }
    float values[L], doubled[L];
    ak::unpack<T>(v, values);
#pragma unroll
    for (int e = 0; e < L; ++e) doubled[e] = values[e / 2];
    return ak::pack<T>(doubled);
  }
};

/// The heads of a thread: from where to where, in steps of a head.
struct Heads {
  const T* from;
  T* to;
  int64_t from_step, to_step;
  int count;
  bool aligned;

  /// Call visit with HEADS of them after the other, or with those that are left.
  template <class Visit>
  __device__ __forceinline__ void each_round(const Visit& visit) const {
    Heads round = *this;
#pragma unroll 1
    for (int r = 0; r < ROUNDS && round.count > 0; ++r) {
      visit(round);
      round.from += HEADS * from_step;
      round.to += HEADS * to_step;
      round.count -= HEADS;
    }
  }
};

__device__ __forceinline__ void load_heads(uint4 (&v)[HEADS], const Heads& heads, uint32_t column) {
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    v[h] = make_uint4(0, 0, 0, 0);
    if (h < heads.count) v[h] = load(heads.from + h * heads.from_step + column, heads.aligned);
  }
}

__device__ __forceinline__ void copy(const Heads& heads, uint32_t column) {
  uint4 v[HEADS];
  load_heads(v, heads, column);
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    float values[L];
    ak::unpack<T>(v[h], values);
    if (h < heads.count) store(heads.to + h * heads.to_step + column, values, heads.aligned);
  }
}

__device__ __forceinline__ void rotate_neighbours(const Heads& heads, uint32_t column, const Angles& angles) {
  uint4 v[HEADS];
  load_heads(v, heads, column);
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    float x[L], cosines[L], sines[L], values[L];
    ak::unpack<T>(v[h], x);
    ak::unpack<T>(angles.cosines, cosines);
    ak::unpack<T>(angles.sines, sines);
#pragma unroll
    for (int e = 0; e < L; ++e) values[e] = rotate(x[e], cosines[e], x[e ^ 1], partner_factor(sines[e], e % 2 == 0));
    if (h < heads.count) store(heads.to + h * heads.to_step + column, values, heads.aligned);
  }
}

/// The first or the second of pairs that are half of the rotary columns apart.
__device__ __forceinline__ void rotate_half(T* to, const uint4& own, const uint4& partner, const Angles& angles, bool is_first,
                                            bool aligned) {
  float x[L], others[L], cosines[L], sines[L], values[L];
  ak::unpack<T>(own, x);
  ak::unpack<T>(partner, others);
  ak::unpack<T>(angles.cosines, cosines);
  ak::unpack<T>(angles.sines, sines);
#pragma unroll
  for (int e = 0; e < L; ++e) values[e] = rotate(x[e], cosines[e], others[e], partner_factor(sines[e], is_first));
  store(to, values, aligned);
}

__device__ __forceinline__ void rotate_halves(const Heads& heads, uint32_t column, uint32_t half, const Angles& first,
                                              const Angles& second) {
  uint4 low[HEADS], high[HEADS];
  load_heads(low, heads, column);
  load_heads(high, heads, column + half);
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    if (h >= heads.count) continue;
    T* const to = heads.to + h * heads.to_step + column;
    rotate_half(to, low[h], high[h], first, true, heads.aligned);
    rotate_half(to + half, high[h], low[h], second, false, heads.aligned);
  }
}

}  // namespace

/// threadIdx.x: a vector of a row, where one and that of its partners count once; threadIdx.y: a position. A block has those of
/// HEADS * ROUNDS heads of x, or of k.
extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_vectors(const T* __restrict__ x, const T* __restrict__ k, const T* __restrict__ cos, const T* __restrict__ sin,
                   T* __restrict__ out, T* __restrict__ out_k, int64_t x_heads, int64_t k_heads, int64_t S, int64_t C, int64_t x_batch,
                   int64_t x_head, int64_t x_position, int64_t k_batch, int64_t k_head, int64_t k_position, int64_t cos_position,
                   int64_t sin_position, int64_t out_batch, int64_t out_head, int64_t out_position, int64_t out_k_batch, int64_t out_k_head,
                   int64_t out_k_position) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  constexpr int64_t heads_a_block = HEADS * ROUNDS;
  const uint32_t positions = blockDim.y, position_blocks = static_cast<uint32_t>((S + positions - 1) / positions);
  const uint32_t x_groups = static_cast<uint32_t>((x_heads + heads_a_block - 1) / heads_a_block);
  const uint32_t groups = x_groups + static_cast<uint32_t>((k_heads + heads_a_block - 1) / heads_a_block);
  const uint32_t group = blockIdx.x / position_blocks % groups, batch = blockIdx.x / position_blocks / groups;
  const int64_t position = int64_t{blockIdx.x % position_blocks} * positions + threadIdx.y;
  if (position >= S) return;

  const bool is_k = PAIR && group >= x_groups;
  const int64_t first_head = (is_k ? group - x_groups : group) * heads_a_block;
  Heads heads;
  heads.from_step = is_k ? k_head : x_head;
  heads.to_step = is_k ? out_k_head : out_head;
  heads.from = is_k ? k + batch * k_batch + position * k_position : x + batch * x_batch + position * x_position;
  heads.to = is_k ? out_k + batch * out_k_batch + position * out_k_position : out + batch * out_batch + position * out_position;
  heads.aligned = ak::misalignment(heads.from) == 0 && ak::misalignment(heads.to) == 0;
  heads.from += first_head * heads.from_step;
  heads.to += first_head * heads.to_step;
  heads.count = static_cast<int>(min((is_k ? k_heads : x_heads) - first_head, heads_a_block));
  cos += position * cos_position;
  sin += position * sin_position;
  const bool aligned = ak::misalignment(cos) == 0 && ak::misalignment(sin) == 0;

  const uint32_t rotary = static_cast<uint32_t>(HALF_TABLE ? 2 * C : C), half = rotary / 2, column = threadIdx.x * L;
  if (INTERLEAVED) {
    if (column >= rotary) return heads.each_round([&](const Heads& round) { copy(round, column); });
    Angles angles;
    angles.load_neighbours(cos, sin, column, aligned);
    heads.each_round([&](const Heads& round) { rotate_neighbours(round, column, angles); });
  } else {
    if (column >= half) return heads.each_round([&](const Heads& round) { copy(round, column + half); });
    Angles first, second;
    first.load_columns(cos + column, sin + column, aligned);
    second = first;
    if (!HALF_TABLE) second.load_columns(cos + column + half, sin + column + half, aligned);
    heads.each_round([&](const Heads& round) { rotate_halves(round, column, half, first, second); });
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_elements(const T* __restrict__ x, const T* __restrict__ cos, const T* __restrict__ sin, T* __restrict__ out, int64_t size,
                    int64_t H, int64_t S, int64_t D, int64_t C, int64_t x_batch, int64_t x_head, int64_t x_position, int64_t x_column,
                    int64_t cos_position, int64_t cos_column, int64_t sin_position, int64_t sin_column, int64_t out_batch, int64_t out_head,
                    int64_t out_position, int64_t out_column) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t place = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (place >= size) return;
  const int64_t j = place % D, position = place / D % S, head = place / D / S % H, batch = place / D / S / H;
  const T* const from = x + batch * x_batch + head * x_head + position * x_position;
  T* const to = out + batch * out_batch + head * out_head + position * out_position + j * out_column;
  const int64_t rotary = HALF_TABLE ? 2 * C : C, half = rotary / 2;
  if (j >= rotary) {
    *to = from[j * x_column];
    return;
  }
  const bool is_first = INTERLEAVED ? j % 2 == 0 : j < half;
  const int64_t partner = INTERLEAVED ? j ^ 1 : is_first ? j + half : j - half;
  const int64_t entry = !HALF_TABLE ? j : INTERLEAVED ? j / 2 : is_first ? j : j - half;
  const float own = ak::to_float(cos[position * cos_position + entry * cos_column]);
  const float other = partner_factor(ak::to_float(sin[position * sin_position + entry * sin_column]), is_first);
  *to = ak::from_float<T>(rotate(ak::to_float(from[j * x_column]), own, ak::to_float(from[partner * x_column]), other));
}
