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

[scratch.parts]                               # results of the parts of a split reduction, part by part: 8 bytes each, or 16 with a place
dtype = "int64"
shape = ["max(cdiv(N, SPAN), cdiv(N, DEPTH)) * OUTER * INNER * (OP == 4 || OP == 5 ? 2 : 1)"]

# The rows of a matrix, contiguous: along each row.
[[variant]]
when = "INNER == 1 && x.stride(1) == 1 && N <= SPAN"
[[variant.launch]]
kernel = "reduce_rows"
grid   = ["cdiv(OUTER, ROWS)"]
args   = ["x", "out", "index", "OUTER", "N", "x.stride(0)", "out.stride(0) + index.stride(0)"]
[[variant]]
when = "INNER == 1 && x.stride(1) == 1"
[[variant.launch]]
kernel = "reduce_row_parts"
grid   = ["OUTER * cdiv(N, SPAN)"]
args   = ["x", "parts", "OUTER", "N", "x.stride(0)"]
[[variant.launch]]
kernel = "reduce_parts"
grid   = ["cdiv(OUTER, COLUMNS)"]
args   = ["parts", "out", "index", "cdiv(N, SPAN)", "1", "OUTER", "N", "out.stride(0) + index.stride(0)",
          "out.stride(0) + index.stride(0)"]

# The rows of a transposed matrix: side by side.
[[variant]]
when = "INNER == 1 && N <= DEPTH"
[[variant.launch]]
kernel = "reduce_columns"
grid   = ["cdiv(OUTER, COLUMNS)"]
args   = ["x", "out", "index", "1", "N", "OUTER", "x.stride(0)", "x.stride(1)", "x.stride(0)", "out.stride(0) + index.stride(0)",
          "out.stride(0) + index.stride(0)"]
[[variant]]
when = "INNER == 1"
[[variant.launch]]
kernel = "reduce_column_parts"
grid   = ["cdiv(N, DEPTH) * cdiv(OUTER, COLUMNS)"]
args   = ["x", "parts", "1", "N", "OUTER", "x.stride(0)", "x.stride(1)", "x.stride(0)"]
[[variant.launch]]
kernel = "reduce_parts"
grid   = ["cdiv(OUTER, COLUMNS)"]
args   = ["parts", "out", "index", "cdiv(N, DEPTH)", "1", "OUTER", "N", "out.stride(0) + index.stride(0)",
          "out.stride(0) + index.stride(0)"]

# A dimension in the middle.
[[variant]]
when = "N <= DEPTH"
[[variant.launch]]
kernel = "reduce_columns"
grid   = ["OUTER * cdiv(INNER, COLUMNS)"]
args   = ["x", "out", "index", "OUTER", "N", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)", "out.stride(0) + index.stride(0)",
          "out.stride(1) + index.stride(1)"]

[[launch]]
kernel = "reduce_column_parts"
grid   = ["OUTER * cdiv(N, DEPTH) * cdiv(INNER, COLUMNS)"]
args   = ["x", "parts", "OUTER", "N", "INNER", "x.stride(0)", "x.stride(1)", "x.stride(2)"]
[[launch]]
kernel = "reduce_parts"
grid   = ["OUTER * cdiv(INNER, COLUMNS)"]
args   = ["parts", "out", "index", "cdiv(N, DEPTH)", "OUTER", "INNER", "N", "out.stride(0) + index.stride(0)",
          "out.stride(1) + index.stride(1)"]

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
constexpr bool is_extreme = OP >= 2 && OP <= 5, is_largest = OP == 2 || OP == 4, has_place = OP == 4 || OP == 5;
constexpr bool is_mean = OP == 1, is_product = OP == 6, is_norm = OP == 7;
constexpr float neutral = is_extreme ? (is_largest ? -__builtin_inff() : __builtin_inff()) : is_product ? 1.0f : 0.0f;
constexpr int64_t nowhere = 0x7fffffffffffffff;

/// An element and where it is in the reduced dimension.
struct Found {
  float value;
  int64_t place;
};

// Sums and products are in double: those that cancel, overflow or vanish in between are then right to their last bits.
template <bool extreme, bool place>
struct ResultOf {
  using Type = double;
};
template <>
struct ResultOf<true, false> {
  using Type = float;
};
template <>
struct ResultOf<true, true> {
  using Type = Found;
};
using Result = ResultOf<is_extreme, has_place>::Type;

/// The extreme of two vectors or floats, NaN where either is NaN.
template <class V>
V extreme(V v, V so_far) {
  if constexpr (is_largest) {
    return (v > so_far) | (v != v) ? v : so_far;
  } else {
    return (v < so_far) | (v != v) ? v : so_far;
  }
}
/// Whether `a` comes before `b` in the order that the extreme is the first of: NaN first.
bool beats(float a, float b) { return (is_largest ? a > b : a < b) || (a != a && b == b); }

void set_nothing(double& result) { result = static_cast<double>(neutral); }
void set_nothing(float& result) { result = neutral; }
void set_nothing(Found& result) { result = {neutral, nowhere}; }

/// Take in the element at `place`.
void take(double& so_far, float x, int64_t) {
  const double wide = static_cast<double>(x);
  so_far = is_norm ? so_far + wide * wide : is_product ? so_far * wide : so_far + wide;
}
void take(float& so_far, float x, int64_t) { so_far = extreme(x, so_far); }
void take(Found& so_far, float x, int64_t place) {
  if (beats(x, so_far.value) || so_far.place == nowhere) so_far = {x, place};
}

/// Take in the result of the part after.
void join(double& so_far, double part) { so_far = is_product ? so_far * part : so_far + part; }
void join(float& so_far, float part) { so_far = extreme(part, so_far); }
void join(Found& so_far, const Found& part) {
  if (beats(part.value, so_far.value) || so_far.place == nowhere) so_far = part;
}

void write(double result, int64_t N, T* out, int64_t*, int64_t at) {
  out[at] = static_cast<T>(static_cast<float>(is_mean ? result / static_cast<double>(N) : is_norm ? __builtin_sqrt(result) : result));
}
void write(float result, int64_t, T* out, int64_t*, int64_t at) { out[at] = static_cast<T>(result); }
void write(const Found& result, int64_t, T*, int64_t* index, int64_t at) { index[at] = result.place == nowhere ? -1 : result.place; }

/// Lanes in double.
using Wide = ak::WideSum<W>;

void take(Wide& so_far, const Vec& v) {
  using Part = ak::Floats<W / 2>;
  const auto low = __builtin_convertvector(ak::lower_half<Part>(v), Wide::Half);
  const auto high = __builtin_convertvector(ak::upper_half<Part>(v), Wide::Half);
  so_far.low = is_norm ? so_far.low + low * low : is_product ? so_far.low * low : so_far.low + low;
  so_far.high = is_norm ? so_far.high + high * high : is_product ? so_far.high * high : so_far.high + high;
}
Wide nothing_wide() {
  Wide wide;
  wide.low += static_cast<double>(neutral);
  wide.high += static_cast<double>(neutral);
  return wide;
}
double fold(const Wide& wide) {
  double lanes[W], result = static_cast<double>(neutral);
  wide.write(lanes);
  for (int i = 0; i < W; ++i) join(result, lanes[i]);
  return result;
}

Vec load_ahead(const T* p) {
  if (PREFETCH) __builtin_prefetch(reinterpret_cast<const char*>(p) + PREFETCH);
  return ak::load<W>(p);
}

/// What the operation makes of `count` elements that lie side by side, the first of them at `first` in the reduced dimension.
void reduce_packed(double& result, const T* x, int64_t count, int64_t) {
  constexpr int64_t step = int64_t{W} * UNROLL;
  Wide so_far[UNROLL];
  for (Wide& each : so_far) each = nothing_wide();
  int64_t i = 0;
  for (; i + step <= count; i += step) {
#pragma GCC unroll 8
    for (int u = 0; u < UNROLL; ++u) take(so_far[u], load_ahead(x + i + u * W));
  }
  for (; i + W <= count; i += W) take(so_far[0], ak::load<W>(x + i));
  if (i < count) take(so_far[UNROLL - 1], ak::load_first<W>(x + i, count - i, neutral));
  set_nothing(result);
  for (const Wide& each : so_far) join(result, fold(each));
}
void reduce_packed(float& result, const T* x, int64_t count, int64_t) {
  result = ak::fold_terms<W, UNROLL>(
      count, neutral, [&](int64_t i) { return load_ahead(x + i); },
      [&](int64_t i, int64_t n) { return ak::load_first<W>(x + i, n, neutral); }, [](auto v, auto so_far) { return extreme(v, so_far); });
}
/// A piece is looked through for a place only where its extreme beats all before.
void reduce_packed(Found& result, const T* x, int64_t count, int64_t first) {
  constexpr int64_t piece = 1024;
  set_nothing(result);
  for (int64_t begin = 0; begin < count; begin += piece) {
    const int64_t end = count - begin < piece ? count : begin + piece;
    float value;
    reduce_packed(value, x + begin, end - begin, 0);
    if (!beats(value, result.value) && result.place != nowhere) continue;
    int64_t i = begin;
    while (beats(value, static_cast<float>(x[i]))) ++i;
    result = {value, first + i};
  }
}

/// Results side by side, a strip of which stays in registers over the rows.
template <class R>
struct Strip;
template <>
struct Strip<double> {
  Wide lanes;
  explicit Strip(const double* p) { lanes.read(p); }
  void write(double* p) const { lanes.write(p); }
  void take(const Vec& v) { ::take(lanes, v); }
};
template <>
struct Strip<float> {
  Vec lanes;
  explicit Strip(const float* p) : lanes(ak::load<W>(p)) {}
  void write(float* p) const { ak::store<W>(p, lanes); }
  void take(const Vec& v) { lanes = extreme(v, lanes); }
};

/// `rows` rows of columns that lie side by side, the first row at `first` in the reduced dimension.
template <class R>
void take_rows(R* results, const T* x, int64_t rows, int64_t step, int64_t width, int64_t first) {
  int64_t c = 0;
  if constexpr (!__is_same(R, Found)) {
    for (; c + W <= width; c += W) {
      Strip<R> strip(results + c);
      for (int64_t r = 0; r < rows; ++r) strip.take(ak::load<W>(x + r * step + c));
      strip.write(results + c);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = c; i < width; ++i) take(results[i], static_cast<float>(x[r * step + i]), first + r);
  }
}

/// Rows [0, N) of `width` columns into `results`, row 0 being at `first` in the reduced dimension.
void reduce_strip(Result* results, const T* x, int64_t N, int64_t step, int64_t column_step, int64_t width, int64_t first) {
  for (int64_t c = 0; c < width; ++c) set_nothing(results[c]);
  if (column_step == 1) {
    for (int64_t n = 0; n < N; n += DEEP) take_rows(results, x + n * step, N - n < DEEP ? N - n : DEEP, step, width, first + n);
    return;
  }
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t c = 0; c < width; ++c) take(results[c], static_cast<float>(x[n * step + c * column_step]), first + n);
  }
}

struct Place {
  int64_t outer, begin, width;
};

/// Block `block` of strips of COLUMNS columns in each of the outer slices.
Place place_of(int64_t block, int64_t inner) {
  const int64_t strips = (inner + COLUMNS - 1) / COLUMNS;
  const int64_t begin = block % strips * COLUMNS;
  return {block / strips, begin, inner - begin < COLUMNS ? inner - begin : COLUMNS};
}

}  // namespace

void reduce_rows(int64_t block, int64_t worker, void* scratch, const T* x, T* out, int64_t* index, int64_t outer, int64_t N, int64_t x_row,
                 int64_t out_step) {
  const int64_t end = (block + 1) * ROWS < outer ? (block + 1) * ROWS : outer;
  for (int64_t row = block * ROWS; row < end; ++row) {
    Result result;
    reduce_packed(result, x + row * x_row, N, 0);
    write(result, N, out, index, row * out_step);
  }
}
AK_KERNEL(reduce_rows)

/// Part p of row r goes to parts[p * outer + r].
void reduce_row_parts(int64_t block, int64_t worker, void* scratch, const T* x, Result* parts, int64_t outer, int64_t N, int64_t x_row) {
  const int64_t row = block % outer, begin = block / outer * SPAN;
  reduce_packed(parts[block], x + row * x_row + begin, N - begin < SPAN ? N - begin : SPAN, begin);
}
AK_KERNEL(reduce_row_parts)

void reduce_columns(int64_t block, int64_t worker, void* scratch, const T* x, T* out, int64_t* index, int64_t outer, int64_t N,
                    int64_t inner, int64_t x_outer, int64_t x_step, int64_t x_inner, int64_t out_outer, int64_t out_inner) {
  const Place place = place_of(block, inner);
  alignas(64) Result results[COLUMNS];
  reduce_strip(results, x + place.outer * x_outer + place.begin * x_inner, N, x_step, x_inner, place.width, 0);
  for (int64_t c = 0; c < place.width; ++c) write(results[c], N, out, index, place.outer * out_outer + (place.begin + c) * out_inner);
}
AK_KERNEL(reduce_columns)

/// Part p of outer slice o goes to parts[(p * outer + o) * inner …].
void reduce_column_parts(int64_t block, int64_t worker, void* scratch, const T* x, Result* parts, int64_t outer, int64_t N, int64_t inner,
                         int64_t x_outer, int64_t x_step, int64_t x_inner) {
  const Place place = place_of(block, inner);
  const int64_t slice = place.outer % outer, begin = place.outer / outer * DEPTH;
  const T* const from = x + slice * x_outer + begin * x_step + place.begin * x_inner;
  reduce_strip(parts + place.outer * inner + place.begin, from, N - begin < DEPTH ? N - begin : DEPTH, x_step, x_inner, place.width, begin);
}
AK_KERNEL(reduce_column_parts)

void reduce_parts(int64_t block, int64_t worker, void* scratch, const Result* parts, T* out, int64_t* index, int64_t count, int64_t outer,
                  int64_t inner, int64_t N, int64_t out_outer, int64_t out_inner) {
  const Place place = place_of(block, inner);
  Result results[COLUMNS];
  for (int64_t c = 0; c < place.width; ++c) set_nothing(results[c]);
  for (int64_t part = 0; part < count; ++part) {
    const Result* const from = parts + (part * outer + place.outer) * inner + place.begin;
    for (int64_t c = 0; c < place.width; ++c) join(results[c], from[c]);
  }
  for (int64_t c = 0; c < place.width; ++c) write(results[c], N, out, index, place.outer * out_outer + (place.begin + c) * out_inner);
}
AK_KERNEL(reduce_parts)
