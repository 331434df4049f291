/*autokernel
family  = "rotary_embedding"
backend = "cuda"

[tune]
HEADS   = { values = [1, 2, 4, 8],     default = 4,   tier = 1 }   # heads that a thread rotates by the same angles
THREADS = { values = [64, 128, 256],   default = 128, tier = 1 }   # of a block

# Whole vectors: a thread has a vector of columns, and that of their partners.
[[variant]]
when = """x.stride(3) == 1 && out.stride(3) == 1 && cos.stride(1) == 1 && sin.stride(1) == 1
  && x.stride(0) * sizeof(T) % 16 == 0 && x.stride(1) * sizeof(T) % 16 == 0 && x.stride(2) * sizeof(T) % 16 == 0
  && out.stride(0) * sizeof(T) % 16 == 0 && out.stride(1) * sizeof(T) % 16 == 0 && out.stride(2) * sizeof(T) % 16 == 0
  && cos.stride(0) * sizeof(T) % 16 == 0 && sin.stride(0) * sizeof(T) % 16 == 0
  && C * (1 + HALF_TABLE) * sizeof(T) % 32 == 0 && D * sizeof(T) % 16 == 0 && S * D < 2147483648"""
[[variant.launch]]
kernel = "rotate_vectors"
grid   = ["B * cdiv(H, HEADS) * cdiv(S * (D * sizeof(T) / 16 - (INTERLEAVED ? 0 : C * (1 + HALF_TABLE) * sizeof(T) / 32)), THREADS)"]
block  = ["THREADS"]
args   = ["x", "cos", "sin", "out", "H", "S", "C", "D * sizeof(T) / 16 - (INTERLEAVED ? 0 : C * (1 + HALF_TABLE) * sizeof(T) / 32)",
          "x.stride(0)", "x.stride(1)", "x.stride(2)", "cos.stride(0)", "sin.stride(0)", "out.stride(0)", "out.stride(1)", "out.stride(2)"]

# Any sizes and strides.
[[launch]]
kernel = "rotate_elements"
grid   = ["cdiv(B * H * S * D, THREADS)"]
block  = ["THREADS"]
args   = ["x", "cos", "sin", "out", "B * H * S * D", "H", "S", "D", "C", "x.stride(0)", "x.stride(1)", "x.stride(2)", "x.stride(3)",
          "cos.stride(0)", "cos.stride(1)", "sin.stride(0)", "sin.stride(1)", "out.stride(0)", "out.stride(1)", "out.stride(2)",
          "out.stride(3)"]

[[recipe]]
name = "tables shared by heads"
tier = 1
when = "H > 1"
gain = "1.2x"
text = "A thread keeps the angles of its columns in registers over HEADS heads, and has all of their loads in flight at once."
[[recipe]]
name = "fewer heads for little work"
tier = 1
when = "B * H * S * D * sizeof(T) < 262144 * sm_count / 8"
gain = "up to the number of idle multiprocessors"
text = "A small tensor needs many threads more than it needs loads of one thread in flight: HEADS = 1."
[[recipe]]
name = "q and k in one launch"
tier = 6
when = "1"
gain = "2 us"
text = "A model rotates q and k by the same tables one after the other; as one kernel of both they share tables and a launch."
*/
#include <autokernel/vec.cuh>

namespace {

constexpr int L = ak::lanes<T>;

/// own * x + other * partner, rounded the same way in every kernel.
__device__ __forceinline__ float rotate(float x, float own, float partner, float other) {
  return __fmaf_rn(x, own, __fmul_rn(partner, other));
}
/// The factor of the partner: sin, negative for the first of a pair.
__device__ __forceinline__ float partner_factor(float sine, bool is_first) { return is_first != (BACKWARD != 0) ? -sine : sine; }

__device__ __forceinline__ uint4 load(const T* p, bool aligned) { return aligned ? *reinterpret_cast<const uint4*>(p) : ak::load_any(p, L); }

__device__ __forceinline__ void store(T* p, const float (&values)[L], bool aligned) {
  if (aligned) {
    *reinterpret_cast<uint4*>(p) = ak::pack<T>(values);
  } else {
#pragma unroll
    for (int e = 0; e < L; ++e) p[e] = ak::from_float<T>(values[e]);
  }
}

/// The factors of a vector of columns and of their partners.
struct Factors {
  float own[L], other[L];

  /// Of pairs that are neighbours, from column `column`.
  __device__ __forceinline__ void load_neighbours(const T* cos, const T* sin, uint32_t column) {
#pragma unroll
    for (int e = 0; e < L; ++e) {
      const uint32_t place = HALF_TABLE ? (column + e) / 2 : column + e;
      own[e] = ak::to_float(cos[place]);
      other[e] = partner_factor(ak::to_float(sin[place]), e % 2 == 0);
    }
  }
  /// Of columns whose partners are as far away as half of the rotary ones.
  __device__ __forceinline__ void load_half(const T* cos, const T* sin, bool is_first, bool aligned) {
    ak::unpack<T>(load(cos, aligned), own);
    ak::unpack<T>(load(sin, aligned), other);
#pragma unroll
    for (int e = 0; e < L; ++e) other[e] = partner_factor(other[e], is_first);
  }
};

/// The heads of a thread: from where to where, in steps of a head.
struct Heads {
  const T* from;
  T* to;
  int64_t from_step, to_step;
  int count;
  bool aligned;
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

__device__ __forceinline__ void rotate_neighbours(const Heads& heads, uint32_t column, const Factors& by) {
  uint4 v[HEADS];
  load_heads(v, heads, column);
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    float x[L], values[L];
    ak::unpack<T>(v[h], x);
#pragma unroll
    for (int e = 0; e < L; ++e) values[e] = rotate(x[e], by.own[e], x[e ^ 1], by.other[e]);
    if (h < heads.count) store(heads.to + h * heads.to_step + column, values, heads.aligned);
  }
}

__device__ __forceinline__ void rotate_halves(const Heads& heads, uint32_t column, uint32_t half, const Factors& first,
                                              const Factors& second) {
  uint4 low[HEADS], high[HEADS];
  load_heads(low, heads, column);
  load_heads(high, heads, column + half);
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    float a[L], b[L], values[L];
    ak::unpack<T>(low[h], a);
    ak::unpack<T>(high[h], b);
    if (h >= heads.count) continue;
    T* const to = heads.to + h * heads.to_step + column;
#pragma unroll
    for (int e = 0; e < L; ++e) values[e] = rotate(a[e], first.own[e], b[e], first.other[e]);
    store(to, values, heads.aligned);
#pragma unroll
    for (int e = 0; e < L; ++e) values[e] = rotate(b[e], second.own[e], a[e], second.other[e]);
    store(to + half, values, heads.aligned);
  }
}

}  // namespace

/// `units`: vectors of a row, where a vector and that of its partners count once.
extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_vectors(const T* __restrict__ x, const T* __restrict__ cos, const T* __restrict__ sin, T* __restrict__ out, int64_t H, int64_t S,
                   int64_t C, int64_t units, int64_t x_batch, int64_t x_head, int64_t x_position, int64_t cos_position,
                   int64_t sin_position, int64_t out_batch, int64_t out_head, int64_t out_position) {
  const uint32_t row = static_cast<uint32_t>(units), work = static_cast<uint32_t>(S) * row;
  const uint32_t blocks = (work + THREADS - 1) / THREADS, head_blocks = static_cast<uint32_t>((H + HEADS - 1) / HEADS);
  const uint32_t place = blockIdx.x % blocks * THREADS + threadIdx.x;
  if (place >= work) return;
  const int64_t first_head = int64_t{blockIdx.x / blocks % head_blocks} * HEADS, batch = blockIdx.x / blocks / head_blocks;
  const int64_t position = place / row;
  const uint32_t unit = place % row, rotary = static_cast<uint32_t>(HALF_TABLE ? 2 * C : C), half = rotary / 2;

  Heads heads;
  heads.from = x + batch * x_batch + first_head * x_head + position * x_position;
  heads.to = out + batch * out_batch + first_head * out_head + position * out_position;
  heads.from_step = x_head;
  heads.to_step = out_head;
  heads.count = static_cast<int>(min(H - first_head, int64_t{HEADS}));
  heads.aligned = ak::misalignment(x) == 0 && ak::misalignment(out) == 0;
  cos += position * cos_position;
  sin += position * sin_position;
  const bool aligned = ak::misalignment(cos) == 0 && ak::misalignment(sin) == 0;

  const uint32_t column = unit * L;
  if (INTERLEAVED) {
    if (column >= rotary) return copy(heads, column);
    Factors factors;
    factors.load_neighbours(cos, sin, column);
    rotate_neighbours(heads, column, factors);
  } else {
    if (column >= half) return copy(heads, column + half);
    Factors first, second;
    first.load_half(cos + column, sin + column, true, aligned);
    const uint32_t partner = HALF_TABLE ? column : column + half;
    second.load_half(cos + partner, sin + partner, false, aligned);
    rotate_halves(heads, column, half, first, second);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotate_elements(const T* __restrict__ x, const T* __restrict__ cos, const T* __restrict__ sin, T* __restrict__ out, int64_t size,
                    int64_t H, int64_t S, int64_t D, int64_t C, int64_t x_batch, int64_t x_head, int64_t x_position, int64_t x_column,
                    int64_t cos_position, int64_t cos_column, int64_t sin_position, int64_t sin_column, int64_t out_batch, int64_t out_head,
                    int64_t out_position, int64_t out_column) {
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
