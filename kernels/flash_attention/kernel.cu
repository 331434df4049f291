/*autokernel
family  = "flash_attention"
backend = "cuda"

[tune]
WARPS = { values = [1, 2, 4, 8],   default = 4,   tier = 1 }  # of a block; each has 16 queries, or one where there are no tensor cores for it
KEYS  = { values = [16, 32, 64],   default = 64,  tier = 1 }  # keys in shared memory at a time
HEAD  = { values = [64, 128],      default = 128, tier = 1 }  # columns of a head that a warp has room for; longer heads go without

# 16-bit elements on tensor cores.
[[variant]]
when = "sizeof(T) == 2 && D <= HEAD"
[[variant.launch]]
kernel = "attention_tiles"
grid   = ["cdiv(S, 16 * WARPS) * B * H"]
block  = ["32 * WARPS"]
args   = ["q", "k", "v", "mask", "bool_mask", "out", "H", "G", "S", "L", "D", "scale",
          "q.stride(0)", "q.stride(1)", "q.stride(2)", "q.stride(3)", "k.stride(0)", "k.stride(1)", "k.stride(2)", "k.stride(3)",
          "v.stride(0)", "v.stride(1)", "v.stride(2)", "v.stride(3)", "out.stride(0)", "out.stride(1)", "out.stride(2)", "out.stride(3)",
          "HAS_MASK ? mask.stride(0) : BOOL_MASK ? bool_mask.stride(0) : 0", "HAS_MASK ? mask.stride(1) : BOOL_MASK ? bool_mask.stride(1) : 0",
          "HAS_MASK ? mask.stride(2) : BOOL_MASK ? bool_mask.stride(2) : 0", "HAS_MASK ? mask.stride(3) : BOOL_MASK ? bool_mask.stride(3) : 0"]

# Any element and size of a head: a warp has one query.
[[launch]]
kernel = "attention_any"
grid   = ["cdiv(S, WARPS) * B * H"]
block  = ["32 * WARPS"]
shared = "WARPS * 2 * D * sizeof(float32)"
args   = ["q", "k", "v", "mask", "bool_mask", "out", "H", "G", "S", "L", "D", "scale",
          "q.stride(0)", "q.stride(1)", "q.stride(2)", "q.stride(3)", "k.stride(0)", "k.stride(1)", "k.stride(2)", "k.stride(3)",
          "v.stride(0)", "v.stride(1)", "v.stride(2)", "v.stride(3)", "out.stride(0)", "out.stride(1)", "out.stride(2)", "out.stride(3)",
          "HAS_MASK ? mask.stride(0) : BOOL_MASK ? bool_mask.stride(0) : 0", "HAS_MASK ? mask.stride(1) : BOOL_MASK ? bool_mask.stride(1) : 0",
          "HAS_MASK ? mask.stride(2) : BOOL_MASK ? bool_mask.stride(2) : 0", "HAS_MASK ? mask.stride(3) : BOOL_MASK ? bool_mask.stride(3) : 0"]

[[recipe]]
name = "blocks for every multiprocessor"
tier = 1
when = "cdiv(S, 16 * WARPS) * B * H < sm_count"
gain = "up to the number of idle multiprocessors"
text = """
Fewer WARPS make more blocks. With few queries give each block a part of the keys, keep (maximum, sum, result) of each part in a scratch, \
and merge them in order in a second launch."""
[[recipe]]
name = "asynchronous copies"
tier = 4
when = "sizeof(T) == 2 && L >= 512"
gain = "1.3x"
text = "cp.async fetches the next keys and values into a second stage while this one is used."
[[recipe]]
name = "wgmma"
tier = 6
when = "sizeof(T) == 2 && S >= 128"
gain = "2x"
text = """
On sm_90a a producer warp fetches keys and values by TMA, and two or three warp groups of 64 queries take turns between wgmma and softmax."""
*/
#include <autokernel/mma.cuh>
#include <autokernel/reduce.cuh>

namespace {

struct Strides {
  int64_t batch, head, row, column;
};

/// What is added to a score, and which scores count.
struct Mask {
  const T* added;
  const T_bool_mask* flags;
  int64_t row, column;

  __device__ __forceinline__ float apply(float score, int64_t s, int64_t l, int64_t L) const {
    if (l >= L || (CAUSAL && l > s)) return -ak::infinity();
    const int64_t at = s * row + l * column;
    if (HAS_MASK) score += ak::to_float(added[at]);
    if (BOOL_MASK && (flags[at] != 0) == (BOOL_MASK == 2)) score = -ak::infinity();
    return score;
  }
};

/// A head of a batch: where its tensors begin.
struct Head {
  const T *q, *k, *v;
  T* out;
  Mask mask;

  __device__ __forceinline__ Head(int64_t index, int64_t H, int64_t G, const T* q, const T* k, const T* v, const T* mask,
                                  const T_bool_mask* bool_mask, T* out, const Strides& of_q, const Strides& of_k, const Strides& of_v,
                                  const Strides& of_out, const Strides& of_mask) {
    const int64_t b = index / H, h = index % H, g = h / (H / G), of_head = b * of_mask.batch + h * of_mask.head;
    this->q = q + b * of_q.batch + h * of_q.head;
    this->k = k + b * of_k.batch + g * of_k.head;
    this->v = v + b * of_v.batch + g * of_v.head;
    this->out = out + b * of_out.batch + h * of_out.head;
    this->mask = {HAS_MASK ? mask + of_head : mask, BOOL_MASK ? bool_mask + of_head : bool_mask, of_mask.row, of_mask.column};
  }
};

__device__ __forceinline__ float factor_of(float scale, int64_t D) {
  return SCALE == 1 ? scale : SCALE == 2 ? 1.0f / scale : 1.0f / sqrtf(static_cast<float>(D));
}
/// A row of the result from its sum of products and its sum of exponentials, which is 0 where it sees no key.
__device__ __forceinline__ float finish(float products, float sum, int64_t L) {
  return sum != 0.0f ? products / sum : SAFE || L == 0 ? 0.0f : __uint_as_float(0x7fc00000u);
}
/// What exponentials are relative to: 0 where no key has been seen.
__device__ __forceinline__ float pivot_of(float maximum) { return maximum == -ak::infinity() ? 0.0f : maximum; }

constexpr int queries = 16 * WARPS;

/// Copy rows [first, first + rows) of a head into shared memory, zeros where there are none.
template <int rows, int width, class E>
__device__ __forceinline__ void stage(E (*to)[width + 8], const E* __restrict__ from, int64_t first, int64_t count, int64_t D,
                                      const Strides& strides) {
  const bool whole = strides.column == 1 && strides.row % 8 == 0 && ak::misalignment(from) == 0;
  for (int i = threadIdx.x; i < rows * (width / 8); i += 32 * WARPS) {
    const int row = i / (width / 8), column = i % (width / 8) * 8;
    const E* const at = from + (first + row) * strides.row + column * strides.column;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (first + row < count && column < D) {
      if (whole && column + 8 <= D) {
        v = *reinterpret_cast<const uint4*>(at);
      } else {
        v = ak::gather<E>(at, strides.column, static_cast<int>(min(D - column, int64_t{8})));
      }
    }
    *reinterpret_cast<uint4*>(&to[row][column]) = v;
  }
}

__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  if constexpr (ak::is_half<T>) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
  }
}

/// 16 neighbouring rows at 8 columns, as the second operand of mma that is summed over the rows.
__device__ __forceinline__ void load_across(uint32_t (&b)[2], const T* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(address) : "memory");
}

/// A block has 16 * WARPS queries of a head and goes through the keys, KEYS at a time, with a running maximum and sum. A warp has 16 queries:
/// a lane has of two of them, 8 apart, every fourth pair of neighbouring keys or columns.
template <class E, int width>
__device__ __forceinline__ void attend(const Head& head, int64_t first_s, int64_t S, int64_t L, int64_t D, float factor, const Strides& of_q,
                                       const Strides& of_k, const Strides& of_v, const Strides& of_out) {
  constexpr int most = KEYS > queries ? KEYS : queries;
  __shared__ alignas(16) E rows[most + KEYS][width + 8];
  E(*const keys)[width + 8] = rows;
  E(*const values)[width + 8] = rows + most;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, place = lane % 4 * 2;

  uint32_t query[width / 16][4];
  stage<queries, width>(keys, head.q, first_s, S, D, of_q);
  __syncthreads();
#pragma unroll
  for (int c = 0; c < width / 16; ++c) {
    const int row = 16 * warp + group, column = 16 * c + place;
    query[c][0] = ak::pair(keys[row][column]);
    query[c][1] = ak::pair(keys[row + 8][column]);
    query[c][2] = ak::pair(keys[row][column + 8]);
    query[c][3] = ak::pair(keys[row + 8][column + 8]);
  }

  const int64_t own_s = first_s + 16 * warp + group;
  float result[width / 8][4] = {}, maximum[2] = {-ak::infinity(), -ak::infinity()}, sum[2] = {};
  const int64_t end = CAUSAL ? min(L, first_s + queries) : L;
  for (int64_t first = 0; first < end; first += KEYS) {
    __syncthreads();
    stage<KEYS, width>(keys, head.k, first, L, D, of_k);
    stage<KEYS, width>(values, head.v, first, L, D, of_v);
    __syncthreads();

    float scores[KEYS / 8][4] = {};
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
      for (int c = 0; c < width / 16; ++c) {
        const uint32_t key[2] = {ak::pair(keys[8 * j + group][16 * c + place]), ak::pair(keys[8 * j + group][16 * c + place + 8])};
        ak::mma<E>(scores[j], query[c], key);
      }
    }
    float top[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t s = own_s + i / 2 * 8;
        scores[j][i] = head.mask.apply(scores[j][i] * factor, s < S ? s : S - 1, first + 8 * j + place + i % 2, L);
        top[i / 2] = fmaxf(top[i / 2], scores[j][i]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(ak::all_lanes, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(ak::all_lanes, top[r], 2));
      const float kept = ak::exponential<T>(maximum[r] - pivot_of(top[r]));
      maximum[r] = top[r];
      sum[r] *= kept;
#pragma unroll
      for (int c = 0; c < width / 8; ++c) {
        result[c][2 * r] *= kept;
        result[c][2 * r + 1] *= kept;
      }
    }
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[j][i] = ak::exponential<T>(scores[j][i] - pivot_of(maximum[i / 2]));
        sum[i / 2] += scores[j][i];
      }
    }
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j) {
      const float(&low)[4] = scores[2 * j], (&high)[4] = scores[2 * j + 1];
      const uint32_t weight[4] = {pack_pair(low[0], low[1]), pack_pair(low[2], low[3]), pack_pair(high[0], high[1]), pack_pair(high[2], high[3])};
#pragma unroll
      for (int c = 0; c < width / 8; ++c) {
        uint32_t value[2];
        load_across(value, &values[16 * j + lane % 16][8 * c]);
        ak::mma<E>(result[c], weight, value);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(ak::all_lanes, sum[r], 1);
    sum[r] += __shfl_xor_sync(ak::all_lanes, sum[r], 2);
    const int64_t s = own_s + 8 * r;
    if (s >= S) continue;
    T* const out = head.out + s * of_out.row;
#pragma unroll
    for (int c = 0; c < width / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t d = 8 * c + place + i;
        if (d < D) out[d * of_out.column] = ak::from_float<T>(finish(result[c][2 * r + i], sum[r], L));
      }
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attention_tiles(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const T* __restrict__ mask,
          const T_bool_mask* __restrict__ bool_mask, T* __restrict__ out, int64_t H, int64_t G, int64_t S, int64_t L, int64_t D, float scale,
          int64_t q_b, int64_t q_h, int64_t q_s, int64_t q_d, int64_t k_b, int64_t k_g, int64_t k_l, int64_t k_d, int64_t v_b, int64_t v_g,
          int64_t v_l, int64_t v_d, int64_t out_b, int64_t out_h, int64_t out_s, int64_t out_d, int64_t mask_b, int64_t mask_h,
          int64_t mask_s, int64_t mask_l) {
  const Strides of_q = {q_b, q_h, q_s, q_d}, of_k = {k_b, k_g, k_l, k_d}, of_v = {v_b, v_g, v_l, v_d}, of_out = {out_b, out_h, out_s, out_d};
  const int64_t blocks = (S + queries - 1) / queries, place = blockIdx.x % blocks;
  const Head head(blockIdx.x / blocks, H, G, q, k, v, mask, bool_mask, out, of_q, of_k, of_v, of_out, {mask_b, mask_h, mask_s, mask_l});
  const int64_t first_s = (CAUSAL ? blocks - 1 - place : place) * queries;  // late queries see the most keys
  if constexpr (sizeof(T) == 2) attend<T, HEAD>(head, first_s, S, L, D, factor_of(scale, D), of_q, of_k, of_v, of_out);
}

/// A warp has a query; its lanes have a key each for the scores, and a column each for the result.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    attention_any(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const T* __restrict__ mask,
          const T_bool_mask* __restrict__ bool_mask, T* __restrict__ out, int64_t H, int64_t G, int64_t S, int64_t L, int64_t D, float scale,
          int64_t q_b, int64_t q_h, int64_t q_s, int64_t q_d, int64_t k_b, int64_t k_g, int64_t k_l, int64_t k_d, int64_t v_b, int64_t v_g,
          int64_t v_l, int64_t v_d, int64_t out_b, int64_t out_h, int64_t out_s, int64_t out_d, int64_t mask_b, int64_t mask_h,
          int64_t mask_s, int64_t mask_l) {
  const Strides of_q = {q_b, q_h, q_s, q_d}, of_k = {k_b, k_g, k_l, k_d}, of_v = {v_b, v_g, v_l, v_d}, of_out = {out_b, out_h, out_s, out_d};
  extern __shared__ float room[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t blocks = (S + WARPS - 1) / WARPS, s = blockIdx.x % blocks * WARPS + warp;
  if (s >= S) return;
  const Head head(blockIdx.x / blocks, H, G, q, k, v, mask, bool_mask, out, of_q, of_k, of_v, of_out, {mask_b, mask_h, mask_s, mask_l});
  const float factor = factor_of(scale, D);
  float* const query = room + warp * 2 * D;
  float* const result = query + D;
  for (int64_t d = lane; d < D; d += 32) {
    query[d] = ak::to_float(head.q[s * q_s + d * q_d]);
    result[d] = 0.0f;
  }
  __syncwarp();

  float maximum = -ak::infinity(), sum = 0.0f;
  const int64_t end = CAUSAL ? min(L, s + 1) : L;
  for (int64_t first = 0; first < end; first += 32) {
    const int64_t l = first + lane;
    float score = 0.0f;
    if (l < L) {
#pragma unroll 4
      for (int64_t d = 0; d < D; ++d) score += query[d] * ak::to_float(head.k[l * k_l + d * k_d]);
    }
    score = head.mask.apply(score * factor, s, l, L);
    const float top = fmaxf(maximum, ak::warp_reduce<ak::MaxNumber>(score));
    const float kept = ak::exponential<T>(maximum - pivot_of(top)), weight = ak::exponential<T>(score - pivot_of(top));
    maximum = top;
    sum = sum * kept + ak::warp_reduce<ak::Sum>(weight);
    const int count = static_cast<int>(min(end - first, int64_t{32}));
    for (int64_t begin = 0; begin < D; begin += 32) {
      const int64_t d = begin + lane;
      float products = d < D ? result[d] * kept : 0.0f;
      for (int j = 0; j < count; ++j) {
        const float of_key = __shfl_sync(ak::all_lanes, weight, j);
        if (d < D) products += of_key * ak::to_float(head.v[(first + j) * v_l + d * v_d]);
      }
      if (d < D) result[d] = products;
    }
  }
  for (int64_t d = lane; d < D; d += 32) head.out[s * out_s + d * out_d] = ak::from_float<T>(finish(result[d], sum, L));
}
