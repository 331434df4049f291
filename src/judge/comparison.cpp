// Two passes over each row: eager's RMS error there, then each element against its budget; at the end the norm of the whole.
#include "judge/comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "core/error.h"
#include "judge/parallel.h"

namespace ak::judge {
namespace {

constexpr double norm_factor = 4;
constexpr int64_t elements_a_thread = 1 << 16;
constexpr int64_t least_norm_elements = 256;  // below, a norm is as strict as one element is exact

int64_t read_integer(Dtype dtype, const std::byte* at) {
  switch (dtype) {
    case Dtype::int64: return read_as<int64_t>(at);
    case Dtype::int32: return read_as<int32_t>(at);
    case Dtype::int16: return read_as<int16_t>(at);
    case Dtype::int8: return read_as<int8_t>(at);
    case Dtype::uint8:
    case Dtype::boolean: return read_as<uint8_t>(at);
    default: AK_CHECK(false, "the dtype is an integer");
  }
}

double largest(Dtype dtype) {
  switch (dtype) {
    case Dtype::float16: return 65504;
    case Dtype::bfloat16: return 3.3895313892515355e38;
    case Dtype::float32: return 3.4028234663852886e38;
    default: return std::numeric_limits<double>::max();
  }
}

/// The reference as far as the output's dtype can hold it.
double representable(Dtype dtype, double value) {
  const double limit = largest(dtype);
  if (std::abs(value) <= limit || !std::isfinite(value)) return value;
  return std::abs(value) < limit + half_ulp(dtype, limit) ? std::copysign(limit, value) : std::copysign(INFINITY, value);
}

bool same_special(double a, double b) { return (std::isnan(a) && std::isnan(b)) || (std::isinf(a) && a == b); }

std::vector<int64_t> index_of(int64_t linear, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = linear % shape[dim];
    linear /= shape[dim];
  }
  return index;
}

/// Collects the failing elements of one output.
class Tally {
 public:
  explicit Tally(const OutputTensor& output) : output_(&output) {}

  void fail(int64_t linear, double got, double expected, double error, double budget, bool stale) {
    ++failing_;
    stale_ += stale ? 1 : 0;
    const double excess = std::isnan(error) ? INFINITY : error / std::max(budget, 1e-300);
    if (failing_ > 1 && !(excess > worst_excess_)) return;
    worst_excess_ = excess;
    worst_ = {{"index", index_of(linear, output_->shape)},
              {"got", number(got)},
              {"expected", number(expected)},
              {"error", number(error)},
              {"budget", number(budget)}};
  }

  /// The failing elements of a later part of the output, too.
  void add(const Tally& later) {
    failing_ += later.failing_;
    stale_ += later.stale_;
    if (later.failing_ == 0 || (later.failing_ != failing_ && !(later.worst_excess_ > worst_excess_))) return;
    worst_excess_ = later.worst_excess_;
    worst_ = later.worst_;
  }

  /// Integers can be equal to the poison by chance, so half of the failing ones have to be.
  std::optional<Finding> finding() const {
    if (failing_ == 0) return std::nullopt;
    const bool stale = is_floating(output_->dtype) ? stale_ > 0 : 2 * stale_ >= failing_;
    return Finding{stale ? Verdict::stale_output : Verdict::wrong,
                   {{"tensor", output_->name}, {"worst", worst_}, {"failing_elements", failing_}, {"elements", output_->elements()}},
                   {}};
  }

 private:
  const OutputTensor* output_;
  int64_t failing_ = 0, stale_ = 0;
  double worst_excess_ = 0;
  Json worst_;
};

/// Of eager at an element: half an ulp where it gives no number though there is one (a fault of eager's), nothing to go by where it
/// overflows.
double error_of_eager(const OutputTensor& output, size_t i) {
  if (std::isnan(output.eager[i])) return half_ulp(output.dtype, std::abs(output.reference[i]));
  return std::abs(output.eager[i] - output.reference[i]);
}

double row_rms(const OutputTensor& output, int64_t begin, int64_t count) {
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = begin; i < begin + count; ++i) {
    const double difference = error_of_eager(output, static_cast<size_t>(i));
    if (!std::isfinite(difference)) continue;
    sum += difference * difference;
    ++finite;
  }
  return finite == 0 ? 0 : std::sqrt(sum / static_cast<double>(finite));
}

struct Norms {
  double error = 0, eager = 0;
};

double half_ulp_norm(const OutputTensor& output) {
  double sum = 0;
  for (size_t i = 0; i < output.reference.size(); ++i) {
    const double value = output.reference[i];
    if (!std::isfinite(value)) continue;
    const double half = half_ulp(output.dtype, std::abs(value));
    sum += half * half;
  }
  return std::sqrt(sum);
}

/// What a part of an output's rows says.
struct Part {
  explicit Part(const OutputTensor& output) : tally(output) {}
  Tally tally;
  Norms norms;  // squared
};

struct Subject {
  const OutputTensor& output;
  const std::byte* data;
  double k;
  const Poison* poison;
  int64_t at;
};

void compare_element(const Subject& subject, int64_t linear, int64_t offset, double rms, Part& part) {
  const OutputTensor& output = subject.output;
  const int64_t size = size_bytes(output.dtype);
  const std::byte* place = subject.data + offset * size;
  const double got = read_floating(output.dtype, place), eager = output.eager[static_cast<size_t>(linear)];
  const double reference = representable(output.dtype, output.reference[static_cast<size_t>(linear)]);
  const bool stale = std::isnan(got) && subject.poison != nullptr && subject.poison->untouched(place, subject.at + offset * size, size);
  if (!stale && !std::isfinite(got) && (same_special(got, reference) || same_special(got, eager))) return;
  if (stale || !std::isfinite(got) || !std::isfinite(reference)) {
    const bool as_eager = !stale && std::isfinite(got) && std::isfinite(eager) &&
                          std::abs(got - eager) <= subject.k * half_ulp(output.dtype, std::abs(eager));
    if (!as_eager) part.tally.fail(linear, got, reference, std::abs(got - reference), 0, stale);
    return;
  }
  const double error = std::abs(got - reference);
  const double eager_error = std::isfinite(eager) ? std::abs(eager - reference) : 0;
  part.norms.error += error * error;
  part.norms.eager += eager_error * eager_error;
  double budget = subject.k * std::max(eager_error, rms);
  if (error <= budget) return;
  budget = std::max(budget, subject.k * half_ulp(output.dtype, std::abs(reference)));
  if (error > budget) part.tally.fail(linear, got, reference, error, budget, false);
}

/// A row is the last dim of several places: in one of a single place, luck alone decides how large eager's error is.
struct Rows {
  explicit Rows(const OutputTensor& output) : dims_before(output.shape.size()) {
    while (dims_before > 0 && length == 1) {
      length = output.shape[--dims_before];
      step = output.strides[dims_before];
    }
  }
  size_t dims_before;
  int64_t length = 1, step = 0;
};

void compare_rows(const Subject& subject, const Rows& rows, int64_t begin, int64_t end, Part& part) {
  const OutputTensor& output = subject.output;
  for (int64_t i = begin; i < end; ++i) {
    const double rms = row_rms(output, i * rows.length, rows.length);
    int64_t start = 0, rest = i;
    for (size_t dim = rows.dims_before; dim-- > 0;) {
      start += rest % output.shape[dim] * output.strides[dim];
      rest /= output.shape[dim];
    }
    for (int64_t j = 0; j < rows.length; ++j) compare_element(subject, i * rows.length + j, start + j * rows.step, rms, part);
  }
}

std::optional<Finding> compare_floating(const OutputTensor& output, const std::byte* data, double k, const Poison* poison, int64_t at) {
  const Subject subject{output, data, k, poison, at};
  const Rows rows(output);
  const int64_t count = output.elements() == 0 ? 0 : output.elements() / rows.length;
  std::map<int64_t, Part> parts;  // by their first row
  std::mutex mutex;
  in_parallel(count, std::max<int64_t>(1, elements_a_thread / std::max<int64_t>(1, rows.length)), [&](int64_t begin, int64_t end) {
    Part part(output);
    compare_rows(subject, rows, begin, end, part);
    const std::lock_guard lock(mutex);
    parts.emplace(begin, std::move(part));
  });
  Tally tally(output);
  Norms norms;
  for (const auto& [begin, part] : parts) {
    tally.add(part.tally);
    norms.error += part.norms.error;
    norms.eager += part.norms.eager;
  }
  if (auto finding = tally.finding()) return finding;
  if (output.elements() < least_norm_elements || std::sqrt(norms.error) <= norm_factor * std::sqrt(norms.eager)) return std::nullopt;
  const double budget = norm_factor * std::max(std::sqrt(norms.eager), half_ulp_norm(output));
  if (std::sqrt(norms.error) <= budget) return std::nullopt;
  return Finding{Verdict::wrong, {{"tensor", output.name}, {"norm", {{"error", std::sqrt(norms.error)}, {"budget", budget}}}}, {}};
}

std::optional<Finding> compare_integers(const OutputTensor& output, const std::byte* data, const Poison* poison, int64_t at) {
  const int64_t size = size_bytes(output.dtype);
  Tally tally(output);
  for_each_element(output.shape, output.strides, [&](int64_t linear, int64_t offset) {
    const std::byte* place = data + offset * size;
    const int64_t got = read_integer(output.dtype, place), reference = output.reference_integers[static_cast<size_t>(linear)];
    if (got == reference || got == output.eager_integers[static_cast<size_t>(linear)]) return;
    const bool stale = poison != nullptr && poison->untouched(place, at + offset * size, size);
    tally.fail(linear, static_cast<double>(got), static_cast<double>(reference),
               std::abs(static_cast<double>(got) - static_cast<double>(reference)), 0, stale);
  });
  return tally.finding();
}

template <class Value>
void write(std::byte* at, Value value) {
  std::memcpy(at, &value, sizeof value);
}

/// A value in the output's dtype, cut rather than rounded where it is a 16-bit one: a null candidate need not be exact.
void write_value(Dtype dtype, std::byte* at, double value) {
  switch (dtype) {
    case Dtype::float64: return write(at, value);
    case Dtype::float32: return write(at, static_cast<float>(value));
    case Dtype::bfloat16: return write(at, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    case Dtype::float16: {
      const double magnitude = std::min(std::abs(value), 65504.0);
      int exponent = 0;
      std::frexp(magnitude, &exponent);
      const int biased = magnitude == 0 ? 0 : std::max(exponent + 14, 0);
      const double unit = std::ldexp(1.0, std::max(biased, 1) - 25);
      const auto steps = static_cast<uint16_t>(magnitude / unit);
      const uint16_t bits = biased == 0 ? steps : static_cast<uint16_t>((biased << 10) + steps - 1024);
      return write(at, static_cast<uint16_t>(std::isnan(value) ? 0x7e00 : bits | (std::signbit(value) ? 0x8000 : 0)));
    }
    default: break;
  }
  const auto integer = static_cast<int64_t>(value);
  std::memcpy(at, &integer, static_cast<size_t>(size_bytes(dtype)));  // little-endian: the low bytes
}

using Answer = std::function<bool(const OutputTensor&, std::vector<std::byte>&)>;  // false: this answer does not exist for the output

bool passes(const CaseData& data, const Answer& answer) {
  bool any = false;
  for (const OutputTensor& output : data.outputs()) {
    if (output.elements() == 0) continue;
    OutputTensor dense = output;
    dense.strides = kernel::contiguous_strides(output.shape);
    std::vector<std::byte> bytes(static_cast<size_t>(dense.elements() * size_bytes(dense.dtype)));
    if (!answer(dense, bytes) || compare(dense, bytes.data(), data.tolerance_k())) return false;
    any = true;
  }
  return any;
}

Answer constant(double value) {
  return [value](const OutputTensor& output, std::vector<std::byte>& bytes) {
    const int64_t size = size_bytes(output.dtype);
    in_parallel(output.elements(), elements_a_thread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) write_value(output.dtype, bytes.data() + i * size, value);
    });
    return true;
  };
}

double expected_value(const OutputTensor& output, int64_t index) {
  const auto i = static_cast<size_t>(index);
  return is_floating(output.dtype) ? output.reference[i] : static_cast<double>(output.reference_integers[i]);
}

/// The output's mean in `data`, which knows nothing where those are other data, or where it stands for many elements.
Answer mean_in(const CaseData& data) {
  return [&data](const OutputTensor& output, std::vector<std::byte>& bytes) {
    const auto same = std::ranges::find(data.outputs(), output.name, &OutputTensor::name);
    if (same == data.outputs().end() || same->elements() == 0) return false;
    double sum = 0;
    for (int64_t i = 0; i < same->elements(); ++i) sum += expected_value(*same, i);
    return constant(sum / static_cast<double>(same->elements()))(output, bytes);
  };
}

Answer copy_of(const InputTensor& input) {
  return [&input](const OutputTensor& output, std::vector<std::byte>& bytes) {
    if (input.dtype != output.dtype || input.shape != output.shape) return false;
    const int64_t size = size_bytes(input.dtype);
    for_each_element(input.shape, input.strides, [&](int64_t linear, int64_t offset) {
      std::memcpy(bytes.data() + linear * size, input.storage.data() + (input.offset + offset) * size, static_cast<size_t>(size));
    });
    return true;
  };
}

Answer answer_to(const CaseData& other) {
  return [&other](const OutputTensor& output, std::vector<std::byte>& bytes) {
    const auto same = std::ranges::find_if(
        other.outputs(), [&](const OutputTensor& each) { return each.name == output.name && each.shape == output.shape; });
    if (same == other.outputs().end()) return false;
    const int64_t size = size_bytes(output.dtype);
    in_parallel(output.elements(), elements_a_thread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) write_value(output.dtype, bytes.data() + i * size, expected_value(*same, i));
    });
    return true;
  };
}

}  // namespace

std::optional<Finding> compare(const OutputTensor& output, const std::byte* data, double tolerance_k, const Poison* poison, int64_t at) {
  return is_floating(output.dtype) ? compare_floating(output, data, tolerance_k, poison, at) : compare_integers(output, data, poison, at);
}

std::vector<std::string> passing_null_candidates(const CaseData& data, const CaseData* other) {
  std::vector<std::string> passing;
  const auto attempt = [&](const std::string& name, const Answer& answer) {
    if (passes(data, answer)) passing.push_back(name);
  };
  attempt("zeros", constant(0));
  attempt("ones", constant(1));
  attempt("mean", mean_in(other != nullptr ? *other : data));
  for (const InputTensor& input : data.inputs()) attempt("copy of " + input.name, copy_of(input));
  if (other != nullptr) attempt("answer to other data", answer_to(*other));
  return passing;
}

}  // namespace ak::judge
