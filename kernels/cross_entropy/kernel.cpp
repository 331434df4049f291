/*autokernel
family  = "cross_entropy"
backend = "cpu"

[tune]
ROWS     = { values = [1, 2, 4, 8, 16, 32],         default = 2,    tier = 1 }   # rows of a block
CHUNK    = { values = [512, 1024, 2048, 4096, 8192, 1048576], default = 4096, tier = 4 }   # elements between two looks at the maximum
UNROLL   = { values = [1, 2, 4, 8],                 default = 4,    tier = 3 }   # vectors in flight
PREFETCH = { values = [0, 1],                       default = 1,    tier = 2 }   # fetch the next chunk while exponentials are computed
DEGREE   = { values = [5, 6],                       default = 6,    tier = 3 }   # of the polynomial in exp
VECTOR   = { values = [1, 2],                       default = 1,    tier = 5 }   # the widest register, or half of it

[scratch.room]                                # a row of logits, where their stride is not 1
dtype = "float32"
shape = ["V"]
per_worker = true
[scratch.sums]                                # the loss of each row, when they are reduced
dtype = "float32"
shape = ["REDUCED ? M : 1"]

[[launch]]
kernel = "cross_entropy_rows"
grid   = ["cdiv(M, ROWS)"]
args   = ["logits", "targets", "weight", "losses", "sums", "M", "V", "logits.stride(0)", "logits.stride(1)", "targets.stride(0)",
          "weight.stride(0)", "losses.stride(0)", "ignore_index", "smoothing"]

[[launch]]
kernel = "cross_entropy_total"
grid   = ["1"]
when   = "REDUCED"
args   = ["sums", "targets", "weight", "loss", "M", "V", "targets.stride(0)", "weight.stride(0)", "ignore_index"]

[[recipe]]
name = "chunks that stay in the first cache"
tier = 4
when = "V > CHUNK"
gain = "one read of memory, the second from the cache"
text = "A chunk is read for its maximum and again for its exponentials; sums of chunks are merged. Half of the first cache is a good size."
[[recipe]]
name = "skip the maximum"
tier = 6
when = "V > 1024"
gain = "one of two passes over the first cache"
text = """
Keep the running maximum of the chunks before, and look for a larger one while summing: only where the sum of a chunk overflows or
is not finite has it to be done again. The result must not depend on which way was taken by more than rounding."""
[[recipe]]
name = "cheaper exponential"
tier = 3
when = "sizeof(T) == 2"
gain = "1.1x where it is not bound by memory"
text = "DEGREE = 5 has 2 ulp of float32, far below what 16-bit logits resolve."
[[recipe]]
name = "split the row"
tier = 4
when = "M < workers"
gain = "up to the number of idle threads"
text = """
With fewer rows than threads give a block a part of a row, write maximum and sum of each part to scratch, and merge them in the
second launch. The number of parts must not depend on the number of threads."""
*/
#include <autokernel/cpu.h>

namespace {

constexpr int W = ak::native_lanes / VECTOR;
using Vec = ak::Floats<W>;
constexpr float infinity = __builtin_inff();

struct Part {
  float maximum;  // what the exponentials are relative to
  double sum;
};

float exp_one(float x) { return ak::exp<W>(ak::splat<W>(x))[0]; }

/// The maximum of a chunk, and the sum of its exponentials relative to it.
Part sum_chunk(const T* x, int64_t count, const T* next) {
  const float top = ak::fold_terms<W, UNROLL>(
      count, -infinity, [&](int64_t i) { return ak::load<W>(x + i); },
      [&](int64_t i, int64_t n) { return ak::load_first<W>(x + i, n, -infinity); },
      [](auto v, auto so_far) { return v > so_far ? v : so_far; });  // a NaN is lost here, and comes back through the sum
  const float pivot = top == -infinity ? 0.0f : top;
  const double sum = ak::sum_terms<W, UNROLL>(
      count,
      [&](int64_t i) {
        if (PREFETCH && next) __builtin_prefetch(next + i);
        return ak::exp<W, DEGREE>(ak::load<W>(x + i) - pivot);
      },
      [&](int64_t i, int64_t n) { return ak::exp<W, DEGREE>(ak::load_first<W>(x + i, n, -infinity) - pivot); });
  return {top, sum};
}

/// Sums relative to two maxima, as one.
Part merge(const Part& a, const Part& b) {
  if (a.maximum == b.maximum) return {a.maximum, a.sum + b.sum};
  const float top = a.maximum > b.maximum ? a.maximum : b.maximum;
  return {top, a.sum * exp_one(a.maximum - top) + b.sum * exp_one(b.maximum - top)};
}

/// The maximum of a row and the sum of its exponentials, over a row read once from memory.
Part sum_row(const T* x, int64_t V, const T* next_row) {
  Part whole = {-infinity, 0.0};
  for (int64_t begin = 0; begin < V; begin += CHUNK) {
    const int64_t count = V - begin < CHUNK ? V - begin : CHUNK;
    const T* const next = begin + count == V ? next_row : V - begin >= 2 * CHUNK ? x + begin + CHUNK : nullptr;
    const Part part = sum_chunk(x + begin, count, next);
    whole = begin == 0 ? part : merge(whole, part);
  }
  return whole;
}

/// The weights of the classes; without them all are 1.
struct Weights {
  const T* first;
  int64_t step;

  float at(int64_t label) const { return WEIGHTED ? static_cast<float>(first[label * step]) : 1.0f; }
};

/// The sum over the classes of weight * -log(probability), over V. Logits are taken relative to the maximum: they cancel.
double even_loss(const T* x, int64_t V, float maximum, double log_sum, const Weights& weights) {
  double distances = 0.0, whole = static_cast<double>(V);
  if (!WEIGHTED || weights.step == 1) {
    const auto weight = [&](int64_t i) { return WEIGHTED ? ak::load<W>(weights.first + i) : ak::splat<W>(1.0f); };
    const auto last_weights = [&](int64_t i, int64_t n) {
      return WEIGHTED ? ak::load_first<W>(weights.first + i, n, 0.0f) : ak::splat<W>(1.0f);
    };
    distances = ak::sum_exactly<W, UNROLL>(
        V, [&](int64_t i) { return (maximum - ak::load<W>(x + i)) * weight(i); },
        [&](int64_t i, int64_t n) { return (maximum - ak::load_first<W>(x + i, n, maximum)) * last_weights(i, n); });
    if (WEIGHTED) whole = ak::sum_exactly<W, UNROLL>(V, weight, last_weights);
  } else {
    whole = 0.0;
    for (int64_t i = 0; i < V; ++i) {
      whole += static_cast<double>(weights.at(i));
      distances += static_cast<double>((maximum - static_cast<float>(x[i])) * weights.at(i));
    }
  }
  return (distances + log_sum * whole) / static_cast<double>(V);
}

bool counts(int64_t target, int64_t V, int64_t ignore_index) { return target != ignore_index && target >= 0 && target < V; }

float loss_of(const T* x, int64_t V, int64_t target, float smoothing, const Weights& weights, const T* next_row) {
  if (target < 0 || target >= V) return __builtin_nanf("");  // PyTorch refuses such a target
  const Part row = sum_row(x, V, next_row);
  const double log_sum = __builtin_log(row.sum);
  const double distance = static_cast<double>(row.maximum) - static_cast<double>(static_cast<float>(x[target]));
  const double loss = static_cast<double>(weights.at(target)) * (distance + log_sum);
  if (!SMOOTHED) return static_cast<float>(loss);
  const double share = static_cast<double>(smoothing);
  return static_cast<float>((1.0 - share) * loss + share * even_loss(x, V, row.maximum, log_sum, weights));
}

}  // namespace

void cross_entropy_rows(int64_t block, int64_t worker, void* scratch, const T* logits, const int64_t* targets, const T* weight, T* losses,
                        float* sums, int64_t M, int64_t V, int64_t row_step, int64_t column_step, int64_t target_step, int64_t weight_step,
                        int64_t loss_step, int64_t ignore_index, float smoothing) {
  const int64_t end = (block + 1) * ROWS < M ? (block + 1) * ROWS : M;
  for (int64_t row = block * ROWS; row < end; ++row) {
    const int64_t target = targets[row * target_step];
    float loss = 0.0f;
    if (target != ignore_index) {
      const T* const packed = ak::packed_row(logits + row * row_step, column_step, V, static_cast<T*>(scratch));
      const bool has_next = column_step == 1 && row + 1 < M && V <= CHUNK;
      loss = loss_of(packed, V, target, smoothing, {weight, weight_step}, has_next ? logits + (row + 1) * row_step : nullptr);
    }
    if (REDUCED) {
      sums[row] = loss;
    } else {
      losses[row * loss_step] = static_cast<T>(loss);
    }
  }
}
AK_KERNEL(cross_entropy_rows)

/// The sum of the losses, or their mean over the weights of the targets that count (NaN where none does). One thread, always in the same
/// order.
void cross_entropy_total(int64_t block, int64_t worker, void* scratch, const float* sums, const int64_t* targets, const T* weight, T* loss,
                         int64_t M, int64_t V, int64_t target_step, int64_t weight_step, int64_t ignore_index) {
  double total = ak::sum_exactly<W, 1>(
      M, [&](int64_t i) { return ak::load<W>(sums + i); }, [&](int64_t i, int64_t n) { return ak::load_first<W>(sums + i, n, 0.0f); });
  if (MEAN) {
    const Weights weights{weight, weight_step};
    double counted = 0.0;
    for (int64_t row = 0; row < M; ++row) {
      const int64_t target = targets[row * target_step];
      if (counts(target, V, ignore_index)) counted += static_cast<double>(weights.at(target));
    }
    total /= counted;
  }
  *loss = static_cast<T>(static_cast<float>(total));
}
AK_KERNEL(cross_entropy_total)
