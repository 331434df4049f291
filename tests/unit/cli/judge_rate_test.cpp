// When repeated judgements agree.
#include "cli/judge_rate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ak::cli {
namespace {

TEST(JudgeRate, agreement_is_with_the_median_and_not_with_the_fastest) {
  const Json result = agreement({90, 98.6, 99, 100, 100, 101, 101.6}, 0.015);
  EXPECT_EQ(result.at("times"), 7);
  EXPECT_EQ(result.at("median_us"), 100);
  EXPECT_EQ(result.at("agree"), 5) << "90 and 101.6 are too far";
  EXPECT_NEAR(result.at("spread").get<double>(), 0.116, 1e-12);
}

TEST(JudgeRate, of_nothing_nothing_agrees) { EXPECT_EQ(agreement({}, 0.015).at("agree"), 0); }

}  // namespace
}  // namespace ak::cli
