// Building blocks of matrix products on the CPU: packing into panels, and the micro-kernel that keeps its result in registers.
#pragma once
#include <autokernel/cpu.h>

namespace ak {

/// Vector registers that hold results; the rest are for one row of a panel and a broadcast.
inline constexpr int result_registers = native_lanes == 16 ? 28 : 12;

/// Vectors of a panel `vectors` wide that a micro-tile takes at once: all of them with 32 registers, two with 16.
constexpr int tile_vectors(int vectors) { return native_lanes == 16 || vectors % 2 != 0 ? vectors : 2; }

/// Rows of a micro-tile: as many as asked for, or as fit into the registers.
constexpr int tile_rows(int wanted, int vectors) {
  const int fitting = result_registers / vectors;
  return wanted <= fitting ? wanted : fitting < 1 ? 1 : fitting;
}

// ---- packing -------------------------------------------------------------------------------------------------------

namespace detail {

template <int W, class I>
struct Halves;
template <int W, int... i>
struct Halves<W, Sequence<int, i...>> {
  static Floats<W> low(const Floats<W>& a, const Floats<W>& b) { return __builtin_shufflevector(a, b, (i / 2 + (i % 2) * W)...); }
  static Floats<W> high(const Floats<W>& a, const Floats<W>& b) { return __builtin_shufflevector(a, b, (W / 2 + i / 2 + (i % 2) * W)...); }
};

}  // namespace detail

/// Transpose W vectors of W lanes: log2 W rounds, each interleaving vector i with vector i + W/2.
template <int W>
inline void transpose(Floats<W> (&v)[W]) {
  using Interleave = detail::Halves<W, detail::Indices<W>>;
#pragma GCC unroll 4
  for (int round = 1; round < W; round *= 2) {
    Floats<W> next[W];
#pragma GCC unroll 16
    for (int i = 0; i < W / 2; ++i) {
      next[2 * i] = Interleave::low(v[i], v[i + W / 2]);
      next[2 * i + 1] = Interleave::high(v[i], v[i + W / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) v[i] = next[i];
  }
}

/// Pack a panel: `panel[k * panel_row + j] = source[j * row + k * column]` for j < rows and k < depth, 0 for rows <= j < width.
/// `width` is a multiple of 16.
template <class P, class S>
[[gnu::noinline]] inline void pack_panel(P* panel, int64_t panel_row, int64_t width, const S* source, int64_t row, int64_t column,
                                         int64_t rows, int64_t depth) {
  constexpr int W = native_lanes;
  for (int64_t j = 0; j < width; j += W) {
    const int64_t here = rows - j < W ? rows - j : W;
    int64_t k = 0;
    if (here == W && row == 1) {
      for (; k < depth; ++k) store<W>(panel + k * panel_row + j, load<W>(source + j + k * column));
    } else if (here == W && column == 1) {
      for (; k + W <= depth; k += W) {
        Floats<W> v[W];
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) v[i] = load<W>(source + (j + i) * row + k);
        transpose<W>(v);
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) store<W>(panel + (k + i) * panel_row + j, v[i]);
      }
    }
    for (; k < depth; ++k) {
#pragma GCC unroll 1
      for (int64_t i = 0; i < W; ++i) {
        panel[k * panel_row + j + i] = i < here ? static_cast<P>(static_cast<float>(source[(j + i) * row + k * column])) : P(0.0f);
      }
    }
  }
}

/// Copy a block of rows as float: `to[i * to_row + k] = from[i * row + k * column]`, 0 for depth <= k < width.
template <class S>
[[gnu::noinline]] inline void copy_rows(float* to, int64_t to_row, const S* from, int64_t row, int64_t column, int64_t rows, int64_t depth,
                                        int64_t width) {
  constexpr int W = native_lanes;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t k = 0;
    if (column == 1) {
      for (; k + W <= depth; k += W) store<W>(to + i * to_row + k, load<W>(from + i * row + k));
    }
    for (; k < depth; ++k) to[i * to_row + k] = static_cast<float>(from[i * row + k * column]);
    for (; k < width; ++k) to[i * to_row + k] = 0.0f;
  }
}

/// A block of a matrix as rows of float.
struct RowBlock {
  const float* data;
  int64_t row;
};

/// The block where it lies if it is float with columns side by side and `copy` is not asked for, else a copy in `space`.
template <bool copy, class S>
inline RowBlock float_rows(float* space, int64_t space_row, const S* from, int64_t row, int64_t column, int64_t rows, int64_t depth) {
  if constexpr (__is_same(S, float) && !copy) {
    if (column == 1) return {from, row};
  }
  copy_rows(space, space_row, from, row, column, rows, depth, depth);
  return {space, space_row};
}

// ---- micro-kernel --------------------------------------------------------------------------------------------------

/// c (rows x vectors * native_lanes) = x (rows x depth) times b (depth rows, `b_row` apart), added to c where `resume`.
/// `ahead` > 0 prefetches b that many of its rows ahead. The sums live in registers, so the loops over them must be unrolled, and there is
/// nothing else in this function that would take registers from them. A tile with registers to spare keeps several sums of each element:
/// they hide the latency of additions, and are more accurate.
template <int rows, int vectors, int ahead, class B>
[[gnu::noinline]] inline void multiply_tile(const float* x, int64_t x_row, const B* b, int64_t b_row, int64_t depth, float* c,
                                            int64_t c_row, bool resume) {
  constexpr int W = native_lanes;
  constexpr int sums = rows * vectors * 4 <= result_registers ? 4 : rows * vectors * 2 <= result_registers ? 2 : 1;
  Floats<W> sum[sums][rows][vectors] = {};
  const auto step = [&](int s, int64_t k) __attribute__((always_inline)) {
    Floats<W> line[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      line[v] = load<W>(b + v * W);
      if constexpr (ahead > 0) {
        if ((v * W * sizeof(B)) % 64 == 0) __builtin_prefetch(b + ahead * b_row + v * W);
      }
    }
#pragma GCC unroll 32
    for (int r = 0; r < rows; ++r) {
      const Floats<W> value = splat<W>(x[r * x_row + k]);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sum[s][r][v] += value * line[v];
    }
    b += b_row;
  };
  int64_t k = 0;
  for (; k + sums <= depth; k += sums) {
#pragma GCC unroll 4
    for (int s = 0; s < sums; ++s) step(s, k + s);
  }
  if constexpr (sums > 1) {
    for (; k < depth; ++k) step(0, k);
#pragma GCC unroll 4
    for (int gap = 1; gap < sums; gap *= 2) {
#pragma GCC unroll 4
      for (int s = 0; s + gap < sums; s += 2 * gap) {
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
          for (int v = 0; v < vectors; ++v) sum[s][r][v] += sum[s + gap][r][v];
        }
      }
    }
  }
  if (resume) {
    const float* so_far = c;
#pragma GCC unroll 32
    for (int r = 0; r < rows; ++r, so_far += c_row) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sum[0][r][v] += load<W>(so_far + v * W);
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < rows; ++r, c += c_row) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) store<W>(c + v * W, sum[0][r][v]);
  }
}

/// Depth up to which a sum stays in registers before it is added to its result in memory: one long chain of float32 additions would be less
/// accurate than the library's. A longer depth is cut into equal parts.
inline constexpr int64_t longest_chain = 128;

/// A strip of `count` rows of x times one panel, in micro-tiles of `wanted` rows or what the registers hold; `done(first, n)` after each n
/// rows. What is left over is taken in powers of two.
template <int wanted, int vectors, int ahead = 0, class B, class Done>
inline void multiply_strip(const float* x, int64_t x_row, int64_t count, const B* b, int64_t b_row, int64_t depth, float* c, int64_t c_row,
                           bool resume, Done done) {
  constexpr int part = tile_vectors(vectors), rows = tile_rows(wanted, part);
  const int64_t chains = depth <= longest_chain ? 1 : (depth + longest_chain - 1) / longest_chain;
  const int64_t chain = (depth + chains - 1) / chains;
  int64_t i = 0;
  for (; i + rows <= count; i += rows) {
    for (int64_t j = 0; j < vectors * native_lanes; j += part * native_lanes) {
      int64_t k = 0;
      do {
        const int64_t links = depth - k < chain ? depth - k : chain;
        multiply_tile<rows, part, ahead>(x + i * x_row + k, x_row, b + k * b_row + j, b_row, links, c + i * c_row + j, c_row,
                                         resume || k > 0);
        k += links;
      } while (k < depth);
    }
    done(i, int64_t{rows});
  }
  if constexpr (rows > 1) {
    constexpr int fewer = rows > 8 ? 8 : rows > 4 ? 4 : rows > 2 ? 2 : 1;
    if (i < count) {
      multiply_strip<fewer, vectors, ahead>(x + i * x_row, x_row, count - i, b, b_row, depth, c + i * c_row, c_row, resume,
                                            [&](int64_t first, int64_t n) { done(i + first, n); });
    }
  }
}

}  // namespace ak
