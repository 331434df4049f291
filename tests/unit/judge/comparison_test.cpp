// The error budget, on expectations made by hand.
#include "judge/comparison.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "rig.h"

namespace ak::judge::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double not_a_number = std::nan("");

/// An output whose reference is given, and whose eager result is the reference rounded to float.
struct Expectation {
  std::vector<double> reference, eager;
  OutputTensor output;

  Expectation(std::vector<int64_t> shape, std::vector<double> values) : reference(std::move(values)) {
    for (const double value : reference) eager.push_back(static_cast<float>(value));
    output.name = "out";
    output.shape = std::move(shape);
    output.strides = kernel::contiguous_strides(output.shape);
    refresh();
  }
  void refresh() {
    output.reference = std::span<const double>(reference);
    output.eager = std::span<const double>(eager);
  }
  std::vector<float> rounded() const { return {reference.begin(), reference.end()}; }
};

std::optional<Finding> compare_floats(const Expectation& expectation, const std::vector<float>& got) {
  return compare(expectation.output, reinterpret_cast<const std::byte*>(got.data()), 16);
}

Expectation random_expectation(int64_t rows, int64_t columns, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(rows * columns));
  for (double& value : values) value = normal(random);
  return {{rows, columns}, values};
}

TEST(Comparison, an_answer_rounded_once_passes) {
  const Expectation expectation = random_expectation(8, 100, 1);
  EXPECT_FALSE(compare_floats(expectation, expectation.rounded()));
}

TEST(Comparison, the_worst_element_is_named) {
  const Expectation expectation = random_expectation(8, 100, 2);
  auto got = expectation.rounded();
  got[305] += 0.001f;
  got[700] += 0.1f;
  const auto finding = compare_floats(expectation, got);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->verdict, Verdict::wrong);
  EXPECT_EQ(finding->evidence["failing_elements"], 2);
  EXPECT_EQ(finding->evidence["worst"]["index"], Json({7, 0}));
}

TEST(Comparison, eagers_error_over_the_row_widens_the_budget_of_that_row_alone) {
  Expectation expectation = random_expectation(2, 64, 3);
  for (size_t i = 0; i < 64; ++i) expectation.eager[i] += i % 2 == 0 ? 1e-3 : -1e-3;
  expectation.refresh();
  auto got = expectation.rounded();
  got[10] += 5e-3f;
  EXPECT_FALSE(compare_floats(expectation, got));
  got[100] += 5e-3f;
  EXPECT_TRUE(compare_floats(expectation, got));
}

TEST(Comparison, a_row_is_the_last_dim_of_several_places) {
  const Expectation drawn = random_expectation(2, 64, 6);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{128, 1}, {2, 64, 1, 1}}) {
    Expectation expectation(shape, drawn.reference);
    for (size_t i = 0; i < 64; i += 2) expectation.eager[i] += 1e-3;  // the others are right by luck
    expectation.refresh();
    auto got = expectation.rounded();
    got[11] += 5e-3f;
    EXPECT_FALSE(compare_floats(expectation, got));
    got[101] += 5e-3f;
    EXPECT_EQ(compare_floats(expectation, got).has_value(), shape.size() == 4);  // there, eager is right in the second row
  }
}

TEST(Comparison, a_small_error_everywhere_fails_by_the_norm) {
  const Expectation expectation = random_expectation(16, 100, 4);
  auto got = expectation.rounded();
  for (float& value : got) value *= 1 + 3e-7f;
  const auto finding = compare_floats(expectation, got);
  ASSERT_TRUE(finding);
  EXPECT_TRUE(finding->evidence.contains("norm")) << finding->evidence.dump();
}

TEST(Comparison, nan_and_infinities_have_their_places) {
  Expectation expectation({1, 6}, {1, not_a_number, infinity, -infinity, 2, 3});
  const std::vector<float> right = expectation.rounded();
  EXPECT_FALSE(compare_floats(expectation, right));
  const std::pair<size_t, float> mistakes[] = {{0, NAN},       {0, INFINITY}, {1, 0},        {1, INFINITY}, {2, NAN},
                                               {2, -INFINITY}, {2, 3e38f},    {3, INFINITY}, {4, -INFINITY}};
  for (const auto& [at, value] : mistakes) {
    auto got = right;
    got[at] = value;
    EXPECT_TRUE(compare_floats(expectation, got)) << at << " " << value;
  }
}

TEST(Comparison, a_reference_beyond_the_dtype_is_infinite) {
  Expectation expectation({1, 2}, {1e39, -1e39});
  EXPECT_FALSE(compare_floats(expectation, {INFINITY, -INFINITY}));
  EXPECT_TRUE(compare_floats(expectation, {INFINITY, INFINITY}));
  EXPECT_TRUE(compare_floats(expectation, {3e38f, -INFINITY}));
}

TEST(Comparison, where_eager_overflows_both_answers_are_right) {
  Expectation expectation({1, 2}, {5, 7});
  expectation.eager[0] = infinity;
  expectation.refresh();
  EXPECT_FALSE(compare_floats(expectation, {5, 7}));
  EXPECT_FALSE(compare_floats(expectation, {INFINITY, 7}));
  EXPECT_TRUE(compare_floats(expectation, {-INFINITY, 7}));
  EXPECT_TRUE(compare_floats(expectation, {5, INFINITY}));
}

TEST(Comparison, nothing_to_compare_passes) { EXPECT_FALSE(compare_floats(Expectation({0, 7}, {}), {})); }

TEST(Comparison, zeros_for_a_softmax_over_a_long_row_are_wrong) {
  constexpr int64_t columns = 393216;
  const Expectation expectation({4, columns}, std::vector<double>(4 * columns, 1.0 / columns));
  const auto finding = compare_floats(expectation, std::vector<float>(4 * columns, 0.0f));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->verdict, Verdict::wrong);
  EXPECT_FALSE(compare_floats(expectation, expectation.rounded()));
}

TEST(Comparison, one_tf32_product_is_wrong_in_float32) {
  const Expectation expectation({16, 16}, std::vector<double>(256, 16.00390625));
  EXPECT_TRUE(compare_floats(expectation, std::vector<float>(256, 16.0f)));
}

TEST(Comparison, half_precision_is_read_as_it_is_stored) {
  Expectation expectation({1, 5}, {1, -2, 6.103515625e-05, 5.960464477539063e-08, 65504});
  expectation.output.dtype = Dtype::float16;
  const std::vector<uint16_t> got = {0x3c00, 0xc000, 0x0400, 0x0001, 0x7bff};
  EXPECT_FALSE(compare(expectation.output, reinterpret_cast<const std::byte*>(got.data()), 16));
  expectation.output.dtype = Dtype::bfloat16;
  const std::vector<uint16_t> brain = {0x3f80, 0xc000, 0x3880, 0x3380, 0x4780};
  EXPECT_FALSE(compare(expectation.output, reinterpret_cast<const std::byte*>(brain.data()), 16));
}

TEST(Numbers, are_read_from_each_floating_dtype) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    const double value = half_to_double(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), bits >= 1 << 15);
    if (exponent == 31) {
      ASSERT_TRUE(mantissa == 0 ? std::isinf(value) : std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(std::abs(value), magnitude) << bits;
    }
  }
  const std::array<uint16_t, 2> brains = {0x3fc0, 0xc049};
  const std::array<float, 2> floats = {1.5f, -3.140625f};
  const Numbers numbers[] = {{Dtype::bfloat16, std::as_bytes(std::span(brains))}, {Dtype::float32, std::as_bytes(std::span(floats))}};
  for (const Numbers& each : numbers) {
    ASSERT_EQ(each.size(), 2u);
    EXPECT_EQ(each[0], 1.5);
    EXPECT_EQ(each[1], -3.140625);
  }
}

TEST(Comparison, strided_outputs_are_read_by_their_strides) {
  Expectation expectation({2, 3}, {1, 2, 3, 4, 5, 6});
  expectation.output.strides = {1, 2};
  EXPECT_FALSE(compare_floats(expectation, {1, 4, 2, 5, 3, 6}));
  EXPECT_TRUE(compare_floats(expectation, {1, 2, 3, 4, 5, 6}));
}

TEST(Comparison, where_eager_has_no_number_its_error_counts_as_half_an_ulp) {
  Expectation expectation({1, 4}, {0.5, 0.5, 0.5, 1e-6});
  const auto got = [&](float error) {
    auto values = expectation.rounded();
    values[3] += error;
    return values;
  };
  ASSERT_TRUE(compare_floats(expectation, got(1e-7f)));
  for (double& eager : expectation.eager) eager = not_a_number;
  expectation.refresh();
  EXPECT_FALSE(compare_floats(expectation, got(1e-7f)));
  EXPECT_TRUE(compare_floats(expectation, got(1e-5f)));
}

TEST(Comparison, integers_are_equal_to_the_reference_or_to_eager) {
  const std::vector<int64_t> reference = {3, 9, -1}, eager = {3, 8, -1};
  OutputTensor output;
  output.name = "index";
  output.dtype = Dtype::int64;
  output.shape = {3};
  output.strides = {1};
  output.reference_integers = reference;
  output.eager_integers = eager;
  const auto finding_of_values = [&](std::vector<int64_t> got) {
    return compare(output, reinterpret_cast<const std::byte*>(got.data()), 16);
  };
  EXPECT_FALSE(finding_of_values({3, 9, -1}));
  EXPECT_FALSE(finding_of_values({3, 8, -1}));
  EXPECT_TRUE(finding_of_values({3, 9, 0}));
}

TEST(Comparison, null_candidates_do_not_pass_on_random_data) {
  const TemporaryDirectory directory("autokernel-test-");
  const auto load = [&](uint64_t seed) {
    const Json test_case = Rig::workload_case(seed);
    const FixturePaths paths = write_scale_fixture(test_case, directory.path() / std::to_string(seed));
    return CaseData::load(scale_task(), test_case, paths.inputs, paths.expected);
  };
  const CaseData data = load(1), other = load(2), same = load(1);
  EXPECT_TRUE(passing_null_candidates(data, &other).empty());
  EXPECT_EQ(passing_null_candidates(data, &same), std::vector<std::string>{"answer to other data"});
}

TEST(Poison, is_nan_in_every_floating_type_and_knows_the_first_change) {
  const Poison poison(42);
  std::vector<std::byte> bytes(100'000);
  poison.fill(bytes, 4096 + 64);
  EXPECT_EQ(poison.first_changed(bytes, 4096 + 64), -1);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    float single = 0;
    double twice = 0;
    std::memcpy(&single, bytes.data() + at, sizeof single);
    std::memcpy(&twice, bytes.data() + at, sizeof twice);
    ASSERT_TRUE(std::isnan(single) && std::isnan(twice));
  }
  bytes[70'001] ^= std::byte{1};
  EXPECT_EQ(poison.first_changed(bytes, 4096 + 64), 70'001);
  EXPECT_NE(Poison(43).first_changed(bytes, 4096 + 64), -1);
}

TEST(Poison, knows_the_first_change_of_many_in_large_memory) {
  const Poison poison(3);
  std::vector<std::byte> memory(9 << 20);
  poison.fill(memory, 40);
  EXPECT_EQ(poison.first_changed(memory, 40), -1);
  for (const size_t at : {memory.size() - 1, size_t{7} << 20, size_t{5'000'001}}) {
    memory[at] ^= std::byte{1};
    EXPECT_EQ(poison.first_changed(memory, 40), static_cast<int64_t>(at));
  }
}

TEST(Poison, an_outputs_nan_is_no_canarys_whatever_its_sign) {
  const auto halfwords = [](Poison::Kind kind) {
    std::vector<std::byte> bytes(64 << 10);
    Poison(7, kind).fill(bytes, 0);
    std::set<int> seen;
    for (size_t at = 0; at < bytes.size(); at += 2) {
      uint16_t half = 0;
      std::memcpy(&half, bytes.data() + at, sizeof half);
      seen.insert(half & 0x7fff);
    }
    return seen;
  };
  const std::set<int> outputs = halfwords(Poison::Kind::output), canaries = halfwords(Poison::Kind::nan);
  EXPECT_EQ(outputs.size(), 3u);
  EXPECT_EQ(canaries.size(), 3u);
  for (const int half : outputs) EXPECT_EQ(canaries.count(half), 0u);
}

TEST(MedianInterval, holds_the_median_as_often_as_it_says) {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> skewed;
  int misses = 0;
  constexpr int trials = 4000;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> values(13);
    for (double& value : values) value = skewed(random);
    const Interval interval = median_interval(values, 0.05);
    misses += interval.low > 1 || interval.high < 1 ? 1 : 0;
  }
  EXPECT_LT(misses, trials * 0.05);
  EXPECT_GT(misses, 0);
}

TEST(MedianInterval, is_endless_for_too_few) {
  EXPECT_TRUE(std::isinf(median_interval({1, 2, 3, 4, 5}, 0.05).high));
  const Interval six = median_interval({3, 1, 2, 6, 5, 4}, 0.05);
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 6);
}

}  // namespace
}  // namespace ak::judge::test
