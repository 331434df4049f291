// Regions to tasks.
#include "graph/region.h"

#include <gtest/gtest.h>

#include "builders.h"

namespace ak::graph {
namespace {

Families scale_family() {
  return family_of(
      "scale",
      {{"x", "data", {"M", "N"}}, {"weight", "weight", {"N"}}, {"bias", "weight", {"N"}, "HAS_BIAS"}, {"out", "output", {"M", "N"}}},
      "[options]\nHAS_BIAS = 0\n[scalars]\neps = 0.5\n[stages]\nsweep = [{ M = 3, N = 4 }]\nstability = [\"large\"]\n[tolerance]\nk = 9");
}

Region scale_region(const std::string& node, int64_t rows, bool constant = true) {
  Region region;
  region.family = "scale";
  region.spelling = "s";
  region.graph = "g0";
  region.nodes = {node};
  region.inputs = {{"x", "x"}, {"weight", "w"}};
  region.outputs = {{"out", node}};
  if (constant) region.constants = {"weight"};
  region.dims = {{"M", rows}, {"N", 4}};
  region.strides = {{"x", {4, 1}}, {"weight", {1}}, {"out", {4, 1}}};
  region.options = {{"HAS_BIAS", 0}};
  return region;
}

TEST(Task, IsTheFamilysContractForTheRegion) {
  const Families families = scale_family();
  const kernel::Task task = make_task(scale_region("a", 6), families.at("scale"));
  EXPECT_TRUE(task.id.starts_with("scale_"));
  EXPECT_EQ(task.id, kernel::task_id(task));
  EXPECT_EQ(task.tensor("weight").role, kernel::Role::weight);
  EXPECT_TRUE(task.tensor("bias").absent);
  EXPECT_FALSE(task.tensor("x").absent);
  EXPECT_EQ(task.workload.at(0).dims.at("M"), 6);
  EXPECT_EQ(task.workload.at(0).strides.at("x"), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(std::get<double>(task.scalars.at("eps")), 0.5);
  EXPECT_EQ(task.sweep.at(0).dims.at("N"), 4);
  EXPECT_EQ(task.stability, std::vector<std::string>{"large"});
  EXPECT_EQ(task.tolerance_k, 9);
  EXPECT_EQ(kernel::to_json(kernel::task_from_json(kernel::to_json(task))), kernel::to_json(task));
}

TEST(Task, AWeightThatChangesIsData) {
  const Families families = scale_family();
  const kernel::Task varying = make_task(scale_region("a", 6, false), families.at("scale"));
  EXPECT_EQ(varying.tensor("weight").role, kernel::Role::data);
  EXPECT_EQ(varying.tensor("bias").role, kernel::Role::weight);
  EXPECT_NE(varying.id, make_task(scale_region("a", 6), families.at("scale")).id);
}

TEST(Task, RegionsOfOneContractBecomeOneTaskAndTheLargestShareIsFirst) {
  const Families families = scale_family();
  std::vector<Region> regions = {scale_region("a", 6), scale_region("b", 9), scale_region("c", 6), scale_region("d", 6)};
  for (Region& region : regions) region.task = make_task(region, families.at("scale")).id;
  const Profile profile = parse_profile(Json::parse(R"({"schema": "autokernel.profile/1", "total_us": 100, "nodes": {
    "g0/a": {"us": 10, "calls": 1}, "g0/b": {"us": 50, "calls": 1}, "g0/c": {"us": 4, "calls": 2}, "g1/d": {"us": 1000, "calls": 1}}})"));
  const auto tasks = extract_tasks(regions, families, profile);
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].task.id, regions[1].task);
  EXPECT_DOUBLE_EQ(tasks[0].share, 0.5);
  EXPECT_EQ(tasks[1].task.workload.at(0).calls, 4);  // a once, c twice, d once
  EXPECT_DOUBLE_EQ(tasks[1].share, 0.18);
  EXPECT_DOUBLE_EQ(tasks[1].us_per_call, 4.5);
  EXPECT_EQ(tasks[1].regions, (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(tasks[1].nodes, (std::vector<std::string>{"g0/a", "g0/c", "g0/d"}));
  EXPECT_EQ(tasks[1].profile_json().at("share"), tasks[1].share);
  EXPECT_EQ(tasks[1].task.id, regions[0].task) << "calls are not part of the contract";
}

TEST(Task, WithoutAProfileThereAreCallsAndNoShare) {
  const Families families = scale_family();
  const auto tasks = extract_tasks({scale_region("a", 6), scale_region("b", 6)}, families, {});
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].task.workload.at(0).calls, 2);
  EXPECT_EQ(tasks[0].share, 0);
}

TEST(Region, ToJsonHasWhatTheRuntimeNeeds) {
  Region region = scale_region("a", 6);
  region.scalars = {{"eps", 0.25}, {"count", int64_t{3}}};
  region.task = "scale_12345678";
  EXPECT_EQ(
      to_json(region),
      Json::parse(
          R"({"family": "scale", "spelling": "s", "graph": "g0", "dtype": "float32", "nodes": ["a"], "inputs": {"x": "x", "weight": "w"},
    "outputs": {"out": "a"}, "constants": ["weight"], "dims": {"M": 6, "N": 4}, "strides": {"x": [4, 1], "weight": [1], "out": [4, 1]},
    "options": {"HAS_BIAS": 0}, "scalars": {"eps": 0.25, "count": 3}, "task": "scale_12345678"})"));
}

TEST(Profile, NamesWhatIsMalformed) {
  EXPECT_NE(error_of([] { parse_profile(Json::parse(R"({"schema": "autokernel.profile/2"})")); }).find("not of the format"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_profile(Json::parse(R"({"schema": "autokernel.profile/1", "total_us": "long"})")); }).find("malformed"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_profile(Json::parse("3")); }).find("malformed"), std::string::npos);
}

}  // namespace
}  // namespace ak::graph
