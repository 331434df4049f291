/*autokernel
family  = "fused_mlp"
backend = "cuda"

[tune]
BLOCK_M     = { values = [32, 64, 128], default = 128, tier = 1 }   # rows of x in a block
UP_BLOCK    = { values = [32, 64],      default = 64,  tier = 1 }   # rows of gate, and of up, in a block
DOWN_BLOCK  = { values = [32, 64, 128], default = 128, tier = 1 }   # rows of down in a block
WARP_M      = { values = [16, 32, 64],  default = 32,  tier = 3 }   # rows of x in a warp
WARP_N      = { values = [16, 32],      default = 32,  tier = 3 }   # rows of each weight in a warp
DEPTH       = { values = [2, 4, 8],     default = 4,   tier = 2 }   # vectors of 16 bytes of a row in shared memory
require = ["BLOCK_M >= WARP_M", "BLOCK_M / WARP_M * (DOWN_BLOCK / WARP_N) <= 16", "BLOCK_M / WARP_M * (UP_BLOCK / WARP_N) <= 16",
           "(BLOCK_M + 2 * UP_BLOCK) * (16 * DEPTH + 16) <= 49152", "(BLOCK_M + DOWN_BLOCK) * (16 * DEPTH + 16) <= 49152"]

[scratch.hidden]                              # as PyTorch rounds it; rows begin at multiples of 16 bytes
dtype = "T"
shape = ["M * align(H, 8)"]

[[launch]]
kernel = "gated"
grid   = ["cdiv(M, BLOCK_M) * cdiv(H, UP_BLOCK)"]
block  = ["BLOCK_M / WARP_M * (UP_BLOCK / WARP_N) * 32"]
args   = ["x", "gate", "up", "hidden", "M", "H", "D", "x.stride(0)", "x.stride(1)", "gate.stride(0)", "gate.stride(1)", "up.stride(0)",
          "up.stride(1)", "align(H, 8)"]
[[launch]]
kernel = "project"
grid   = ["cdiv(M, BLOCK_M) * cdiv(D, DOWN_BLOCK)"]
block  = ["BLOCK_M / WARP_M * (DOWN_BLOCK / WARP_N) * 32"]
args   = ["hidden", "down", "out", "M", "D", "H", "align(H, 8)", "down.stride(0)", "down.stride(1)", "out.stride(0)", "out.stride(1)"]

[[recipe]]
name = "blocks for every multiprocessor"
tier = 1
when = "cdiv(M, BLOCK_M) * cdiv(D, DOWN_BLOCK) < sm_count"
gain = "up to the number of idle multiprocessors"
text = "A smaller BLOCK_M or DOWN_BLOCK makes more blocks; where H is long, split it over blocks and add the parts in order."
[[recipe]]
name = "asynchronous copies"
tier = 4
when = "sizeof(T) == 2 && D >= 256"
gain = "1.3x"
text = "cp.async into 3 or 4 stages of shared memory, and ldmatrix to read fragments, keep the tensor cores fed."
[[recipe]]
name = "wgmma"
tier = 6
when = "sizeof(T) == 2 && M >= 64"
gain = "2x"
text = "On sm_90a only wgmma reaches the peak: gate and up as one 128-wide tile of interleaved rows, fetched by TMA into a ring of stages."
*/
#include <autokernel/activation.cuh>
#include <autokernel/tile.cuh>

// Two launches: hidden = activation(x @ gate^T) * (x @ up^T), both products of a tile in one block; then out = hidden @ down^T.

using UpTile = ak::Tile<T, BLOCK_M, UP_BLOCK, WARP_M, WARP_N, DEPTH, 2>;
using DownTile = ak::Tile<T, BLOCK_M, DOWN_BLOCK, WARP_M, WARP_N, DEPTH, 1>;

extern "C" __global__ void __launch_bounds__(UpTile::threads)
    gated(const T* __restrict__ x, const T* __restrict__ gate, const T* __restrict__ up, T* __restrict__ hidden, int64_t M, int64_t H,
          int64_t D, int64_t x_m, int64_t x_d, int64_t gate_h, int64_t gate_d, int64_t up_h, int64_t up_d, int64_t hidden_m) {
  const int64_t blocks_m = (M + BLOCK_M - 1) / BLOCK_M;
  const int64_t first_m = blockIdx.x % blocks_m * BLOCK_M, first_h = blockIdx.x / blocks_m * UP_BLOCK;
  UpTile tile;
  tile.multiply({x, M, D, x_m, x_d}, {{gate, H, D, gate_h, gate_d}, {up, H, D, up_h, up_d}}, first_m, first_h);
  tile.each_pair([&](int m, int h, const float(&sums)[2][2]) {
    if (first_m + m >= M) return;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (first_h + h + c < H)
        hidden[(first_m + m) * hidden_m + first_h + h + c] = ak::from_float<T>(ak::activate<ACTIVATION>(sums[0][c]) * sums[1][c]);
    }
  });
}

extern "C" __global__ void __launch_bounds__(DownTile::threads)
    project(const T* __restrict__ hidden, const T* __restrict__ down, T* __restrict__ out, int64_t M, int64_t D, int64_t H,
            int64_t hidden_m, int64_t down_d, int64_t down_h, int64_t out_m, int64_t out_d) {
  const int64_t blocks_m = (M + BLOCK_M - 1) / BLOCK_M;
  const int64_t first_m = blockIdx.x % blocks_m * BLOCK_M, first_d = blockIdx.x / blocks_m * DOWN_BLOCK;
  DownTile tile;
  tile.multiply({hidden, M, H, hidden_m, 1}, {{down, D, H, down_d, down_h}}, first_m, first_d);
  tile.each_pair([&](int m, int d, const float(&sums)[1][2]) {
    if (first_m + m >= M) return;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (first_d + d + c < D) out[(first_m + m) * out_m + (first_d + d + c) * out_d] = ak::from_float<T>(sums[0][c]);
    }
  });
}
