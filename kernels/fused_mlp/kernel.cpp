/*autokernel
family  = "fused_mlp"
backend = "cpu"

[tune]
BLOCK_M     = { values = [16, 32, 48, 64, 96, 128, 256], default = 128, tier = 1 }  # rows of x that a block holds in L2
UP_PANELS   = { values = [1, 2, 3, 4, 6, 8], default = 2, tier = 1 }        # panels of gate and up in a block
DOWN_PANELS = { values = [1, 2, 3, 4, 6, 8], default = 2, tier = 1 }        # panels of down in a block
UP_COLS     = { values = [1, 2, 3], default = 2, tier = 3 }                 # a panel is 16 * UP_COLS columns of gate, and as many of up
UP_ROWS     = { values = [1, 2, 4, 6, 8, 14], default = 6, tier = 3 }       # rows of the micro-tile, fewer where registers run out
DOWN_COLS   = { values = [1, 2, 3, 4, 6], default = 3, tier = 3 }
DOWN_ROWS   = { values = [1, 2, 4, 6, 8, 9, 12, 14], default = 8, tier = 3 }
BLOCK_K     = { values = [128, 256, 512, 1024, 4096], default = 1024, tier = 2 }
PACK        = { values = [0, 1], default = 1, tier = 2 }                    # 1: pack the weights once, beforehand; 0: in every block
COPY_X      = { values = [0, 1], default = 0, tier = 2 }                    # 1: copy the block of x, which breaks unlucky row pitches
AHEAD       = { values = [0, 4, 8, 16, 32], default = 0, tier = 4 }         # rows of a panel to prefetch ahead
N_FIRST     = { values = [0, 1], default = 0, tier = 4 }                    # consecutive blocks go along 0: M, 1: N
require     = ["UP_ROWS * UP_COLS * 2 <= 28", "DOWN_ROWS * DOWN_COLS <= 28"]

[scratch.packed_up]
dtype = "T"
shape = ["PACK ? align(H, 16*UP_COLS) * 2 * D : 1"]
[scratch.packed_down]
dtype = "T"
shape = ["PACK ? align(D, 16*DOWN_COLS) * H : 1"]
[scratch.hidden]
dtype = "float32"
shape = ["M * (align(H, 16) + 16)"]
[scratch.block]
dtype = "float32"
shape = ["BLOCK_M * (max(UP_PANELS*32*UP_COLS, DOWN_PANELS*16*DOWN_COLS) + min(D, BLOCK_K) + 16) + (PACK ? 0 : BLOCK_K * max(32*UP_COLS, 16*DOWN_COLS))"]
per_worker = true

[[prepare]]
kernel = "pack_up"
grid   = ["cdiv(H, 16*UP_COLS)"]
args   = ["gate", "up", "packed_up", "H", "D", "gate.stride(0)", "gate.stride(1)", "up.stride(0)", "up.stride(1)"]
when   = "PACK"
[[prepare]]
kernel = "pack_down"
grid   = ["cdiv(D, 16*DOWN_COLS)"]
args   = ["down", "packed_down", "D", "H", "down.stride(0)", "down.stride(1)"]
when   = "PACK"

[[launch]]
kernel = "gated"
grid   = ["cdiv(M, BLOCK_M)", "cdiv(H, UP_PANELS*16*UP_COLS)"]
args   = ["x", "gate", "up", "packed_up", "hidden", "M", "H", "D", "x.stride(0)", "x.stride(1)",
          "gate.stride(0)", "gate.stride(1)", "up.stride(0)", "up.stride(1)"]
[[launch]]
kernel = "project"
grid   = ["cdiv(M, BLOCK_M)", "cdiv(D, DOWN_PANELS*16*DOWN_COLS)"]
args   = ["hidden", "down", "packed_down", "out", "M", "D", "H", "down.stride(0)", "down.stride(1)", "out.stride(0)", "out.stride(1)"]

[[recipe]]
name = "narrow blocks for few rows"
tier = 1
when = "M <= 16"
gain = "up to the bandwidth of memory"
text = """
With few rows each launch is one pass over its weights: one panel a block so that every worker has several, PACK = 1 so that the pass is \
sequential, AHEAD = 8 or 16."""
[[recipe]]
name = "keep x in L2"
tier = 2
when = "M >= 256"
gain = "5 %"
text = """
A block of x (BLOCK_M * min(D, BLOCK_K) floats) should fit into half of L2, a panel into a quarter; then raise the panels of a block \
until x is read from L3 seldom."""
[[recipe]]
name = "shape of the micro-tiles"
tier = 3
when = "1"
gain = "10 %"
text = """
Keep 20 to 28 accumulators: 2 * UP_COLS * UP_ROWS and DOWN_COLS * DOWN_ROWS. Rows that do not divide M run in slower tiles of 4, 2 and \
1."""
[[recipe]]
name = "one launch for few rows"
tier = 6
when = "M * H * 4 <= 1048576"
gain = "a launch, and the way of the hidden values through L3"
text = """
Where the hidden block fits into L2, a worker can compute a slice of H and at once its part of the down projection; the parts of D must \
then be added in a fixed order."""
[[recipe]]
name = "keep the hidden values in 16 bits"
tier = 5
when = "sizeof(T) == 2"
gain = "5 %"
text = """
Hidden values are kept in float. PyTorch rounds them to the storage type, so half the traffic is open to an editor who watches the error \
budget."""
*/
#include <autokernel/activation.h>
#include <autokernel/gemm.h>

// Two products. The first reads panels in which columns of gate and of up lie side by side, so that one micro-tile holds both factors of
// its hidden values; the second is a plain product with down. In each, a block is BLOCK_M rows by some panels, BLOCK_K deep at a time.

constexpr int W = ak::native_lanes;
constexpr int half = 16 * UP_COLS;  // columns of gate, and of up, in a panel
constexpr int up_width = 2 * half;
constexpr int up_vectors = up_width / W;
constexpr int down_width = 16 * DOWN_COLS;
constexpr int down_vectors = down_width / W;

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t hidden_row(int64_t H) { return (H + 15) / 16 * 16 + 16; }

/// The columns [first, first + half) of gate and up, `depth` deep, as one panel.
template <class P>
inline void pack_pair(P* panel, const T* gate, const T* up, int64_t columns, int64_t depth, int64_t gate_h, int64_t gate_d, int64_t up_h,
                      int64_t up_d) {
  ak::pack_panel(panel, up_width, half, gate, gate_h, gate_d, columns, depth);
  ak::pack_panel(panel + half, up_width, half, up, up_h, up_d, columns, depth);
}

void pack_up(int64_t block, int64_t, void*, const T* gate, const T* up, T* packed, int64_t H, int64_t D, int64_t gate_h, int64_t gate_d,
             int64_t up_h, int64_t up_d) {
  const int64_t first = block * half;
  pack_pair(packed + block * up_width * D, gate + first * gate_h, up + first * up_h, least(half, H - first), D, gate_h, gate_d, up_h, up_d);
}
AK_KERNEL(pack_up)

void pack_down(int64_t block, int64_t, void*, const T* down, T* packed, int64_t D, int64_t H, int64_t down_d, int64_t down_h) {
  const int64_t first = block * down_width;
  ak::pack_panel(packed + first * H, down_width, down_width, down + first * down_d, down_d, down_h, least(down_width, D - first), H);
}
AK_KERNEL(pack_down)

/// Where a block lies in a grid of blocks_m x blocks_n.
struct Place {
  int64_t m, n;
  Place(int64_t block, int64_t blocks_m, int64_t blocks_n)
      : m(N_FIRST ? block / blocks_n : block % blocks_m), n(N_FIRST ? block % blocks_n : block / blocks_m) {}
};

void gated(int64_t block, int64_t, void* scratch, const T* x, const T* gate, const T* up, const T* packed, float* hidden, int64_t M,
           int64_t H, int64_t D, int64_t x_m, int64_t x_d, int64_t gate_h, int64_t gate_d, int64_t up_h, int64_t up_d) {
  constexpr int64_t block_columns = int64_t{UP_PANELS} * half, sums_row = int64_t{UP_PANELS} * up_width;
  const Place place(block, (M + BLOCK_M - 1) / BLOCK_M, (H + block_columns - 1) / block_columns);
  const int64_t first_m = place.m * BLOCK_M, first_h = place.n * block_columns;
  const int64_t count_m = least(BLOCK_M, M - first_m), count_h = least(block_columns, H - first_h);
  const int64_t most_d = least(D, BLOCK_K);
  float* sums = static_cast<float*>(scratch);
  float* copy = sums + BLOCK_M * sums_row;
  float* panel = copy + BLOCK_M * (most_d + 16);
  float* to = hidden + first_m * hidden_row(H) + first_h;

  int64_t d = 0;
  do {
    const int64_t depth = least(BLOCK_K, D - d);
    const bool last = d + depth == D;
    const ak::RowBlock of_x = ak::float_rows<COPY_X>(copy, most_d + 16, x + first_m * x_m + d * x_d, x_m, x_d, count_m, depth);
    for (int64_t h = 0; h < count_h; h += half) {
      float* pair = sums + 2 * h;
      const auto activate = [&](int64_t i, int64_t n) {
        if (!last) return;
        for (int64_t r = i; r < i + n; ++r) {
          for (int64_t c = 0; c < half && h + c < count_h; c += W) {  // the row of hidden has room for a whole last vector
            const float* of_gate = pair + r * sums_row + c;
            const auto value = ak::activate<ACTIVATION, W>(ak::load<W>(of_gate)) * ak::load<W>(of_gate + half);
            ak::store<W>(to + r * hidden_row(H) + h + c, value);
          }
        }
      };
      if (PACK) {
        const T* from = packed + (first_h + h) * 2 * D + d * up_width;
        ak::multiply_strip<UP_ROWS, up_vectors, AHEAD>(of_x.data, of_x.row, count_m, from, up_width, depth, pair, sums_row, d > 0,
                                                       activate);
      } else {
        const int64_t row = first_h + h;
        pack_pair(panel, gate + row * gate_h + d * gate_d, up + row * up_h + d * up_d, least(half, count_h - h), depth, gate_h, gate_d,
                  up_h, up_d);
        ak::multiply_strip<UP_ROWS, up_vectors, AHEAD>(of_x.data, of_x.row, count_m, panel, up_width, depth, pair, sums_row, d > 0,
                                                       activate);
      }
    }
    d += depth;
  } while (d < D);
}
AK_KERNEL(gated)

void project(int64_t block, int64_t, void* scratch, const float* hidden, const T* down, const T* packed, T* out, int64_t M, int64_t D,
             int64_t H, int64_t down_d, int64_t down_h, int64_t out_m, int64_t out_d) {
  constexpr int64_t block_columns = int64_t{DOWN_PANELS} * down_width;
  const Place place(block, (M + BLOCK_M - 1) / BLOCK_M, (D + block_columns - 1) / block_columns);
  const int64_t first_m = place.m * BLOCK_M, first_d = place.n * block_columns;
  const int64_t count_m = least(BLOCK_M, M - first_m), count_d = least(block_columns, D - first_d);
  float* sums = static_cast<float*>(scratch);
  float* panel = sums + BLOCK_M * block_columns;

  int64_t h = 0;
  do {
    const int64_t depth = least(BLOCK_K, H - h);
    const bool last = h + depth == H;
    const float* of_hidden = hidden + first_m * hidden_row(H) + h;
    for (int64_t j = 0; j < count_d; j += down_width) {
      const int64_t columns = least(down_width, count_d - j);
      const auto store = [&](int64_t i, int64_t n) {
        if (!last) return;
        for (int64_t r = i; r < i + n; ++r) {
          T* to = out + (first_m + r) * out_m + (first_d + j) * out_d;
          const float* from = sums + r * block_columns + j;
          int64_t c = 0;
          if (out_d == 1) {
            for (; c + W <= columns; c += W) ak::store<W>(to + c, ak::load<W>(from + c));
          }
          for (; c < columns; ++c) to[c * out_d] = static_cast<T>(from[c]);
        }
      };
      if (PACK) {
        const T* from = packed + (first_d + j) * H + h * down_width;
        ak::multiply_strip<DOWN_ROWS, down_vectors, AHEAD>(of_hidden, hidden_row(H), count_m, from, down_width, depth, sums + j,
                                                           block_columns, h > 0, store);
      } else {
        ak::pack_panel(panel, down_width, down_width, down + (first_d + j) * down_d + h * down_h, down_d, down_h, columns, depth);
        ak::multiply_strip<DOWN_ROWS, down_vectors, AHEAD>(of_hidden, hidden_row(H), count_m, panel, down_width, depth, sums + j,
                                                           block_columns, h > 0, store);
      }
    }
    h += depth;
  } while (h < H);
}
AK_KERNEL(project)
