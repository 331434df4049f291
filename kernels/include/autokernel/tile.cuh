// A tile of a matrix product by a block: tensor cores (mma.sync) for 16-bit elements, FMA for float; operands of any strides.
#pragma once
#include <autokernel/mma.cuh>

namespace ak {

/// An operand: `rows` rows of `depth` elements, over which the product sums.
template <class E>
struct Operand {
  const E* data;
  int64_t rows, depth, row_step, depth_step;

  /// How 16 bytes at a time may be read.
  enum class Reads { along_depth, along_rows, elements };
  __device__ Reads reads() const {
    if (misalignment(data) != 0) return Reads::elements;
    if (depth_step == 1 && row_step % lanes<E> == 0) return Reads::along_depth;
    if (row_step == 1 && depth_step % lanes<E> == 0) return Reads::along_rows;
    return Reads::elements;
  }
};

/// `products` products of block_m rows of one operand and block_n rows of `products` others, by warps of warp_rows x warp_columns. The sums of a warp
/// lie in its lanes as mma.m16n8 leaves them.
template <class E, int block_m, int block_n, int warp_rows, int warp_columns, int vectors_deep, int products>
class Tile {
 public:
  static constexpr int threads = block_m / warp_rows * (block_n / warp_columns) * 32;

  /// The sums over all of the depth, in an order that does not depend on strides or addresses.
  __device__ __forceinline__ void multiply(const Operand<E>& a, const Operand<E> (&b)[products], int64_t first_m, int64_t first_n) {
    const typename Operand<E>::Reads a_reads = a.reads();
    typename Operand<E>::Reads b_reads[products];
#pragma unroll
    for (int p = 0; p < products; ++p) b_reads[p] = b[p].reads();

    fetch<block_m>(next_a_, a, a_reads, first_m, 0);
#pragma unroll
    for (int p = 0; p < products; ++p) fetch<block_n>(next_b_[p], b[p], b_reads[p], first_n, 0);
    for (int64_t k = 0; k < a.depth; k += depth) {
      __syncthreads();
      commit<block_m>(room().a, next_a_, a_reads);
#pragma unroll
      for (int p = 0; p < products; ++p) commit<block_n>(room().b[p], next_b_[p], b_reads[p]);
      __syncthreads();
      if (k + depth < a.depth) {
        fetch<block_m>(next_a_, a, a_reads, first_m, k + depth);
#pragma unroll
        for (int p = 0; p < products; ++p) fetch<block_n>(next_b_[p], b[p], b_reads[p], first_n, k + depth);
      }
      add_products();
      if (in_parts && (k / depth % (part / depth) == part / depth - 1 || k + depth >= a.depth)) end_part();
    }
  }

  /// Call f(m, n, sums) for each pair of neighbours n, n + 1 of the tile: sums[product][0 or 1].
  template <class F>
  __device__ __forceinline__ void each_pair(const F& f) const {
#pragma unroll
    for (int i = 0; i < tiles_m; ++i) {
#pragma unroll
      for (int j = 0; j < tiles_n; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float sums[products][2];
#pragma unroll
          for (int p = 0; p < products; ++p) {
            const float(&all)[4] = in_parts ? totals_[p][i][j] : sums_[p][i][j];
            sums[p][0] = all[2 * h];
            sums[p][1] = all[2 * h + 1];
          }
          f(warp_m() + 16 * i + 8 * h + lane() / 4, warp_n() + 8 * j + lane() % 4 * 2, sums);
        }
      }
    }
  }

 private:
  static constexpr int L = lanes<E>;
  static constexpr int depth = vectors_deep * L;
  static constexpr int pitch = depth + L;  // which spreads rows over the banks
  // Long chains of additions to one float lose more digits than a library's product does: those of a part of the depth are added up apart.
  static constexpr bool in_parts = sizeof(E) == 4;
  static constexpr int part = 64;
  static constexpr int tiles_m = warp_rows / 16, tiles_n = warp_columns / 8;
  static_assert(part % depth == 0 || !in_parts);
  static_assert(block_m % warp_rows == 0 && block_n % warp_columns == 0 && warp_rows % 16 == 0 && warp_columns % 8 == 0 && vectors_deep % 2 == 0);

  struct Room {
    alignas(16) E a[block_m][pitch];
    alignas(16) E b[products][block_n][pitch];
  };
  static __device__ __forceinline__ Room& room() {
    __shared__ Room shared;
    return shared;
  }
  template <int rows>
  static constexpr int share = (rows * vectors_deep + threads - 1) / threads;  // vectors of a thread

  static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
  static __device__ __forceinline__ int warp_m() { return threadIdx.x / 32 % (block_m / warp_rows) * warp_rows; }
  static __device__ __forceinline__ int warp_n() { return threadIdx.x / 32 / (block_m / warp_rows) * warp_columns; }

  /// Where vector i of a thread lies in the tile of an operand.
  template <int rows>
  static __device__ __forceinline__ void locate(int i, typename Operand<E>::Reads reads, int& row, int& k) {
    const int place = i * threads + threadIdx.x;
    if (reads == Operand<E>::Reads::along_rows) {
      row = place % (rows / L) * L;
      k = place / (rows / L);
    } else {
      row = place / vectors_deep;
      k = place % vectors_deep * L;
    }
  }

  template <int rows>
  static __device__ __forceinline__ void fetch(uint4 (&v)[share<rows>], const Operand<E>& from, typename Operand<E>::Reads reads,
                                               int64_t first_row, int64_t first_k) {
#pragma unroll
    for (int i = 0; i < share<rows>; ++i) {
      int row_in_tile, k_in_tile;
      locate<rows>(i, reads, row_in_tile, k_in_tile);
      const int64_t row = first_row + row_in_tile, k = first_k + k_in_tile;
      const bool by_rows = reads == Operand<E>::Reads::along_rows;
      const int64_t row_end = row + (by_rows ? L : 1), k_end = k + (by_rows ? 1 : L);
      if (reads != Operand<E>::Reads::elements && row_end <= from.rows && k_end <= from.depth) {
        v[i] = *reinterpret_cast<const uint4*>(from.data + row * from.row_step + k * from.depth_step);
      } else {
        const int64_t step = by_rows ? from.row_step : from.depth_step, left = by_rows ? from.rows - row : from.depth - k;
        const bool is_inside = row < from.rows && k < from.depth;
        v[i] = gather<E>(from.data + row * from.row_step + k * from.depth_step, step, is_inside ? static_cast<int>(min(left, int64_t{L})) : 0);
      }
    }
  }

  template <int rows>
  static __device__ __forceinline__ void commit(E (*to)[pitch], const uint4 (&v)[share<rows>], typename Operand<E>::Reads reads) {
#pragma unroll
    for (int i = 0; i < share<rows>; ++i) {
      int row, k;
      locate<rows>(i, reads, row, k);
      if (i * threads + static_cast<int>(threadIdx.x) >= rows * vectors_deep) continue;
      if (reads == Operand<E>::Reads::along_rows) {
        float values[L];
        unpack<E>(v[i], values);
#pragma unroll
        for (int e = 0; e < L; ++e) to[row + e][k] = from_float<E>(values[e]);
      } else {
        *reinterpret_cast<uint4*>(&to[row][k]) = v[i];
      }
    }
  }

  __device__ __forceinline__ void add_products() {
    const Room& r = room();
    const int group = lane() / 4, place = lane() % 4;
    if constexpr (sizeof(E) == 2) {
#pragma unroll
      for (int k = 0; k < depth; k += 16) {
        uint32_t a[tiles_m][4];
#pragma unroll
        for (int i = 0; i < tiles_m; ++i) {
          const int row = warp_m() + 16 * i + group, at = k + 2 * place;
          a[i][0] = pair(r.a[row][at]);
          a[i][1] = pair(r.a[row + 8][at]);
          a[i][2] = pair(r.a[row][at + 8]);
          a[i][3] = pair(r.a[row + 8][at + 8]);
        }
#pragma unroll
        for (int p = 0; p < products; ++p) {
#pragma unroll
          for (int j = 0; j < tiles_n; ++j) {
            const int row = warp_n() + 8 * j + group, at = k + 2 * place;
            const uint32_t b[2] = {pair(r.b[p][row][at]), pair(r.b[p][row][at + 8])};
#pragma unroll
            for (int i = 0; i < tiles_m; ++i) mma<E>(sums_[p][i][j], a[i], b);
          }
        }
      }
    } else {
#pragma unroll 4
      for (int k = 0; k < depth; ++k) {
        float a[tiles_m][2];
#pragma unroll
        for (int i = 0; i < tiles_m; ++i) {
          a[i][0] = r.a[warp_m() + 16 * i + group][k];
          a[i][1] = r.a[warp_m() + 16 * i + group + 8][k];
        }
#pragma unroll
        for (int p = 0; p < products; ++p) {
#pragma unroll
          for (int j = 0; j < tiles_n; ++j) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const float b = r.b[p][warp_n() + 8 * j + 2 * place + c][k];
#pragma unroll
              for (int i = 0; i < tiles_m; ++i) {
                sums_[p][i][j][c] += a[i][0] * b;
                sums_[p][i][j][2 + c] += a[i][1] * b;
              }
            }
          }
        }
      }
    }
  }

  __device__ __forceinline__ void end_part() {
#pragma unroll
    for (int p = 0; p < products; ++p) {
#pragma unroll
      for (int i = 0; i < tiles_m; ++i) {
#pragma unroll
        for (int j = 0; j < tiles_n; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            totals_[p][i][j][c] += sums_[p][i][j][c];
            sums_[p][i][j][c] = 0.0f;
          }
        }
      }
    }
  }

  float sums_[products][tiles_m][tiles_n][4] = {}, totals_[products][tiles_m][tiles_n][4] = {};  // `totals_` of what is in parts
  uint4 next_a_[share<block_m>], next_b_[products][share<block_n>];
};

}  // namespace ak
