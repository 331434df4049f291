/*autokernel
family  = "matmul"
backend = "cpu"

[tune]
BLOCK_M  = { values = [16, 32, 48, 64, 96, 128, 256, 512], default = 128, tier = 1 }  # rows of x that a block holds in L2
PANELS   = { values = [1, 2, 3, 4, 6, 8, 16], default = 2, tier = 1 }     # panels of the weight in a block
COLS     = { values = [1, 2, 3, 4, 6], default = 3, tier = 3 }            # a panel is 16 * COLS columns
ROWS     = { values = [1, 2, 4, 6, 8, 9, 12, 14], default = 8, tier = 3 } # rows of the micro-tile, fewer where registers run out
BLOCK_K  = { values = [128, 256, 512, 1024, 4096], default = 1024, tier = 2 }
PACK     = { values = [0, 1], default = 1, tier = 2 }                     # 1: pack the weight once, beforehand; 0: in every block
COPY_X   = { values = [0, 1], default = 0, tier = 2 }                     # 1: copy the block of x, which breaks unlucky row pitches
AHEAD    = { values = [0, 4, 8, 16, 32], default = 0, tier = 4 }          # rows of a panel to prefetch ahead
N_FIRST  = { values = [0, 1], default = 0, tier = 4 }                     # consecutive blocks go along 0: M, 1: N
require  = ["ROWS * COLS <= 28"]

[scratch.packed]
dtype = "T"
shape = ["PACK ? align(N, 16*COLS) * K : 1"]
[scratch.block]
dtype = "float32"
shape = ["BLOCK_M * PANELS*16*COLS + BLOCK_M * (min(K, BLOCK_K) + 16) + (PACK ? 0 : PANELS*16*COLS * min(K, BLOCK_K))"]
per_worker = true

[[prepare]]
kernel = "pack_weight"
grid   = ["cdiv(N, 16*COLS)"]
args   = ["weight", "packed", "N", "K", "weight.stride(0)", "weight.stride(1)"]
when   = "PACK"

[[launch]]
kernel = "matmul"
grid   = ["cdiv(M, BLOCK_M)", "cdiv(N, PANELS*16*COLS)"]
args   = ["x", "weight", "packed", "bias", "residual", "out", "M", "N", "K", "x.stride(0)", "x.stride(1)", "weight.stride(0)",
          "weight.stride(1)", "HAS_BIAS ? bias.stride(0) : 0", "HAS_RESIDUAL ? residual.stride(0) : 0",
          "HAS_RESIDUAL ? residual.stride(1) : 0", "out.stride(0)", "out.stride(1)"]

[[recipe]]
name = "narrow blocks for few rows"
tier = 1
when = "M <= 16"
gain = "up to the bandwidth of memory"
text = """
With few rows the product is one pass over the weight: PANELS = 1 or 2 so that every worker has several blocks, PACK = 1 so that the \
pass is sequential, AHEAD = 8 or 16."""
[[recipe]]
name = "square blocks for many rows"
tier = 1
when = "M >= 512"
gain = "5 %"
text = """
A block of x (BLOCK_M * K floats) should fit into half of L2, a panel (16 * COLS * BLOCK_K floats) into a quarter; shrink BLOCK_K before \
BLOCK_M."""
[[recipe]]
name = "break the row pitch"
tier = 2
when = "K % 1024 == 0"
gain = "up to 20 %"
text = "Rows of x that are a multiple of 4 KB apart fall into the same sets of L1: COPY_X = 1 copies the block with 16 floats of padding."
[[recipe]]
name = "shape of the micro-tile"
tier = 3
when = "1"
gain = "10 %"
text = """
Keep 20 to 28 accumulators: 8x3, 12x2, 14x2, 6x4. Choose ROWS that divides M and 16 * COLS that divides N: rows left over run in slower \
tiles of 4, 2 and 1."""
[[recipe]]
name = "keep the weight in 16 bits"
tier = 5
when = "sizeof(T) == 2"
gain = "2x where memory limits"
text = """
The panel is packed in the storage type and widened in the micro-kernel; where dot-product instructions on bfloat16 run at full rate, \
pack pairs of k and use them."""
[[recipe]]
name = "split the epilogue"
tier = 6
when = "ACTIVATION == 1"
gain = "2 %"
text = """
The activation runs on each finished tile while it is in L1. Where its cost shows, use a lower degree of exp, or a fit of the whole \
activation on the range that matters."""
*/
#include <autokernel/activation.h>
#include <autokernel/gemm.h>

// Each block computes BLOCK_M rows by PANELS panels of the result, BLOCK_K deep at a time, one micro-tile after the other: x is read by
// broadcast, a panel of the weight by whole vectors. Sums go through a block of float in L2 between depths; the last depth finishes a tile.

constexpr int W = ak::native_lanes;
constexpr int width = 16 * COLS;  // of a panel
constexpr int vectors = width / W;
constexpr int64_t block_width = int64_t{PANELS} * width;

void pack_weight(int64_t block, int64_t, void*, const T* weight, T* packed, int64_t N, int64_t K, int64_t w_n, int64_t w_k) {
  const int64_t first = block * width;
  ak::pack_panel(packed + first * K, width, width, weight + first * w_n, w_n, w_k, N - first < width ? N - first : width, K);
}
AK_KERNEL(pack_weight)

struct Epilogue {
  const T* bias;
  const T* residual;
  T* out;
  int64_t bias_n, residual_m, residual_n, out_m, out_n;

  /// Columns n to n + count of row m, count <= W, from the sums.
  void finish(const float* sums, int64_t m, int64_t n, int64_t count) const {
    ak::Floats<W> value = ak::load<W>(sums);
    const bool plain = count == W && out_n == 1;
    if (HAS_BIAS) value += read(bias + n * bias_n, bias_n, count);
    value = ak::activate<ACTIVATION, W>(value);
    if (HAS_RESIDUAL) value += read(residual + m * residual_m + n * residual_n, residual_n, count);
    T* to = out + m * out_m + n * out_n;
    if (plain) {
      ak::store<W>(to, value);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i * out_n] = static_cast<T>(value[i]);
    }
  }

  static ak::Floats<W> read(const T* from, int64_t step, int64_t count) {
    if (count == W && step == 1) return ak::load<W>(from);
    ak::Floats<W> value = {};
    for (int64_t i = 0; i < count; ++i) value[i] = static_cast<float>(from[i * step]);
    return value;
  }
};

void matmul(int64_t block, int64_t, void* scratch, const T* x, const T* weight, const T* packed, const T* bias, const T* residual, T* out,
            int64_t M, int64_t N, int64_t K, int64_t x_m, int64_t x_k, int64_t w_n, int64_t w_k, int64_t bias_n, int64_t residual_m,
            int64_t residual_n, int64_t out_m, int64_t out_n) {
  const int64_t blocks_m = (M + BLOCK_M - 1) / BLOCK_M, blocks_n = (N + block_width - 1) / block_width;
  const int64_t first_m = (N_FIRST ? block / blocks_n : block % blocks_m) * BLOCK_M;
  const int64_t first_n = (N_FIRST ? block % blocks_n : block / blocks_m) * block_width;
  const int64_t count_m = M - first_m < BLOCK_M ? M - first_m : BLOCK_M;
  const int64_t count_n = N - first_n < block_width ? N - first_n : block_width;
  const int64_t most_k = K < BLOCK_K ? K : BLOCK_K;

  float* sums = static_cast<float*>(scratch);
  float* copy = sums + BLOCK_M * block_width;
  float* panels = copy + BLOCK_M * (most_k + 16);
  const Epilogue epilogue = {bias, residual, out, bias_n, residual_m, residual_n, out_m, out_n};

  int64_t k = 0;
  do {
    const int64_t depth = K - k < BLOCK_K ? K - k : BLOCK_K;
    const bool last = k + depth == K;
    const ak::RowBlock of_x = ak::float_rows<COPY_X>(copy, most_k + 16, x + first_m * x_m + k * x_k, x_m, x_k, count_m, depth);
    for (int64_t j = 0; j < count_n; j += width) {
      const int64_t columns = count_n - j < width ? count_n - j : width;
      const auto finish = [&](int64_t i, int64_t n) {
        if (!last) return;
        for (int64_t r = i; r < i + n; ++r) {
          for (int64_t c = 0; c < columns; c += W) {
            epilogue.finish(sums + r * block_width + j + c, first_m + r, first_n + j + c, columns - c < W ? columns - c : W);
          }
        }
      };
      if (PACK) {
        ak::multiply_strip<ROWS, vectors, AHEAD>(of_x.data, of_x.row, count_m, packed + (first_n + j) * K + k * width, width, depth,
                                                 sums + j, block_width, k > 0, finish);
      } else {
        float* panel = panels + j * most_k;
        ak::pack_panel(panel, width, width, weight + (first_n + j) * w_n + k * w_k, w_n, w_k, columns, depth);
        ak::multiply_strip<ROWS, vectors, AHEAD>(of_x.data, of_x.row, count_m, panel, width, depth, sums + j, block_width, k > 0, finish);
      }
    }
    k += depth;
  } while (k < K);
}
AK_KERNEL(matmul)
