/*autokernel
family  = "matmul"
backend = "cuda"

[tune]
BLOCK_M = { values = [32, 64, 128],     default = 128, tier = 1 }   # rows of x in a block
BLOCK_N = { values = [32, 64, 128],     default = 128, tier = 1 }   # rows of the weight in a block
WARP_M  = { values = [16, 32, 64],      default = 64,  tier = 3 }   # rows of x in a warp
WARP_N  = { values = [16, 32, 64],      default = 32,  tier = 3 }   # rows of the weight in a warp
DEPTH   = { values = [2, 4, 8],         default = 4,   tier = 2 }   # vectors of 16 bytes of a row in shared memory
GROUP   = { values = [1, 4, 8, 16],     default = 8,   tier = 2 }   # blocks of rows of x that go along the weight together
FEW     = { values = [0, 4, 8, 16],     default = 8,   tier = 1 }   # rows of x up to which a warp has one column of the result
WARPS   = { values = [2, 4, 8],         default = 4,   tier = 1 }   # of a block there
require = ["BLOCK_M >= WARP_M && BLOCK_N >= WARP_N", "BLOCK_M / WARP_M * (BLOCK_N / WARP_N) <= 16",
           "(BLOCK_M + BLOCK_N) * (16 * DEPTH + 16) <= 49152"]

# Few rows: one pass over the weight.
[[variant]]
when = "M <= FEW && x.stride(1) == 1 && weight.stride(1) == 1"
[[variant.launch]]
kernel = "matmul_few"
grid   = ["cdiv(N, WARPS)"]
block  = ["32 * WARPS"]
args   = ["x", "weight", "bias", "residual", "out", "M", "N", "K", "x.stride(0)", "weight.stride(0)", "HAS_BIAS ? bias.stride(0) : 0",
          "HAS_RESIDUAL ? residual.stride(0) : 0", "HAS_RESIDUAL ? residual.stride(1) : 0", "out.stride(0)", "out.stride(1)"]

[[launch]]
kernel = "matmul_tiles"
grid   = ["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"]
block  = ["BLOCK_M / WARP_M * (BLOCK_N / WARP_N) * 32"]
args   = ["x", "weight", "bias", "residual", "out", "M", "N", "K", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "weight.stride(1)",
          "HAS_BIAS ? bias.stride(0) : 0", "HAS_RESIDUAL ? residual.stride(0) : 0", "HAS_RESIDUAL ? residual.stride(1) : 0",
          "out.stride(0)", "out.stride(1)"]

[[recipe]]
name = "blocks for every multiprocessor"
tier = 1
when = "cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N) < sm_count"
gain = "up to the number of idle multiprocessors"
text = "A smaller BLOCK_M or BLOCK_N makes more blocks; where K is long, split it over blocks and add the parts in order in a second launch."
[[recipe]]
name = "asynchronous copies"
tier = 4
when = "sizeof(T) == 2 && K >= 256"
gain = "1.3x"
text = "cp.async into 3 or 4 stages of shared memory, and ldmatrix to read fragments, keep the tensor cores fed."
[[recipe]]
name = "wgmma"
tier = 6
when = "sizeof(T) == 2 && M >= 64"
gain = "2x"
text = """
On sm_90a only wgmma reaches the peak: a producer warp fetches 128x64 tiles by TMA into a ring of 4 stages with the 128-byte swizzle, two \
warp groups of 64x256 consume them."""
*/
#include <autokernel/activation.cuh>
#include <autokernel/reduce.cuh>
#include <autokernel/tile.cuh>

namespace {

constexpr int L = ak::lanes<T>;

/// out = activation(sum + bias) + residual.
struct Epilogue {
  const T* __restrict__ bias;
  const T* __restrict__ residual;
  T* __restrict__ out;
  int64_t bias_n, residual_m, residual_n, out_m, out_n;

  __device__ __forceinline__ void operator()(int64_t m, int64_t n, float sum) const {
    if (HAS_BIAS) sum += ak::to_float(bias[n * bias_n]);
    sum = ak::activate<ACTIVATION>(sum);
    if (HAS_RESIDUAL) sum += ak::to_float(residual[m * residual_m + n * residual_n]);
    out[m * out_m + n * out_n] = ak::from_float<T>(sum);
  }
};

}  // namespace

/// A warp has one column of the result. Each lane reads its vectors of a row of the weight once.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    matmul_few(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
               T* __restrict__ out, int64_t M, int64_t N, int64_t K, int64_t x_m, int64_t w_n, int64_t bias_n, int64_t residual_m,
               int64_t residual_n, int64_t out_m, int64_t out_n) {
  constexpr int rows = FEW > 0 ? FEW : 1, unroll = 4;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (n >= N) return;
  weight += n * w_n;
  const bool x_aligned = ak::misalignment(x) == 0 && x_m % L == 0;
  float sums[rows] = {};
  constexpr int step = unroll * 32 * L;
  for (int64_t begin = 0; begin < K; begin += step) {
    const int count = static_cast<int>(min(K - begin, int64_t{step}));
    uint4 v[unroll];
    ak::load_row<T>(v, weight + begin, count, lane, 32, make_uint4(0, 0, 0, 0));
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      if (m >= M) break;
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int i = ak::place<T>(u, lane, 32);
        float a[L], b[L];
        ak::unpack<T>(ak::keep_first<T>(ak::load_vector(x + m * x_m + begin, i, count, x_aligned), make_uint4(0, 0, 0, 0), count - i), a);
        ak::unpack<T>(v[u], b);
#pragma unroll
        for (int e = 0; e < L; ++e) sums[m] += a[e] * b[e];
      }
    }
  }
  const Epilogue epilogue = {bias, residual, out, bias_n, residual_m, residual_n, out_m, out_n};
#pragma unroll
  for (int m = 0; m < rows; ++m) {
    if (m >= M) break;
    const float sum = ak::warp_reduce<ak::Sum>(sums[m]);
    if (lane == 0) epilogue(m, n, sum);
  }
}

using Tile = ak::Tile<T, BLOCK_M, BLOCK_N, WARP_M, WARP_N, DEPTH, 1>;

extern "C" __global__ void __launch_bounds__(Tile::threads)
    matmul_tiles(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
                 T* __restrict__ out, int64_t M, int64_t N, int64_t K, int64_t x_m, int64_t x_k, int64_t w_n, int64_t w_k, int64_t bias_n,
                 int64_t residual_m, int64_t residual_n, int64_t out_m, int64_t out_n) {
  const int64_t blocks_m = (M + BLOCK_M - 1) / BLOCK_M, blocks_n = (N + BLOCK_N - 1) / BLOCK_N;
  const int64_t band = blockIdx.x / (GROUP * blocks_n), place = blockIdx.x % (GROUP * blocks_n);
  const int64_t height = min(blocks_m - band * GROUP, int64_t{GROUP});
  const int64_t first_m = (band * GROUP + place % height) * BLOCK_M, first_n = place / height * BLOCK_N;

  Tile tile;
  tile.multiply({x, M, K, x_m, x_k}, {{weight, N, K, w_n, w_k}}, first_m, first_n);
  const Epilogue epilogue = {bias, residual, out, bias_n, residual_m, residual_n, out_m, out_n};
  tile.each_pair([&](int m, int n, const float(&sums)[1][2]) {
    if (first_m + m >= M) return;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (first_n + n + c < N) epilogue(first_m + m, first_n + n + c, sums[0][c]);
    }
  });
}
