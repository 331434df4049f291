/*autokernel
family  = "cross_entropy"
backend = "cuda"

[tune]
VECTORS = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # vectors of 16 bytes that a thread reads at a time
THREADS = { values = [128, 256, 512, 1024], default = 256, tier = 1 }   # of a block, which has a row
SHORT   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS   = { values = [1, 2, 4, 8],          default = 4,   tier = 1 }   # of a block there
require = ["VECTORS * THREADS <= 4096"]                                 # the registers of a multiprocessor

[scratch.sums]                                # the loss of each row, when they are reduced
dtype = "float32"
shape = ["REDUCED ? M : 1"]

# Rows that a warp holds, one or several to a warp.
[[variant]]
when = "(V <= 1 || logits.stride(1) == 1) && V * sizeof(T) <= 512 * SHORT"
[[variant.launch]]
kernel = "cross_entropy_warps"
grid   = ["cdiv(M, WARPS * 32 / pow2ceil(max(1, cdiv(V * sizeof(T), 16 * SHORT))))"]
block  = ["32 * WARPS"]
args   = ["logits", "targets", "losses", "sums", "M", "V", "logits.stride(0)", "targets.stride(0)", "losses.stride(0)", "ignore_index",
          "smoothing", "pow2ceil(max(1, cdiv(V * sizeof(T), 16 * SHORT)))"]
[[variant.launch]]
kernel = "cross_entropy_total"
grid   = ["1"]
block  = ["1024"]
when   = "REDUCED"
args   = ["sums", "targets", "loss", "M", "targets.stride(0)", "ignore_index"]

[[variant]]
when = "logits.stride(1) == 1"
[[variant.launch]]
kernel = "cross_entropy_rows"
grid   = ["M"]
block  = ["min(THREADS, align(cdiv(V * sizeof(T), 16 * VECTORS), 32))"]
args   = ["logits", "targets", "losses", "sums", "V", "logits.stride(0)", "targets.stride(0)", "losses.stride(0)", "ignore_index",
          "smoothing"]
[[variant.launch]]
kernel = "cross_entropy_total"
grid   = ["1"]
block  = ["1024"]
when   = "REDUCED"
args   = ["sums", "targets", "loss", "M", "targets.stride(0)", "ignore_index"]

# Any strides.
[[launch]]
kernel = "cross_entropy_strided"
grid   = ["M"]
block  = ["THREADS"]
args   = ["logits", "targets", "losses", "sums", "V", "logits.stride(0)", "logits.stride(1)", "targets.stride(0)", "losses.stride(0)",
          "ignore_index", "smoothing"]
[[launch]]
kernel = "cross_entropy_total"
grid   = ["1"]
block  = ["1024"]
when   = "REDUCED"
args   = ["sums", "targets", "loss", "M", "targets.stride(0)", "ignore_index"]

[[recipe]]
name = "loads in flight"
tier = 1
when = "V * sizeof(T) >= 16384"
gain = "1.2x"
text = "The row is read once, so only memory counts: VECTORS loads of a thread in flight, and several blocks of a multiprocessor."
[[recipe]]
name = "split the row"
tier = 4
when = "M < sm_count"
gain = "up to the number of idle multiprocessors"
text = """
With fewer rows than multiprocessors give a block a part of a row, write maximum and sum of each part to scratch, and merge them in
order in the second launch."""
[[recipe]]
name = "one launch"
tier = 6
when = "REDUCED && M * V * sizeof(T) < l2_bytes"
gain = "2 us"
text = "The block that finishes last, by a counter that it sets back, adds up the losses of all in order."
*/
#include <autokernel/reduce.cuh>

namespace {

constexpr int L = ak::lanes<T>;

/// What one pass over a row finds; `linear` is the sum of x - centre, for label smoothing.
struct Row {
  ak::SumExp powers = {-ak::infinity(), 0.0f};
  float linear = 0.0f, centre = 0.0f;

  __device__ __forceinline__ Row() {}
  explicit __device__ __forceinline__ Row(const T* first) {
    if (!SMOOTHED) return;
    const float value = ak::to_float(*first);
    if (value - value == 0.0f) centre = value;
  }
  template <int n>
  __device__ __forceinline__ void add(const float (&values)[n]) {
    ak::add_exponentials<T>(powers, values);
  }
  __device__ __forceinline__ float loss(float at_target, int64_t V, float smoothing) const {
    const float log_sum = logf(powers.sum), plain = (powers.maximum - at_target) + log_sum;
    if (!SMOOTHED) return plain;
    const float even = ((powers.maximum - centre) - linear / static_cast<float>(V)) + log_sum;
    return (1.0f - smoothing) * plain + smoothing * even;
  }
};

/// Take in the vectors that a thread holds of a row.
template <int K>
__device__ __forceinline__ void take(Row& row, const uint4 (&v)[K], int count, int thread, int threads) {
  float values[K * L];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float unpacked[L];
    ak::unpack<T>(v[k], unpacked);
#pragma unroll
    for (int e = 0; e < L; ++e) {
      values[k * L + e] = unpacked[e];
      if (SMOOTHED && ak::place<T>(k, thread, threads) + e < count) row.linear += unpacked[e] - row.centre;
    }
  }
  row.add(values);
}

__device__ __forceinline__ void write_loss(float loss, int64_t row, T* losses, float* sums, int64_t loss_step) {
  if (REDUCED) {
    sums[row] = loss;
  } else {
    losses[row * loss_step] = ak::from_float<T>(loss);
  }
}

/// The loss of a row that is not read: ignored, or a target that PyTorch refuses.
__device__ __forceinline__ bool is_read(int64_t target, int64_t V, int64_t ignore_index) {
  return target != ignore_index && target >= 0 && target < V;
}
__device__ __forceinline__ float unread_loss(int64_t target, int64_t ignore_index) {
  return target == ignore_index ? 0.0f : __uint_as_float(0x7fc00000u);
}

/// Merge what the threads of a block found, and write the loss.
__device__ __forceinline__ void finish_block(Row found, float at_target, int64_t V, T* losses, float* sums, int64_t loss_step,
                                             float smoothing) {
  __shared__ float room[96];
  found.powers = ak::block_sum_exp<T>(found.powers, room);
  if (SMOOTHED) found.linear = ak::block_reduce<ak::Sum>(found.linear, 0.0f, room + 64);
  if (threadIdx.x == 0) write_loss(found.loss(at_target, V, smoothing), blockIdx.x, losses, sums, loss_step);
}

}  // namespace

/// `group` lanes hold a row.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    cross_entropy_warps(const T* __restrict__ logits, const int64_t* __restrict__ targets, T* __restrict__ losses, float* __restrict__ sums,
                        int64_t M, int64_t V, int64_t row_step, int64_t target_step, int64_t loss_step, int64_t ignore_index,
                        float smoothing, int64_t group) {
  const int lanes = static_cast<int>(group), lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (32 * WARPS / lanes) + threadIdx.x / lanes;
  const int64_t target = row < M ? targets[row * target_step] : ignore_index;
  const bool reads = is_read(target, V, ignore_index);
  const T* const x = logits + (reads ? row : 0) * row_step;
  const int count = reads ? static_cast<int>(V) : 0;
  Row found;
  if (reads) found = Row(x);
  uint4 v[SHORT];
  ak::load_row<T>(v, x, count, lane, lanes, ak::splat<T>(-ak::infinity()));
  take(found, v, count, lane, lanes);
  const float top = ak::warp_reduce<ak::MaxNumber>(found.powers.maximum, lanes);
  if (found.powers.maximum != top) found.powers.sum *= ak::exponential<T>(found.powers.maximum - top);
  found.powers = {top, ak::warp_reduce<ak::Sum>(found.powers.sum, lanes)};
  if (SMOOTHED) found.linear = ak::warp_reduce<ak::Sum>(found.linear, lanes);
  if (lane > 0 || row >= M) return;
  const float loss = reads ? found.loss(ak::to_float(x[target]), V, smoothing) : unread_loss(target, ignore_index);
  write_loss(loss, row, losses, sums, loss_step);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    cross_entropy_rows(const T* __restrict__ logits, const int64_t* __restrict__ targets, T* __restrict__ losses, float* __restrict__ sums,
                       int64_t V, int64_t row_step, int64_t target_step, int64_t loss_step, int64_t ignore_index, float smoothing) {
  const int64_t target = targets[blockIdx.x * target_step];
  if (!is_read(target, V, ignore_index)) {
    if (threadIdx.x == 0) write_loss(unread_loss(target, ignore_index), blockIdx.x, losses, sums, loss_step);
    return;
  }
  logits += blockIdx.x * row_step;
  const int threads = blockDim.x, step = threads * VECTORS * L;
  const float at_target = ak::to_float(logits[target]);
  Row found(logits);
  for (int64_t begin = 0; begin < V; begin += step) {
    const int count = static_cast<int>(min(V - begin, int64_t{step}));
    uint4 v[VECTORS];
    ak::load_row<T>(v, logits + begin, count, threadIdx.x, threads, ak::splat<T>(-ak::infinity()));
    take(found, v, count, threadIdx.x, threads);
  }
  finish_block(found, at_target, V, losses, sums, loss_step, smoothing);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_strided(const T* __restrict__ logits, const int64_t* __restrict__ targets, T* __restrict__ losses,
                          float* __restrict__ sums, int64_t V, int64_t row_step, int64_t column_step, int64_t target_step,
                          int64_t loss_step, int64_t ignore_index, float smoothing) {
  const int64_t target = targets[blockIdx.x * target_step];
  if (!is_read(target, V, ignore_index)) {
    if (threadIdx.x == 0) write_loss(unread_loss(target, ignore_index), blockIdx.x, losses, sums, loss_step);
    return;
  }
  logits += blockIdx.x * row_step;
  const float at_target = ak::to_float(logits[target * column_step]);
  Row found(logits);
  constexpr int unroll = 4;
  for (int64_t i = threadIdx.x; i < V; i += unroll * THREADS) {
    float values[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int64_t place = i + u * THREADS;
      values[u] = place < V ? ak::to_float(logits[place * column_step]) : -ak::infinity();
      if (SMOOTHED && place < V) found.linear += values[u] - found.centre;
    }
    found.add(values);
  }
  finish_block(found, at_target, V, losses, sums, loss_step, smoothing);
}

/// The sum of the losses, or their mean over the rows that count (NaN where none does).
extern "C" __global__ void __launch_bounds__(1024)
    cross_entropy_total(const float* __restrict__ sums, const int64_t* __restrict__ targets, T* __restrict__ loss, int64_t M,
                        int64_t target_step, int64_t ignore_index) {
  __shared__ double room[64];
  double total = 0.0, counted = 0.0;
  for (int64_t row = threadIdx.x; row < M; row += 1024) {
    total += static_cast<double>(sums[row]);
    if (MEAN) counted += targets[row * target_step] != ignore_index ? 1.0 : 0.0;
  }
  total = ak::block_reduce<ak::Sum>(total, 0.0, room);
  if (MEAN) total /= ak::block_reduce<ak::Sum>(counted, 0.0, room + 32);
  if (threadIdx.x == 0) *loss = ak::from_float<T>(static_cast<float>(total));
}
