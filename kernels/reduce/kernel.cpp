/*autokernel
family  = "reduce"
backend = "cpu"

[tune]
ROWS     = { values = [1, 2, 4, 8, 16, 64],           default = 8,     tier = 1 }   # rows of a block, reduced one after the other
COLUMNS  = { values = [16, 64, 128, 256, 512, 1024],  default = 256,   tier = 1 }   # results of a block, reduced side by side
SPAN     = { values = [4096, 16384, 65536, 1048576],  default = 65536, tier = 4 }   # elements of a row, above which it is split over blocks
DEPTH    = { values = [64, 256, 1024, 4096],          default = 1024,  tier = 4 }   # the same for results side by side
UNROLL   = { values = [1, 2, 4, 8],                   default = 4,     tier = 3 }   # vectors in flight
DEEP     = { values = [1, 4, 8, 16, 32],              default = 8,     tier = 3 }   # rows added to a strip of results in registers
PREFETCH = { values = [0, 256, 1024, 4096],           default = 4096,  tier = 2 }   # bytes ahead in a row; 0 leaves it to the machine
VECTOR   = { values = [1, 2],                         default = 1,     tier = 5 }   # the widest register, or half of it

[scratch.parts]                               # results of the parts of a split reduction, part by part
dtype = "float32"
shape = ["max(cdiv(N, SPAN), cdiv(N, DEPTH)) * OUTER * INNER"]

# The rows of a matrix, contiguous: along each row.
[[variant]]
when = "INNER == 1 && x.stride(1) == 1 && N <= SPAN"
[[variant.launch]]
kernel = "reduce_rows"
grid   = ["cdiv(OUTER, ROWS)"]
args   = ["x", "out", "OUTER", "N", "x.stride(0)", "out.stride(0)"]
[[variant]]
when = "INNER == 1 && x.stride(1) == 1"
[[variant.launch]]
kernel = "reduce_row_parts"
grid   = ["OUTER * cdiv(N, SPAN)"]
args   = ["x", "parts", "OUTER", "N", "x.stride(0)"]
[[variant.launch]]
kernel = "reduce_parts"
grid   = ["cdiv(OUTER, COLUMNS)"]
args   = ["parts", "out", "cdiv(N, SPAN)", "1", "OUTER", "N", "out.stride(0)", "out.stride(0)"]

# The rows of a transposed matrix: side by side.
[[variant]]
when = "INNER == 1 && N <= DEPTH"
[[variant.launch]]
kernel = "reduce_columns"
grid   = ["cdiv(OUTER, COLUMNS)"]
args   = ["x", "out", "1", "N", "OUTER", "x.stride(0)", "x.stride(1)", "x.stride(0)", "out.stride(0)", "out.stride(0)"]
[[variant]]
when = "INNER == 1"
[[variant.launch]]
kernel = "reduce_column_parts"
grid   = ["cdiv(N, DEPTH) * cdiv(OUTER, COLUMNS)"]
args   = ["x", "parts", "1", "N", "OUTER", "x.stride(0)", "x.stride(1)", "x.stride(0)"]
[[variant.launch]]
kernel = "reduce_parts"
grid   = ["cdiv(OUTER, COLUMNS)"]
args   = ["parts", "out", "cdiv(N, DEPTH)", "1", "OUTER", "N", "out.stride(0)", "out.stride(0)"]

# A dimension in the middle.
[[variant]]
when = "N <= DEPTH"
[[variant.launch]]
kernel = "reduce_columns"
grid   = ["OUTER * cdiv(INNER, COLUMNS)"]
args   = ["x", "out", "OUTER", "N", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)", "out.stride(0)", "out.stride(1)"]

[[launch]]
kernel = "reduce_column_parts"
grid   = ["OUTER * cdiv(N, DEPTH) * cdiv(INNER, COLUMNS)"]
args   = ["x", "parts", "OUTER", "N", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)"]
[[launch]]
kernel = "reduce_parts"
grid   = ["OUTER * cdiv(INNER, COLUMNS)"]
args   = ["parts", "out", "cdiv(N, DEPTH)", "OUTER", "INNER", "N", "out.stride(0)", "out.stride(1)"]

[[recipe]]
name = "enough blocks"
tier = 1
when = "OUTER * INNER < 64"
gain = "up to the number of idle threads"
text = """
Few results and many elements: lower SPAN or DEPTH, so that every thread has a part. The parts are merged in order, whatever the
number of threads."""
[[recipe]]
name = "lines side by side"
tier = 2
when = "INNER > 1"
gain = "1.5x where INNER is large"
text = """
COLUMNS * sizeof(T) bytes are read at a time, then the next row of them: below a few lines the machine's own prefetching does not
help."""
[[recipe]]
name = "bytes in flight"
tier = 2
when = "N > 4096"
gain = "1.1x"
text = "One core waits for memory more than it adds. PREFETCH further ahead, and UNROLL, keep more lines in flight."
[[recipe]]
name = "whole matrix as one row"
tier = 6
when = "OUTER == 1 && INNER == 1"
gain = "1.1x"
text = "A sum over everything needs no row at all: read in 4 streams a quarter of the part apart, each with its own sum."
*/
#include <autokernel/cpu.h>

namespace {

constexpr int W = ak::native_lanes / VECTOR;
using Vec = ak::Floats<W>;
constexpr bool is_sum = OP < 2;
constexpr float neutral = is_sum ? 0.0f : OP == 2 ? -__builtin_inff() : __builtin_inff();

/// The extreme of two vectors or floats, NaN where either is NaN.
template <class V>
V extreme(V v, V so_far) {
  if constexpr (OP == 2) {
    return (v > so_far) | (v != v) ? v : so_far;
  } else {
    return (v < so_far) | (v != v) ? v : so_far;
  }
}

float finish(double sum, int64_t N) { return static_cast<float>(OP == 1 ? sum / static_cast<double>(N) : sum); }

/// The sum or extreme of `count` elements that lie side by side. Sums are in double: a sum that cancels is then right to its last bits.
double reduce_packed(const T* x, int64_t count) {
  const auto term = [&](int64_t i) {
    if (PREFETCH) __builtin_prefetch(reinterpret_cast<const char*>(x + i) + PREFETCH);
    return ak::load<W>(x + i);
  };
  const auto tail = [&](int64_t i, int64_t n) { return ak::load_first<W>(x + i, n, neutral); };
  if constexpr (is_sum) {
    return ak::sum_exactly<W, UNROLL>(count, term, tail);
  } else {
    return static_cast<double>(
        ak::fold_terms<W, UNROLL>(count, neutral, term, tail, [](auto v, auto so_far) { return extreme(v, so_far); }));
  }
}

/// Results side by side: sums in double, extremes in float.
template <bool sums>
struct Columns;
template <>
struct Columns<true> {
  using Element = double;
  using Strip = ak::WideSum<W>;
  static void read(Strip& strip, const double* p) { strip.read(p); }
  static void write(const Strip& strip, double* p) { strip.write(p); }
  static void take(Strip& so_far, const Vec& v) { so_far.add(v); }
  static void take(double& so_far, float v) { so_far += static_cast<double>(v); }
};
template <>
struct Columns<false> {
  using Element = float;
  using Strip = Vec;
  static void read(Strip& strip, const float* p) { strip = ak::load<W>(p); }
  static void write(const Strip& strip, float* p) { ak::store<W>(p, strip); }
  static void take(Vec& so_far, const Vec& v) { so_far = extreme(v, so_far); }
  static void take(float& so_far, float v) { so_far = extreme(v, so_far); }
};
using Results = Columns<is_sum>;
using Element = Results::Element;

/// `rows` rows of columns that lie side by side; a strip of results stays in registers over the rows.
template <class E>
void take_rows(const E* x, int64_t rows, int64_t step, int64_t width, Element* results) {
  int64_t c = 0;
  for (; c + W <= width; c += W) {
    Results::Strip so_far;
    Results::read(so_far, results + c);
    for (int64_t r = 0; r < rows; ++r) Results::take(so_far, ak::load<W>(x + r * step + c));
    Results::write(so_far, results + c);
  }
  for (; c < width; ++c) {
    for (int64_t r = 0; r < rows; ++r) Results::take(results[c], static_cast<float>(x[r * step + c]));
  }
}

/// Rows [0, N) of `width` columns into `results`.
template <class E>
void reduce_strip(const E* x, int64_t N, int64_t step, int64_t column_step, int64_t width, Element* results) {
  for (int64_t c = 0; c < width; ++c) results[c] = static_cast<Element>(neutral);
  if (column_step == 1) {
    for (int64_t n = 0; n < N; n += DEEP) take_rows(x + n * step, N - n < DEEP ? N - n : DEEP, step, width, results);
    return;
  }
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t c = 0; c < width; ++c) Results::take(results[c], static_cast<float>(x[n * step + c * column_step]));
  }
}

struct Strip {
  int64_t outer, begin, width;
};

/// Block `block` of `strips` strips of COLUMNS columns in each of the outer slices.
Strip strip_of(int64_t block, int64_t inner) {
  const int64_t strips = (inner + COLUMNS - 1) / COLUMNS;
  const int64_t begin = block % strips * COLUMNS;
  return {block / strips, begin, inner - begin < COLUMNS ? inner - begin : COLUMNS};
}

}  // namespace

void reduce_rows(int64_t block, int64_t worker, void* scratch, const T* x, T* out, int64_t outer, int64_t N, int64_t x_row,
                 int64_t out_step) {
  const int64_t end = (block + 1) * ROWS < outer ? (block + 1) * ROWS : outer;
  for (int64_t row = block * ROWS; row < end; ++row) out[row * out_step] = static_cast<T>(finish(reduce_packed(x + row * x_row, N), N));
}
AK_KERNEL(reduce_rows)

/// Part p of row r goes to parts[p * outer + r].
void reduce_row_parts(int64_t block, int64_t worker, void* scratch, const T* x, float* parts, int64_t outer, int64_t N, int64_t x_row) {
  const int64_t row = block % outer, part = block / outer;
  const int64_t begin = part * SPAN;
  parts[part * outer + row] = static_cast<float>(reduce_packed(x + row * x_row + begin, N - begin < SPAN ? N - begin : SPAN));
}
AK_KERNEL(reduce_row_parts)

void reduce_columns(int64_t block, int64_t worker, void* scratch, const T* x, T* out, int64_t outer, int64_t N, int64_t inner,
                    int64_t x_outer, int64_t x_step, int64_t x_inner, int64_t out_outer, int64_t out_inner) {
  const Strip strip = strip_of(block, inner);
  alignas(64) Element results[COLUMNS];
  reduce_strip(x + strip.outer * x_outer + strip.begin * x_inner, N, x_step, x_inner, strip.width, results);
  T* const target = out + strip.outer * out_outer + strip.begin * out_inner;
  for (int64_t c = 0; c < strip.width; ++c) target[c * out_inner] = static_cast<T>(finish(results[c], N));
}
AK_KERNEL(reduce_columns)

/// Part p of outer slice o goes to parts[(p * outer + o) * inner …].
void reduce_column_parts(int64_t block, int64_t worker, void* scratch, const T* x, float* parts, int64_t outer, int64_t N, int64_t inner,
                         int64_t x_outer, int64_t x_step, int64_t x_inner) {
  const Strip strip = strip_of(block, inner);
  const int64_t slice = strip.outer % outer, part = strip.outer / outer;
  const int64_t begin = part * DEPTH;
  alignas(64) Element results[COLUMNS];
  const T* const from = x + slice * x_outer + begin * x_step + strip.begin * x_inner;
  reduce_strip(from, N - begin < DEPTH ? N - begin : DEPTH, x_step, x_inner, strip.width, results);
  float* const target = parts + strip.outer * inner + strip.begin;
  for (int64_t c = 0; c < strip.width; ++c) target[c] = static_cast<float>(results[c]);
}
AK_KERNEL(reduce_column_parts)

void reduce_parts(int64_t block, int64_t worker, void* scratch, const float* parts, T* out, int64_t count, int64_t outer, int64_t inner,
                  int64_t N, int64_t out_outer, int64_t out_inner) {
  const Strip strip = strip_of(block, inner);
  alignas(64) Element results[COLUMNS];
  reduce_strip(parts + strip.outer * inner + strip.begin, count, outer * inner, 1, strip.width, results);
  T* const target = out + strip.outer * out_outer + strip.begin * out_inner;
  for (int64_t c = 0; c < strip.width; ++c) target[c * out_inner] = static_cast<T>(finish(results[c], N));
}
AK_KERNEL(reduce_parts)
