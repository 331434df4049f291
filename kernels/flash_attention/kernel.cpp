/*autokernel
family  = "flash_attention"
backend = "cpu"

[tune]
BLOCK_S  = { values = [12, 24, 48, 96, 192], default = 96, tier = 1 }              # queries of a block
BLOCK_L  = { values = [64, 128, 192, 256, 384, 512, 768], default = 256, tier = 1 }     # keys between two corrections of the maximum
GROUP    = { values = [6, 12, 24, 48, 96, 192], default = 24, tier = 2 }                # queries whose scores are in L1 together
KEY_COLS = { values = [1, 2, 3, 4], default = 4, tier = 3 }                             # a panel is 16 * KEY_COLS keys
KEY_ROWS = { values = [4, 6, 8, 12, 14], default = 6, tier = 3 }                        # queries of a micro-tile of the scores
OUT_COLS = { values = [1, 2, 3, 4], default = 4, tier = 3 }                             # 16 * OUT_COLS columns of v at a time
OUT_ROWS = { values = [4, 6, 8, 12, 14], default = 6, tier = 3 }                        # queries of a micro-tile of the result
PACK     = { values = [0, 1], default = 1, tier = 2 }                                   # 1: pack k and v in a launch before; 0: in every block
COPY_V   = { values = [0, 1], default = 0, tier = 2 }                                   # 1: copy v also where it could be read in place
EXP      = { values = [5, 6], default = 5, tier = 5 }                                   # degree of the polynomial in exp
LONGEST  = { values = [0, 1], default = 1, tier = 4 }                                   # 1: blocks of late queries first, which see most keys
require  = ["BLOCK_L % (16*KEY_COLS) == 0", "GROUP <= BLOCK_S", "KEY_ROWS * KEY_COLS <= 28", "OUT_ROWS * OUT_COLS <= 28"]

[scratch.keys]
dtype = "float32"
shape = ["PACK && S > BLOCK_S ? B*G*align(L, 16*KEY_COLS)*D : 1"]
[scratch.values]
dtype = "float32"
shape = ["PACK && S > BLOCK_S ? B*G*L*align(D, 16) : 1"]
[scratch.block]
dtype = "float32"
shape = ["BLOCK_S * (D + 16) + GROUP * (BLOCK_L + 16) + BLOCK_S * (align(D, 16) + 16) + 2*BLOCK_S + BLOCK_L*D + BLOCK_L*align(D, 16) + 64"]
per_worker = true

[[launch]]
kernel = "pack_keys_and_values"
grid   = ["cdiv(L, 16*KEY_COLS)", "B*G"]
args   = ["k", "v", "keys", "values", "G", "L", "D", "k.stride(0)", "k.stride(1)", "k.stride(2)", "k.stride(3)",
          "v.stride(0)", "v.stride(1)", "v.stride(2)", "v.stride(3)"]
when   = "PACK && S > BLOCK_S"

[[launch]]
kernel = "attention"
grid   = ["cdiv(S, BLOCK_S)", "B*H"]
args   = ["q", "k", "v", "mask", "bool_mask", "out", "keys", "values", "PACK && S > BLOCK_S", "H", "G", "S", "L", "D", "scale",
          "q.stride(0)", "q.stride(1)", "q.stride(2)", "q.stride(3)", "k.stride(0)", "k.stride(1)", "k.stride(2)", "k.stride(3)",
          "v.stride(0)", "v.stride(1)", "v.stride(2)", "v.stride(3)", "out.stride(0)", "out.stride(1)", "out.stride(2)", "out.stride(3)",
          "HAS_MASK ? mask.stride(0) : BOOL_MASK ? bool_mask.stride(0) : 0", "HAS_MASK ? mask.stride(1) : BOOL_MASK ? bool_mask.stride(1) : 0",
          "HAS_MASK ? mask.stride(2) : BOOL_MASK ? bool_mask.stride(2) : 0", "HAS_MASK ? mask.stride(3) : BOOL_MASK ? bool_mask.stride(3) : 0"]

[[recipe]]
name = "blocks for the caches"
tier = 1
when = "1"
gain = "10 %"
text = """
Scores of a group (GROUP * BLOCK_L floats) should fit into L1, a block of k and v (2 * BLOCK_L * D floats) into L2; a taller BLOCK_S \
reads k and v less often, a shorter one wastes less on the diagonal and balances better."""
[[recipe]]
name = "read v in place"
tier = 2
when = "D % 16 == 0"
gain = "3 %"
text = """
float32 rows of v need no copy if their pitch is not a multiple of 1 KB; otherwise COPY_V = 1 or PACK = 1 keeps them from falling into \
the same sets of L1."""
[[recipe]]
name = "shape of the micro-tiles"
tier = 3
when = "1"
gain = "10 %"
text = "20 to 28 accumulators each: OUT_COLS = 2 with OUT_ROWS = 12 where D = 32, 4 with 6 where D = 64 or 128; rows that divide BLOCK_S."
[[recipe]]
name = "skip the correction"
tier = 4
when = "L > BLOCK_L"
gain = "3 %"
text = """
Rescale the result only where the maximum of a row grew by more than 8, and keep the old maximum until then: the sum stays below 2^12 \
times too large, which float holds."""
[[recipe]]
name = "split the keys for one query"
tier = 6
when = "S < BLOCK_S && B*H < 2*workers"
gain = "up to the number of workers"
text = """
With few queries and heads there are fewer blocks than workers: give each block a fixed part of the keys, keep (maximum, sum, result) of \
each part in a scratch, and merge them in a second launch in a fixed order."""
*/
#include <autokernel/gemm.h>

// A block is BLOCK_S queries of one head. It goes through the keys BLOCK_L at a time, and there through its queries GROUP at a time: scores
// by a product with packed keys, softmax with a running maximum and sum, and a product with v that is added to the result so far. Keys that
// no query of the block may see are left out.

constexpr int W = ak::native_lanes;
constexpr int panel = 16 * KEY_COLS;
constexpr int key_vectors = panel / W;
constexpr float infinity = __builtin_inff();

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t align16(int64_t n) { return (n + 15) / 16 * 16; }

void pack_keys_and_values(int64_t block, int64_t, void*, const T* k, const T* v, float* keys, float* values, int64_t G, int64_t L,
                          int64_t D, int64_t k_b, int64_t k_g, int64_t k_l, int64_t k_d, int64_t v_b, int64_t v_g, int64_t v_l,
                          int64_t v_d) {
  const int64_t panels = (L + panel - 1) / panel;
  const int64_t head = block / panels, first = block % panels * panel;
  const int64_t b = head / G, g = head % G, count = least(panel, L - first);
  ak::pack_panel(keys + (head * panels * panel + first) * D, panel, panel, k + b * k_b + g * k_g + first * k_l, k_l, k_d, count, D);
  const int64_t row = align16(D);
  ak::copy_rows(values + (head * L + first) * row, row, v + b * v_b + g * v_g + first * v_l, v_l, v_d, count, D, row);
}
AK_KERNEL(pack_keys_and_values)

/// The part of an additive or boolean mask that belongs to a head: rows are queries, columns keys.
struct Mask {
  const T* added;
  const T_bool_mask* flags;
  int64_t row, column;

  /// What to add to W scores, of which `count` are there.
  ak::Floats<W> read(int64_t s, int64_t l, int64_t count) const {
    const int64_t at = s * row + l * column;
    ak::Floats<W> value = {};
    if (HAS_MASK) {
      if (column == 1 && count == W) return ak::load<W>(added + at);
      for (int64_t i = 0; i < count; ++i) value[i] = static_cast<float>(added[at + i * column]);
    } else {
      ak::Ints<W> flag = {};
      for (int64_t i = 0; i < count; ++i) flag[i] = flags[at + i * column];
      value = (flag != 0) == (ak::Ints<W>{} - (BOOL_MASK == 1)) ? value : value - infinity;
    }
    return value;
  }
  bool hides(int64_t s, int64_t l) const {
    const int64_t at = s * row + l * column;
    return HAS_MASK ? static_cast<float>(added[at]) == -infinity : (flags[at] != 0) == (BOOL_MASK == 2);
  }
  bool hides_all(int64_t first_s, int64_t end_s, int64_t first_l, int64_t end_l) const {
    for (int64_t s = first_s; s < end_s; ++s) {
      for (int64_t l = first_l; l < end_l; ++l) {
        if (!hides(s, l)) return false;
      }
      if (row == 0) break;
    }
    return true;
  }
};

/// The largest of the scores of query s against `count` keys from `first`, times `factor`. Scores that are hidden become -inf; a mask is
/// added, and the factor then multiplied in: `factor` becomes 1. The last vector is filled up with -inf.
inline float mask_scores(float* scores, int64_t count, int64_t s, int64_t first, float& factor, const Mask& mask) {
  ak::Floats<W> most[2] = {ak::splat<W>(-infinity), ak::splat<W>(-infinity)};
  ak::Ints<W> lane;
  for (int i = 0; i < W; ++i) lane[i] = i;
  const int64_t reach = CAUSAL ? s + 1 - first : count;
  const int64_t seen = reach < 0 ? 0 : least(count, reach);  // the keys after these are not there or in the future
  const bool masked = HAS_MASK || BOOL_MASK || !(factor > 0);
  int64_t j = 0;
  if (!masked) {
    for (; j + 2 * W <= seen; j += 2 * W) {
      most[0] = ak::larger<W>(ak::load<W>(scores + j), most[0]);
      most[1] = ak::larger<W>(ak::load<W>(scores + j + W), most[1]);
    }
  }
  for (; j < count; j += W) {
    ak::Floats<W> score = ak::load<W>(scores + j);
    if (masked) score *= factor;
    if (HAS_MASK || BOOL_MASK) score += mask.read(s, first + j, least(W, count - j));
    if (j + W > seen) score = lane < static_cast<int32_t>(seen - j < 0 ? 0 : seen - j) ? score : ak::Floats<W>{} - infinity;
    ak::store<W>(scores + j, score);
    most[0] = ak::larger<W>(score, most[0]);
  }
  if (masked) factor = 1.0f;
  return ak::max_lanes<W>(ak::larger<W>(most[0], most[1])) * factor;
}

/// Replace scores by exp(score * factor - maximum) and return their sum.
inline float exponentials(float* scores, int64_t count, float factor, float maximum) {
  ak::Floats<W> sum[2] = {};
  int64_t j = 0;
  for (; j + W < count; j += 2 * W) {
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      const auto value = ak::exp<W, EXP>(ak::load<W>(scores + j + u * W) * factor - maximum);
      ak::store<W>(scores + j + u * W, value);
      sum[u] += value;
    }
  }
  if (j < count) {
    const auto value = ak::exp<W, EXP>(ak::load<W>(scores + j) * factor - maximum);
    ak::store<W>(scores + j, value);
    sum[0] += value;
  }
  return ak::sum_lanes<W>(sum[0] + sum[1]);
}

/// result (rows x width) += weights (rows x depth) times v (depth rows), `columns` vectors at a time; what is left of the width in halves.
template <int columns>
inline void add_values(const float* weights, int64_t weights_row, int64_t rows, const float* v, int64_t v_row, int64_t depth, float* result,
                       int64_t result_row, int64_t width, bool resume) {
  int64_t d = 0;
  for (; d + columns * 16 <= width; d += columns * 16) {
    ak::multiply_strip<OUT_ROWS * OUT_COLS / columns, columns * 16 / W>(weights, weights_row, rows, v + d, v_row, depth, result + d,
                                                                        result_row, resume, [](int64_t, int64_t) {});
  }
  if constexpr (columns > 1) {
    if (d < width) add_values<columns / 2>(weights, weights_row, rows, v + d, v_row, depth, result + d, result_row, width - d, resume);
  }
}

void attention(int64_t block, int64_t, void* scratch, const T* q, const T* k, const T* v, const T* mask, const T_bool_mask* bool_mask,
               T* out, const float* keys, const float* values, int64_t packed, int64_t H, int64_t G, int64_t S, int64_t L, int64_t D,
               float scale, int64_t q_b, int64_t q_h, int64_t q_s, int64_t q_d, int64_t k_b, int64_t k_g, int64_t k_l, int64_t k_d,
               int64_t v_b, int64_t v_g, int64_t v_l, int64_t v_d, int64_t out_b, int64_t out_h, int64_t out_s, int64_t out_d,
               int64_t mask_b, int64_t mask_h, int64_t mask_s, int64_t mask_l) {
  const int64_t blocks = (S + BLOCK_S - 1) / BLOCK_S;
  const int64_t turn = block % blocks, head = block / blocks;
  const int64_t first_s = (LONGEST ? blocks - 1 - turn : turn) * BLOCK_S, rows = least(BLOCK_S, S - first_s);
  const int64_t b = head / H, h = head % H, g = h / (H / G);
  const float factor = SCALE == 1 ? scale : SCALE == 2 ? 1.0f / scale : 1.0f / __builtin_sqrtf(static_cast<float>(D));

  const int64_t score_row = BLOCK_L + 16, width = align16(D), result_row = width + 16;
  float* queries = static_cast<float*>(scratch);
  float* scores = queries + BLOCK_S * (D + 16);
  float* result = scores + GROUP * score_row;
  float* maximum = result + BLOCK_S * result_row;
  float* sum = maximum + BLOCK_S;
  float* own_keys = sum + BLOCK_S;
  float* own_values = own_keys + BLOCK_L * D;

  const ak::RowBlock of_q = ak::float_rows<false>(queries, D + 16, q + b * q_b + h * q_h + first_s * q_s, q_s, q_d, rows, D);
  const T* head_k = k + b * k_b + g * k_g;
  const T* head_v = v + b * v_b + g * v_g;
  const int64_t panels = (L + panel - 1) / panel;
  const float* head_keys = keys + (b * G + g) * panels * panel * D;
  const float* head_values = values + (b * G + g) * L * width;
  const Mask seen = {mask + b * mask_b + h * mask_h, bool_mask + b * mask_b + h * mask_h, mask_s, mask_l};

  for (int64_t r = 0; r < rows; ++r) maximum[r] = -infinity, sum[r] = 0.0f;
  bool started = false;
  const int64_t end_l = CAUSAL ? least(L, first_s + rows) : L;
  for (int64_t start = 0; start < end_l; start += BLOCK_L) {
    int64_t first = start, end = least(start + BLOCK_L, end_l);
    if (HAS_MASK || BOOL_MASK) {
      while (first < end && seen.hides_all(first_s, first_s + rows, first, least(first + panel, end))) first += panel;
      while (first < end && seen.hides_all(first_s, first_s + rows, (end - 1) / panel * panel, end)) end = (end - 1) / panel * panel;
      if (first >= end) continue;
    }
    const int64_t count = end - first;

    const float* block_keys = head_keys + first * D;
    const float* block_values = head_values + first * width;
    const bool in_place = __is_same(T, float) && !packed && D == width && v_d == 1 && !COPY_V;
    if (!packed) {
      block_keys = own_keys;
      block_values = own_values;
      for (int64_t l = 0; l < count; l += panel) {
        ak::pack_panel(own_keys + l * D, panel, panel, head_k + (first + l) * k_l, k_l, k_d, least(panel, count - l), D);
      }
      if (in_place) {
        block_values = reinterpret_cast<const float*>(head_v + first * v_l);
      } else {
        ak::copy_rows(own_values, width, head_v + first * v_l, v_l, v_d, count, D, width);
      }
    }

    for (int64_t top = 0; top < rows; top += GROUP) {
      const int64_t group = least(GROUP, rows - top);
      float* so_far = result + top * result_row;
      for (int64_t l = 0; l < count; l += panel) {
        ak::multiply_strip<KEY_ROWS, key_vectors>(of_q.data + top * of_q.row, of_q.row, group, block_keys + l * D, panel, D, scores + l,
                                                  score_row, false, [](int64_t, int64_t) {});
      }
      for (int64_t r = 0; r < group; ++r) {
        float* row = scores + r * score_row;
        float times = factor;
        const float most = mask_scores(row, count, first_s + top + r, first, times, seen);
        float& so_far_most = maximum[top + r];
        const float next = most > so_far_most ? most : so_far_most;
        const float origin = next == -infinity ? 0.0f : next;  // nothing seen yet: every exponential is 0
        const float kept = ak::exp<W, EXP>(ak::splat<W>(so_far_most - origin))[0];
        sum[top + r] = sum[top + r] * kept + exponentials(row, count, times, origin);
        so_far_most = next;
        if (started && kept != 1.0f) {
          for (int64_t d = 0; d < width; d += W) ak::store<W>(so_far + r * result_row + d, ak::load<W>(so_far + r * result_row + d) * kept);
        }
      }
      add_values<OUT_COLS>(scores, score_row, group, block_values, in_place ? v_l : width, count, so_far, result_row, width, started);
    }
    started = true;
  }

  for (int64_t r = 0; r < rows; ++r) {
    T* to = out + b * out_b + h * out_h + (first_s + r) * out_s;
    const float* from = result + r * result_row;
    const bool blind = sum[r] == 0.0f;
    const float scaled = blind ? 0.0f : 1.0f / sum[r];
    const float nothing = SAFE || L == 0 ? 0.0f : __builtin_nanf("");
    int64_t d = 0;
    if (out_d == 1 && !blind) {
      for (; d + W <= D; d += W) ak::store<W>(to + d, ak::load<W>(from + d) * scaled);
    }
    for (; d < D; ++d) to[d * out_d] = static_cast<T>(blind ? nothing : from[d] * scaled);
  }
}
AK_KERNEL(attention)
