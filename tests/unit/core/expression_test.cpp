// Expressions: values, precedence, short circuits, and errors that say where.
#include "core/expression.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ak {
namespace {

int64_t value(std::string_view text, const Bindings& bindings = {}) { return Expression::parse(text, "kernel.cpp:7").evaluate(bindings); }

std::string error_of(std::string_view text, const Bindings& bindings = {}) {
  try {
    value(text, bindings);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Expression, FollowsCPrecedence) {
  EXPECT_EQ(value("1 + 2 * 3 - 4"), 3);
  EXPECT_EQ(value("-(2 - 5) * 2 % 4"), 2);
  EXPECT_EQ(value("1 < 2 == 1"), 1);
  EXPECT_EQ(value("0 || 1 && 0"), 0);
  EXPECT_EQ(value("1 ? 2 : 0 ? 3 : 4"), 2);
  EXPECT_EQ(value("!0 + !5"), 1);
  EXPECT_EQ(value("7 != 7 || 3 >= 3"), 1);
}

TEST(Expression, KnowsItsFunctions) {
  EXPECT_EQ(value("cdiv(10, 4)"), 3);
  EXPECT_EQ(value("cdiv(0, 4)"), 0);
  EXPECT_EQ(value("min(3, max(1, 2)) + align(13, 8)"), 18);
  EXPECT_EQ(value("log2(1023) * 100 + pow2ceil(1023)"), 1924);
}

TEST(Expression, ReadsNamesStridesAndSizes) {
  const Bindings bindings = {{"M", 6}, {"x.stride(0)", 768}, {"sizeof(T)", 4}};
  EXPECT_EQ(value("M * x.stride(0) * sizeof(T)", bindings), 6 * 768 * 4);
  const auto names = Expression::parse("M > 0 && x.stride( 0 ) == N", "f").names();
  EXPECT_EQ(names.size(), 3u);
  EXPECT_TRUE(names.count("x.stride(0)"));
}

TEST(Expression, EvaluatesOnlyWhatItNeeds) {
  EXPECT_EQ(value("V == 0 || N % V == 0", {{"V", 0}, {"N", 5}}), 1);
  EXPECT_EQ(value("1 ? 2 : 1 / 0"), 2);
}

TEST(Expression, ErrorsNameTheLineAndTheReason) {
  EXPECT_NE(error_of("M / 0", {{"M", 1}}).find("kernel.cpp:7"), std::string::npos);
  EXPECT_NE(error_of("M / 0", {{"M", 1}}).find("divides by zero"), std::string::npos);
  EXPECT_NE(error_of("9223372036854775807 + 1").find("overflows"), std::string::npos);
  EXPECT_NE(error_of("(0 - 9223372036854775807 - 1) / -1").find("overflows"), std::string::npos);
  EXPECT_NE(error_of("ROWZ + 1").find("unknown name 'ROWZ'"), std::string::npos);
  EXPECT_NE(error_of("1 +").find("column"), std::string::npos);
  EXPECT_NE(error_of("cdiv(1)").find("takes 2 arguments"), std::string::npos);
  EXPECT_NE(error_of("99999999999999999999").find("too large"), std::string::npos);
  EXPECT_NE(error_of(std::string(5000, '(')).find("nested too deeply"), std::string::npos);
  EXPECT_NE(error_of(std::string(5000, '-')).find("nested too deeply"), std::string::npos);
}

}  // namespace
}  // namespace ak
