/*autokernel
family  = "cross_entropy"
backend = "cuda"

[tune]
VECTORS = { values = [1, 2, 4, 8],                  default = 8,   tier = 1 }   # vectors of 16 bytes that a thread reads at a time
THREADS = { values = [32, 64, 128, 256, 512, 1024], default = 128, tier = 1 }   # of a block, which has a row or a part of one
AHEAD   = { values = [0, 1],                        default = 0,   tier = 2 }   # read the next vectors before the last ones' exponentials
SHORT   = { values = [1, 2, 4, 8],                  default = 4,   tier = 1 }   # vectors of a thread where a warp holds rows whole
WARPS   = { values = [1, 2, 4, 8],                  default = 4,   tier = 1 }   # of a block there
BLOCKS  = { values = [2, 4, 8],                     default = 4,   tier = 4 }   # of a multiprocessor, where they share few rows
LAST    = { values = [0, 4, 8, 16],                 default = 0,   tier = 6 }   # rows a multiprocessor in a launch whose last block adds up
OVERLAP = { values = [0, 1],                        default = 1,   tier = 2 }   # a launch begins before the one before it has ended
require = ["VECTORS * THREADS * (1 + AHEAD) <= 8192"]                           # the registers of a multiprocessor

[[prior]]
when = "V * sizeof(T) % 16 != 0"
set = { VECTORS = 4, THREADS = 32, AHEAD = 1 }
[[prior]]
when = "V * sizeof(T) % 16 != 0"
set = { VECTORS = 2, THREADS = 128, AHEAD = 1 }
[[prior]]
when = "V * sizeof(T) >= 131072"
set = { VECTORS = 8, THREADS = 256, AHEAD = 0 }
[[prior]]
set = { VECTORS = 4, THREADS = 256, AHEAD = 0 }

[scratch.sums]                                # the loss of each row, when they are reduced
dtype = "float32"
shape = ["REDUCED ? M : 1"]
[scratch.ticket]                              # how many blocks of the last rows have ended
dtype = "int32"
shape = ["1"]
[scratch.parts]                               # what the blocks that share a row found, 16 bytes each
dtype = "float32"
shape = ["M < sm_count ? 4 * (M + BLOCKS * sm_count) : 1"]

# Rows that a warp holds, one or several to a warp.
[[variant]]
when = "(V <= 1 || logits.stride(1) == 1) && V * sizeof(T) <= 512 * SHORT"
[[variant.launch]]
kernel = "cross_entropy_warps"
grid   = ["cdiv(M, WARPS * 32 / pow2ceil(max(1, cdiv(V * sizeof(T), 16 * SHORT))))"]
block  = ["32 * WARPS"]
overlap = "OVERLAP"
args   = ["logits", "targets", "weight", "losses", "sums", "M", "V", "logits.stride(0)", "targets.stride(0)", "weight.stride(0)",
          "losses.stride(0)", "ignore_index", "smoothing", "pow2ceil(max(1, cdiv(V * sizeof(T), 16 * SHORT)))"]
[[variant.launch]]
kernel = "cross_entropy_total"
grid   = ["1"]
block  = ["min(1024, align(max(1, cdiv(M, 16)), 32))"]
when   = "REDUCED"
overlap = "OVERLAP"
args   = ["sums", "targets", "weight", "loss", "M", "V", "targets.stride(0)", "weight.stride(0)", "ignore_index"]

# Few long rows: blocks share one, each with every so manieth piece.
[[variant]]
when = "logits.stride(1) == 1 && M < sm_count && V * sizeof(T) > 16 * VECTORS * THREADS"
[[variant.launch]]
kernel = "cross_entropy_parts"
grid   = ["M * min(cdiv(V * sizeof(T), 16 * VECTORS * THREADS), cdiv(BLOCKS * sm_count, max(1, M)))"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["logits", "targets", "weight", "parts", "V", "logits.stride(0)", "targets.stride(0)", "weight.stride(0)", "ignore_index",
          "min(cdiv(V * sizeof(T), 16 * VECTORS * THREADS), cdiv(BLOCKS * sm_count, max(1, M)))"]
[[variant.launch]]
kernel = "cross_entropy_merge"
grid   = ["M"]
block  = ["32"]
overlap = "OVERLAP"
args   = ["logits", "targets", "weight", "parts", "losses", "sums", "V", "logits.stride(0)", "targets.stride(0)", "weight.stride(0)",
          "losses.stride(0)", "ignore_index", "smoothing",
          "min(cdiv(V * sizeof(T), 16 * VECTORS * THREADS), cdiv(BLOCKS * sm_count, max(1, M)))"]
[[variant.launch]]
kernel = "cross_entropy_total"
grid   = ["1"]
block  = ["min(1024, align(max(1, cdiv(M, 16)), 32))"]
when   = "REDUCED"
overlap = "OVERLAP"
args   = ["sums", "targets", "weight", "loss", "M", "V", "targets.stride(0)", "weight.stride(0)", "ignore_index"]

[[variant]]
when = "logits.stride(1) == 1 && REDUCED && LAST && M > LAST * sm_count"
[[variant.launch]]
kernel = "cross_entropy_rows"
grid   = ["M - LAST * sm_count"]
block  = ["min(THREADS, align(cdiv(V * sizeof(T), 16 * VECTORS), 32))"]
overlap = "OVERLAP"
args   = ["logits", "targets", "weight", "losses", "sums", "ticket", "V", "logits.stride(0)", "targets.stride(0)", "weight.stride(0)",
          "losses.stride(0)", "ignore_index", "smoothing"]
[[variant.launch]]
kernel = "cross_entropy_last_rows"
grid   = ["LAST * sm_count"]
block  = ["min(THREADS, align(cdiv(V * sizeof(T), 16 * VECTORS), 32))"]
overlap = "OVERLAP"
args   = ["logits", "targets", "weight", "sums", "ticket", "loss", "M", "V", "logits.stride(0)", "targets.stride(0)", "weight.stride(0)",
          "ignore_index", "smoothing"]

[[variant]]
when = "logits.stride(1) == 1"
[[variant.launch]]
kernel = "cross_entropy_rows"
grid   = ["M"]
block  = ["min(THREADS, align(cdiv(V * sizeof(T), 16 * VECTORS), 32))"]
overlap = "OVERLAP"
args   = ["logits", "targets", "weight", "losses", "sums", "ticket", "V", "logits.stride(0)", "targets.stride(0)", "weight.stride(0)",
          "losses.stride(0)", "ignore_index", "smoothing"]
[[variant.launch]]
kernel = "cross_entropy_total"
grid   = ["1"]
block  = ["min(1024, align(max(1, cdiv(M, 16)), 32))"]
when   = "REDUCED"
overlap = "OVERLAP"
args   = ["sums", "targets", "weight", "loss", "M", "V", "targets.stride(0)", "weight.stride(0)", "ignore_index"]

# Any strides.
[[launch]]
kernel = "cross_entropy_strided"
grid   = ["M"]
block  = ["THREADS"]
overlap = "OVERLAP"
args   = ["logits", "targets", "weight", "losses", "sums", "V", "logits.stride(0)", "logits.stride(1)", "targets.stride(0)",
          "weight.stride(0)", "losses.stride(0)", "ignore_index", "smoothing"]
[[launch]]
kernel = "cross_entropy_total"
grid   = ["1"]
block  = ["min(1024, align(max(1, cdiv(M, 16)), 32))"]
when   = "REDUCED"
overlap = "OVERLAP"
args   = ["sums", "targets", "weight", "loss", "M", "V", "targets.stride(0)", "weight.stride(0)", "ignore_index"]

[[recipe]]
name = "loads in flight"
tier = 1
when = "V * sizeof(T) >= 16384"
gain = "1.2x"
text = "The row is read once, so only memory counts: VECTORS loads of a thread in flight, and several blocks of a multiprocessor."
[[recipe]]
name = "more parts"
tier = 4
when = "M < sm_count"
gain = "up to the number of idle multiprocessors"
text = "More BLOCKS give every multiprocessor several parts of the few rows. The parts are merged in order."
*/
#include <autokernel/async.cuh>
#include <autokernel/reduce.cuh>
#include <autokernel/stream.cuh>

namespace {

constexpr int L = ak::lanes<T>;

/// The weights of the classes; without them all are 1.
struct Weights {
  const T* first;
  int64_t step;

  __device__ __forceinline__ float at(int64_t label) const { return WEIGHTED ? ak::to_float(first[label * step]) : 1.0f; }
};

/// What one pass over a row, or over a part of one, finds. For label smoothing `linear` is the sum of weight * (x - centre), where the
/// centre is the row's first logit, and `weight` that of the weights.
struct Row {
  ak::SumExp powers;
  float linear, weight;

  /// Take in a logit for smoothing.
  __device__ __forceinline__ void add_linear(float x, float centre, float of_class) {
    linear += of_class * (x - centre);
    weight += of_class;
  }
};

__device__ __forceinline__ Row no_logits() { return {{-ak::infinity(), 0.0f}, 0.0f, 0.0f}; }

__device__ __forceinline__ float centre_of(const T* row) {
  if (!SMOOTHED) return 0.0f;
  const float value = ak::to_float(*row);
  return value - value == 0.0f ? value : 0.0f;
}

struct Join {
  static __device__ __forceinline__ Row join(const Row& a, const Row& b) {
    Row both;
    const float top = fmaxf(a.powers.maximum, b.powers.maximum), pivot = top == -ak::infinity() ? 0.0f : top;
    both.powers.maximum = top;
    both.powers.sum =
        a.powers.sum * ak::exponential<T>(a.powers.maximum - pivot) + b.powers.sum * ak::exponential<T>(b.powers.maximum - pivot);
    both.linear = a.linear + b.linear;
    both.weight = a.weight + b.weight;
    return both;
  }
};

/// Take in the vectors that a thread holds of a row of V logits: v[k] has those from begin + k * step on.
template <int K>
__device__ __forceinline__ void take(Row& row, const uint4 (&v)[K], int64_t begin, int64_t step, int64_t V, float centre,
                                     const Weights& weights) {
  ak::add_exponentials<T>(row.powers, v);
  if (!SMOOTHED) return;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float values[L];
    ak::unpack<T>(v[k], values);
#pragma unroll
    for (int e = 0; e < L; ++e) {
      const int64_t place = begin + k * step + e;
      if (0 <= place && place < V) row.add_linear(values[e], centre, weights.at(place));
    }
  }
}

/// The loss of a row that was read.
__device__ __forceinline__ float loss_of(const Row& row, float at_target, float centre, float of_target, int64_t V, float smoothing) {
  const float log_sum = logf(row.powers.sum), plain = of_target * ((row.powers.maximum - at_target) + log_sum);
  if (!SMOOTHED) return plain;
  const float even = ((row.powers.maximum - centre) * row.weight - row.linear) + log_sum * row.weight;
  return (1.0f - smoothing) * plain + smoothing / static_cast<float>(V) * even;
}

__device__ __forceinline__ void write_loss(float loss, int64_t row, T* losses, float* sums, int64_t loss_step) {
  if (REDUCED) {
    sums[row] = loss;
  } else {
    losses[row * loss_step] = ak::from_float<T>(loss);
  }
}

/// Whether a row is read: it is not where it is ignored, or has a target that PyTorch refuses.
__device__ __forceinline__ bool is_read(int64_t target, int64_t V, int64_t ignore_index) {
  return target != ignore_index && target >= 0 && target < V;
}
__device__ __forceinline__ float unread_loss(int64_t target, int64_t ignore_index) {
  return target == ignore_index ? 0.0f : __uint_as_float(0x7fc00000u);
}

/// The logits of a row, side by side, of which a block has every `parts`-th piece beginning with piece `part`.
struct Logits {
  ak::Stream<T> elements;
  int64_t first, step;  // vectors
  uint4 v[VECTORS];

  /// The first piece is under way from here on.
  __device__ __forceinline__ Logits(const T* __restrict__ row, int64_t V, int64_t part, int64_t parts) : elements(row, V) {
    const int64_t piece = int64_t{VECTORS} * blockDim.x;
    first = part * piece;
    step = parts * piece;
    if (first < elements.size()) elements.load(v, first, threadIdx.x, blockDim.x, -ak::infinity());
  }
  /// What this thread finds.
  __device__ __forceinline__ Row read(float centre, const Weights& weights) {
    const int threads = blockDim.x;
    Row found = no_logits();
    elements.each<AHEAD>(v, first, step, threadIdx.x, threads, -ak::infinity(), [&](const uint4(&v)[VECTORS], int64_t begin) {
      take(found, v, begin, int64_t{threads} * L, elements.count, centre, weights);
    });
    return found;
  }
};

/// The loss of a row whose logits lie side by side, for the first thread of the block.
__device__ __forceinline__ float read_row(const T* __restrict__ x, int64_t target, const Weights& weights, int64_t V, int64_t ignore_index,
                                          float smoothing) {
  __shared__ Row room[32];
  Logits logits(x, V, 0, 1);  // under way before the target is known: most rows are read
  if (!is_read(target, V, ignore_index)) return unread_loss(target, ignore_index);
  const float at_target = ak::to_float(x[target]), centre = centre_of(x), of_target = weights.at(target);
  const Row found = ak::block_reduce<Join>(logits.read(centre, weights), no_logits(), room);
  return loss_of(found, at_target, centre, of_target, V, smoothing);
}

/// The sum of the weights of the targets that count, where the mean needs it.
__device__ __forceinline__ double weight_of_targets(const int64_t* __restrict__ targets, const Weights& weights, int64_t M, int64_t V,
                                                    int64_t target_step, int64_t ignore_index) {
  __shared__ double room[32];
  double counted = 0.0;
  if (!MEAN) return counted;
#pragma unroll 8
  for (int64_t row = threadIdx.x; row < M; row += blockDim.x) {
    const int64_t target = targets[row * target_step];
    if (is_read(target, V, ignore_index)) counted += static_cast<double>(weights.at(target));
  }
  return ak::block_reduce<ak::Sum>(counted, 0.0, room);
}

/// The sum of the losses, or their mean over `counted` (NaN where that is 0). Other blocks wrote them.
__device__ __forceinline__ void write_total(const float* sums, double counted, int64_t M, T* loss) {
  __shared__ double room[32];
  constexpr int unroll = 16;
  double total = 0.0;
  for (int64_t begin = threadIdx.x; begin < M; begin += unroll * blockDim.x) {
    float losses[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int64_t row = begin + u * blockDim.x;
      losses[u] = row < M ? __ldcg(sums + row) : 0.0f;
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) total += static_cast<double>(losses[u]);
  }
  total = ak::block_reduce<ak::Sum>(total, 0.0, room);
  if (MEAN) total /= counted;
  if (threadIdx.x == 0) *loss = ak::from_float<T>(static_cast<float>(total));
}

}  // namespace

/// `group` lanes hold a row.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    cross_entropy_warps(const T* __restrict__ logits, const int64_t* __restrict__ targets, const T* __restrict__ weight,
                        T* __restrict__ losses, float* __restrict__ sums, int64_t M, int64_t V, int64_t row_step, int64_t target_step,
                        int64_t weight_step, int64_t loss_step, int64_t ignore_index, float smoothing, int64_t group) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const Weights weights{weight, weight_step};
  const int lanes = static_cast<int>(group), lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (32 * WARPS / lanes) + threadIdx.x / lanes;
  const int64_t target = row < M ? targets[row * target_step] : ignore_index;
  const bool reads = is_read(target, V, ignore_index);
  const T* const x = logits + (reads ? row : 0) * row_step;
  const int count = reads ? static_cast<int>(V) : 0;
  const float centre = reads ? centre_of(x) : 0.0f;
  uint4 v[SHORT];
  ak::load_row<T>(v, x, count, lane, lanes, ak::splat<T>(-ak::infinity()));
  Row found = no_logits();
  take(found, v, lane * L, int64_t{lanes} * L, count, centre, weights);
  found = ak::warp_reduce<Join>(found, lanes);
  if (lane > 0 || row >= M) return;
  const float loss =
      reads ? loss_of(found, ak::to_float(x[target]), centre, weights.at(target), V, smoothing) : unread_loss(target, ignore_index);
  write_loss(loss, row, losses, sums, loss_step);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_rows(const T* __restrict__ logits, const int64_t* __restrict__ targets, const T* __restrict__ weight,
                       T* __restrict__ losses, float* __restrict__ sums, int* __restrict__ ticket, int64_t V, int64_t row_step,
                       int64_t target_step, int64_t weight_step, int64_t loss_step, int64_t ignore_index, float smoothing) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t row = blockIdx.x;
  const float loss = read_row(logits + row * row_step, targets[row * target_step], {weight, weight_step}, V, ignore_index, smoothing);
  if (threadIdx.x > 0) return;
  write_loss(loss, row, losses, sums, loss_step);
  if (LAST && row == 0) *ticket = 0;
}

/// The last rows of M. The block that ends last adds up the losses of all, in order.
extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_last_rows(const T* __restrict__ logits, const int64_t* __restrict__ targets, const T* __restrict__ weight, float* sums,
                            int* ticket, T* __restrict__ loss, int64_t M, int64_t V, int64_t row_step, int64_t target_step,
                            int64_t weight_step, int64_t ignore_index, float smoothing) {
  __shared__ bool is_last;
  ak::let_next_launch_begin();  // the launch before has waited for the one before it: the inputs are there
  const Weights weights{weight, weight_step};
  const int64_t row = M - gridDim.x + blockIdx.x;
  const float own = read_row(logits + row * row_step, targets[row * target_step], weights, V, ignore_index, smoothing);
  ak::wait_for_previous_launch();
  if (threadIdx.x == 0) {
    sums[row] = own;
    __threadfence();
    is_last = atomicAdd(ticket, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const double counted = weight_of_targets(targets, weights, M, V, target_step, ignore_index);
  write_total(sums, counted, M, loss);
}

/// Part p of row r goes to parts[r * parts_of_row + p].
extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_parts(const T* __restrict__ logits, const int64_t* __restrict__ targets, const T* __restrict__ weight,
                        Row* __restrict__ parts, int64_t V, int64_t row_step, int64_t target_step, int64_t weight_step,
                        int64_t ignore_index, int64_t parts_of_row) {
  __shared__ Row room[32];
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t row = blockIdx.x / parts_of_row;
  Logits part(logits + row * row_step, V, blockIdx.x % parts_of_row, parts_of_row);
  if (!is_read(targets[row * target_step], V, ignore_index)) return;
  const Row found = part.read(centre_of(logits + row * row_step), {weight, weight_step});
  const Row all = ak::block_reduce<Join>(found, no_logits(), room);
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(32)
    cross_entropy_merge(const T* __restrict__ logits, const int64_t* __restrict__ targets, const T* __restrict__ weight, const Row* parts,
                        T* __restrict__ losses, float* __restrict__ sums, int64_t V, int64_t row_step, int64_t target_step,
                        int64_t weight_step, int64_t loss_step, int64_t ignore_index, float smoothing, int64_t parts_of_row) {
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t target = targets[blockIdx.x * target_step];
  const bool reads = is_read(target, V, ignore_index);
  Row found = no_logits();
  for (int64_t part = threadIdx.x; reads && part < parts_of_row; part += 32)
    found = Join::join(found, parts[blockIdx.x * parts_of_row + part]);
  found = ak::warp_reduce<Join>(found);
  if (threadIdx.x > 0) return;
  logits += blockIdx.x * row_step;
  const float loss =
      reads ? loss_of(found, ak::to_float(logits[target]), centre_of(logits), Weights{weight, weight_step}.at(target), V, smoothing)
            : unread_loss(target, ignore_index);
  write_loss(loss, blockIdx.x, losses, sums, loss_step);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_strided(const T* __restrict__ logits, const int64_t* __restrict__ targets, const T* __restrict__ weight,
                          T* __restrict__ losses, float* __restrict__ sums, int64_t V, int64_t row_step, int64_t column_step,
                          int64_t target_step, int64_t weight_step, int64_t loss_step, int64_t ignore_index, float smoothing) {
  __shared__ Row room[32];
  ak::wait_for_previous_launch();
  ak::let_next_launch_begin();
  const int64_t target = targets[blockIdx.x * target_step];
  if (!is_read(target, V, ignore_index)) {
    if (threadIdx.x == 0) write_loss(unread_loss(target, ignore_index), blockIdx.x, losses, sums, loss_step);
    return;
  }
  const Weights weights{weight, weight_step};
  logits += blockIdx.x * row_step;
  const float at_target = ak::to_float(logits[target * column_step]), centre = centre_of(logits), of_target = weights.at(target);
  Row found = no_logits();
  constexpr int unroll = 4;
  for (int64_t i = threadIdx.x; i < V; i += unroll * THREADS) {
    float values[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int64_t place = i + u * THREADS;
      values[u] = place < V ? ak::to_float(logits[place * column_step]) : -ak::infinity();
      if (SMOOTHED && place < V) found.add_linear(values[u], centre, weights.at(place));
    }
    ak::add_exponentials<T>(found.powers, values);
  }
  found = ak::block_reduce<Join>(found, no_logits(), room);
  if (threadIdx.x == 0) write_loss(loss_of(found, at_target, centre, of_target, V, smoothing), blockIdx.x, losses, sums, loss_step);
}

/// A small block: it waits where the blocks before it leave room.
extern "C" __global__ void __launch_bounds__(1024)
    cross_entropy_total(const float* sums, const int64_t* __restrict__ targets, const T* __restrict__ weight, T* __restrict__ loss,
                        int64_t M, int64_t V, int64_t target_step, int64_t weight_step, int64_t ignore_index) {
  ak::let_next_launch_begin();
  // The launch before has waited for who wrote the targets.
  const double counted = weight_of_targets(targets, {weight, weight_step}, M, V, target_step, ignore_index);
  ak::wait_for_previous_launch();
  write_total(sums, counted, M, loss);
}
