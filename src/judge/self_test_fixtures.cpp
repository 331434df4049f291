// Each task is one template: in double it is the reference, in float, rounded to the output's dtype, what a framework would compute.
#include "judge/self_test_fixtures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <list>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "core/safetensors.h"
#include "judge/case_data.h"

namespace ak::judge {
namespace {

template <class A>
using Values = std::vector<A>;

/// Inputs by position, dense; `out` has its size.
template <class A>
struct Problem {
  std::vector<Values<A>> in;
  std::map<std::string, int64_t> dims;
  double eps = 0;
  Values<A> out;

  int64_t dim(const char* name) const { return dims.at(name); }
  const A* row(size_t input, int64_t index) const { return in[input].data() + index * dim("N"); }
  A* out_row(int64_t index) { return out.data() + index * dim("N"); }
};

template <class A>
void scale(Problem<A>& p) {
  for (int64_t i = 0; i < p.dim("M"); ++i)
    for (int64_t j = 0; j < p.dim("N"); ++j) p.out_row(i)[j] = p.row(0, i)[j] * p.in[1][static_cast<size_t>(j)];
}

template <class A>
void softmax(Problem<A>& p) {
  for (int64_t i = 0; i < p.dim("M"); ++i) {
    A largest = -std::numeric_limits<A>::infinity(), sum = 0;
    for (int64_t j = 0; j < p.dim("N"); ++j) largest = std::max(largest, p.row(0, i)[j]);
    for (int64_t j = 0; j < p.dim("N"); ++j) sum += p.out_row(i)[j] = std::exp(p.row(0, i)[j] - largest);
    for (int64_t j = 0; j < p.dim("N"); ++j) p.out_row(i)[j] /= sum;
  }
}

template <class A>
void layernorm(Problem<A>& p) {
  const int64_t count = p.dim("N");
  for (int64_t i = 0; i < p.dim("M"); ++i) {
    const A* x = p.row(0, i);
    A mean = 0, variance = 0;
    for (int64_t j = 0; j < count; ++j) mean += x[j];
    mean /= static_cast<A>(count);
    for (int64_t j = 0; j < count; ++j) variance += (x[j] - mean) * (x[j] - mean);
    const A inverse = 1 / std::sqrt(variance / static_cast<A>(count) + static_cast<A>(p.eps));
    for (int64_t j = 0; j < count; ++j) p.out_row(i)[j] = (x[j] - mean) * inverse;
  }
}

/// The first of the largest; a NaN is larger than anything.
template <class A>
void argmax(Problem<A>& p) {
  for (int64_t i = 0; i < p.dim("M"); ++i) {
    int64_t best = 0;
    for (int64_t j = 1; j < p.dim("N"); ++j) {
      const A value = p.row(0, i)[j], seen = p.row(0, i)[best];
      if (!std::isnan(seen) && (value > seen || std::isnan(value))) best = j;
    }
    p.out[static_cast<size_t>(i)] = static_cast<A>(best);
  }
}

template <class A>
void row_max(Problem<A>& p) {
  for (int64_t i = 0; i < p.dim("M"); ++i) {
    A best = p.row(0, i)[0];
    for (int64_t j = 1; j < p.dim("N"); ++j) {
      const A value = p.row(0, i)[j];
      if (!std::isnan(best) && !(value <= best)) best = value;
    }
    p.out[static_cast<size_t>(i)] = best;
  }
}

template <class A>
void total(Problem<A>& p) {
  A sum = 0;
  for (const A value : p.in[0]) sum += value;
  p.out[0] = sum;
}

template <class A>
void matmul(Problem<A>& p) {
  const int64_t depth = p.dim("K");
  for (int64_t i = 0; i < p.dim("M"); ++i) {
    std::fill_n(p.out_row(i), p.dim("N"), A{0});
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < p.dim("N"); ++j) p.out_row(i)[j] += p.in[0][static_cast<size_t>(i * depth + k)] * p.row(1, k)[j];
  }
}

struct Named {
  const char* name;
  void (*reference)(Problem<double>&);
  void (*eager)(Problem<float>&);
};
constexpr Named problems[] = {
    {"scale", scale<double>, scale<float>},
    {"softmax", softmax<double>, softmax<float>},
    {"layernorm", layernorm<double>, layernorm<float>},
    {"argmax", argmax<double>, argmax<float>},
    {"row_max", row_max<double>, row_max<float>},
    {"total", total<double>, total<float>},
    {"matmul", matmul<double>, matmul<float>},
};

const Named& problem_of(const std::string& name) {
  const auto found = std::ranges::find_if(problems, [&](const Named& each) { return name == each.name; });
  if (found == std::end(problems)) throw Error("the self-test has no task '" + name + "'");
  return *found;
}

using Random = std::mt19937_64;

struct Generator {
  const char* name;
  float (*draw)(Random& random, float normal);  // from a normal number
};
constexpr Generator generators[] = {
    {"normal", [](Random&, float normal) { return normal; }},
    {"large", [](Random&, float normal) { return 1e18f * normal; }},
    {"hot", [](Random&, float normal) { return 60 * normal; }},       // exp() overflows without care
    {"small", [](Random&, float normal) { return 3e-3f * normal; }},  // eps matters
    {"denormal", [](Random&, float normal) { return 1e-39f * normal; }},
    {"denormal_half", [](Random&, float normal) { return 2e-5f * normal; }},
    {"offset", [](Random&, float normal) { return 4096 + normal; }},  // a variance in one pass cancels
    {"negative", [](Random&, float normal) { return -5 - std::abs(normal); }},
    {"ties", [](Random& random, float) { return static_cast<float>(random() % 3); }},
    {"special", [](Random& random, float normal) { return random() % 64 == 0   ? NAN
                                                          : random() % 64 == 0 ? -INFINITY
                                                                               : normal; }},
};

/// A number's bits in `dtype`, to nearest even.
uint16_t bits16(Dtype dtype, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (dtype == Dtype::bfloat16) return static_cast<uint16_t>(std::isnan(value) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  if (std::isnan(value)) return 0x7e00;
  const double magnitude = std::abs(static_cast<double>(value));
  if (magnitude >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  const double unit = 2 * half_ulp(Dtype::float16, magnitude);
  const auto steps = static_cast<uint32_t>(std::nearbyint(magnitude / unit));  // of the unit, which is 2^-24 below the normal numbers
  const int exponent = std::ilogb(unit) + 24;
  return static_cast<uint16_t>(sign | ((static_cast<uint32_t>(exponent) << 10) + steps));
}

float from_bits16(Dtype dtype, uint16_t bits) {
  if (dtype == Dtype::bfloat16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  return sign *
         (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24) : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25));
}

bool is_16_bits(Dtype dtype) { return dtype == Dtype::float16 || dtype == Dtype::bfloat16; }

void round_to(Dtype dtype, std::vector<float>& values) {
  if (!is_16_bits(dtype)) return;
  for (float& value : values) value = from_bits16(dtype, bits16(dtype, value));
}

std::vector<float> draw(const std::string& name, size_t count, Random& random) {
  const auto generator = std::ranges::find_if(generators, [&](const Generator& each) { return name == each.name; });
  if (generator == std::end(generators)) throw Error("the self-test has no generator '" + name + "'");
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = generator->draw(random, normal(random));
  return values;
}

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

/// `strided`: rows further apart than they are long.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape, const std::string& layout) {
  std::vector<int64_t> strides = kernel::contiguous_strides(shape);
  if (layout == "strided" && shape.size() == 2) strides[0] += 5;
  return strides;
}

/// Owns what the tensors of a file point to.
struct FileContent {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::list<std::vector<std::byte>> storage;

  template <class Value>
  void add(const std::string& name, Dtype dtype, const std::vector<int64_t>& shape, const std::vector<Value>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    storage.emplace_back(bytes.begin(), bytes.end());
    tensors.push_back({name, dtype, shape, storage.back()});
  }
  void describe(const std::string& name, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    metadata[name + ".shape"] = Json(shape).dump();
    metadata[name + ".strides"] = Json(strides).dump();
  }
};

void add_input(FileContent& file, const std::string& name, Dtype dtype, const std::vector<int64_t>& shape, const std::string& layout,
               const std::vector<float>& values) {
  const std::vector<int64_t> strides = strides_of(shape, layout);
  const int64_t offset = layout == "misaligned" ? 4 : 0, span = shape.size() == 2 ? shape[0] * strides[0] : product(shape);
  std::vector<float> stored(static_cast<size_t>(offset + span), 3e30f);  // what lies between rows would be noticed
  for_each_element(shape, strides,
                   [&](int64_t linear, int64_t at) { stored[static_cast<size_t>(offset + at)] = values[static_cast<size_t>(linear)]; });
  if (is_16_bits(dtype)) {
    std::vector<uint16_t> bits(stored.size());
    std::ranges::transform(stored, bits.begin(), [&](float value) { return bits16(dtype, value); });
    file.add(name, dtype, {offset + span}, bits);
  } else {
    file.add(name, dtype, {offset + span}, stored);
  }
  file.describe(name, shape, strides);
  file.metadata[name + ".offset"] = std::to_string(offset);
}

void add_output(FileContent& file, const kernel::Tensor& tensor, const std::vector<int64_t>& shape, const std::string& layout,
                const std::vector<double>& reference, const std::vector<float>& eager) {
  if (is_floating(tensor.dtype)) {
    file.add(tensor.name + ".reference", Dtype::float64, shape, reference);
    file.add(tensor.name + ".eager", Dtype::float64, shape, std::vector<double>(eager.begin(), eager.end()));
  } else {
    file.add(tensor.name + ".reference", Dtype::int64, shape, std::vector<int64_t>(reference.begin(), reference.end()));
    file.add(tensor.name + ".eager", Dtype::int64, shape, std::vector<int64_t>(eager.begin(), eager.end()));
  }
  file.describe(tensor.name, shape, strides_of(shape, layout));
  file.metadata[tensor.name + ".dtype"] = name_of(tensor.dtype);
}

}  // namespace

Fixture SelfTestFixtures::make(const kernel::Task& task, const Json& test_case) {
  const kernel::Binding binding = kernel::binding_from_json(test_case);
  Random random(test_case.at("seed").get<uint64_t>());
  FileContent inputs, expected;
  Problem<double> exact;
  Problem<float> eager;
  exact.dims = eager.dims = binding.dims;
  if (task.scalars.contains("eps")) exact.eps = eager.eps = static_cast<float>(std::get<double>(task.scalars.at("eps")));
  for (const kernel::Tensor& tensor : task.tensors) {
    const std::vector<int64_t> shape = task.shape(tensor, binding);
    if (tensor.role != kernel::Role::output) {
      const std::string generator = tensor.role == kernel::Role::weight ? "normal" : test_case.at("generator");
      eager.in.push_back(draw(generator, static_cast<size_t>(product(shape)), random));
      round_to(tensor.dtype, eager.in.back());
      exact.in.emplace_back(eager.in.back().begin(), eager.in.back().end());
      add_input(inputs, tensor.name, tensor.dtype, shape, binding.layout, eager.in.back());
      continue;
    }
    exact.out.resize(static_cast<size_t>(product(shape)));
    eager.out.resize(exact.out.size());
    problem_of(task.family).reference(exact);
    problem_of(task.family).eager(eager);
    round_to(tensor.dtype, eager.out);
    add_output(expected, tensor, shape, binding.layout, exact.out, eager.out);
  }
  const std::filesystem::path directory = directory_.path() / std::to_string(made_++);
  std::filesystem::create_directories(directory);
  const Fixture files{directory / "inputs.safetensors", directory / "expected.safetensors"};
  write_safetensors(files.inputs, inputs.tensors, inputs.metadata);
  write_safetensors(files.expected, expected.tensors, expected.metadata);
  return files;
}

}  // namespace ak::judge
