// A measurement is repeated while others are on the device, and says who they were.
#include "judge/strangers.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ak::judge {
namespace {

using Present = std::vector<device::Stranger>;

struct Measured {
  Json reply;
  int measurements = 0;
};

/// Who is there at each look: before and after every measurement.
Measured measured(const std::vector<Present>& looks, const std::string& verdict = "kept") {
  size_t look = 0;
  Measured result;
  result.reply = measure_alone([&] { return look < looks.size() ? looks[look++] : Present(); },
                               [&] {
                                 ++result.measurements;
                                 return Json{{"verdict", verdict}, {"evidence", Json::object()}, {"median_us", result.measurements}};
                               });
  return result;
}

const device::Stranger game{7, "game", 1000}, trainer{9, "trainer", 0};

TEST(MeasureAlone, once_where_nobody_is_there) {
  const Measured alone = measured({});
  EXPECT_EQ(alone.measurements, 1);
  EXPECT_EQ(alone.reply["evidence"], Json::object());
}

TEST(MeasureAlone, again_where_somebody_came_or_went) {
  const Measured came = measured({{}, {game}});
  EXPECT_EQ(came.measurements, 2);
  EXPECT_EQ(came.reply["median_us"], 2) << "the last counts";
  EXPECT_EQ(came.reply["evidence"]["measured"], 2);
  EXPECT_EQ(came.reply["evidence"]["other_processes"], Json::parse(R"([{"pid": 7, "name": "game", "memory_bytes": 1000}])"));
  EXPECT_EQ(measured({{game}, {}}, "slower").measurements, 2);
}

TEST(MeasureAlone, three_times_where_somebody_stays) {
  const Measured stays = measured(std::vector<Present>(20, {game, trainer}));
  EXPECT_EQ(stays.measurements, 3);
  EXPECT_EQ(stays.reply["evidence"]["other_processes"].size(), 2u);
}

TEST(MeasureAlone, a_candidate_that_failed_is_not_tried_again) {
  const Measured failed = measured(std::vector<Present>(20, {game}), "crashed");
  EXPECT_EQ(failed.measurements, 1);
  EXPECT_EQ(failed.reply["evidence"]["other_processes"].size(), 1u);
}

}  // namespace
}  // namespace ak::judge
