// Suites: rows that become tasks, what a filter lets through, and what is refused with its line.
#include "graph/suite.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "core/file.h"

namespace ak::graph {
namespace {

const std::string source = R"(name = "small"
dtypes = { cuda = ["float16", "bfloat16"], cpu = ["float32"] }
[[group]]
family = "softmax"
spelling = "functional"
dims = ["M", "N"]
cuda = [[8, 16], [4, 32]]
cpu = [[2, 4]]
[[group]]
family = "reduce"
spelling = "mean_last"
suffix = "mean"
dims = ["OUTER", "N"]
derived = { INNER = "1" }
dtypes = ["float32"]
cuda = [[8, 16]]
)";

const Families& families() {
  static const Families all = load_families(std::filesystem::path(AK_SOURCE_DIR) / "kernels");
  return all;
}

std::vector<SuiteRow> rows(const std::string& device, const SuiteFilter& filter = {}, const std::string& text = source) {
  return suite_rows(text, "small.toml", families(), device, filter);
}

std::vector<std::string> names(const std::vector<SuiteRow>& rows) {
  std::vector<std::string> result;
  for (const SuiteRow& row : rows) result.push_back(row.task.family + " " + row.shape + " " + std::string(name_of(row.task.dtype)));
  return result;
}

std::string error_of(const std::string& from, const std::string& to) {
  std::string text = source;
  text.replace(text.find(from), from.size(), to);
  try {
    rows("cuda", {}, text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Suite, ARowIsATaskOfItsSpellingAndShape) {
  EXPECT_EQ(names(rows("cuda")), (std::vector<std::string>{"softmax 8x16 float16", "softmax 8x16 bfloat16", "softmax 4x32 float16",
                                                           "softmax 4x32 bfloat16", "reduce 8x16mean float32"}));
  EXPECT_EQ(names(rows("cpu")), (std::vector<std::string>{"softmax 2x4 float32"}));
  const kernel::Task mean = rows("cuda").back().task;
  EXPECT_EQ(mean.spelling, "mean_last");
  EXPECT_EQ(mean.options.at("OP"), 1);
  EXPECT_EQ(mean.workload.at(0).dims, (std::map<std::string, int64_t>{{"OUTER", 8}, {"N", 16}, {"INNER", 1}}));
  EXPECT_EQ(mean.workload.at(0).calls, 1);
}

TEST(Suite, AFilterLeavesOutRowsAndChoosesDtypes) {
  EXPECT_EQ(names(rows("cuda", {.families = {"softmax"}, .dtypes = {"float32"}, .shapes = {"4x32"}})),
            (std::vector<std::string>{"softmax 4x32 float32"}));
  EXPECT_EQ(names(rows("cuda", {.families = {}, .dtypes = {"float16"}, .shapes = {}})),
            (std::vector<std::string>{"softmax 8x16 float16", "softmax 4x32 float16"}));
  EXPECT_THROW(rows("cuda", {.families = {"softmin"}, .dtypes = {}, .shapes = {}}), Error);
  EXPECT_THROW(rows("cuda", {.families = {}, .dtypes = {}, .shapes = {"1x1"}}), Error);
}

TEST(Suite, ErrorsNameTheLine) {
  EXPECT_NE(error_of("\"softmax\"", "\"softmin\"").find("small.toml:4"), std::string::npos);
  EXPECT_NE(error_of("\"functional\"", "\"dysfunctional\"").find("has no spelling"), std::string::npos);
  EXPECT_NE(error_of("[8, 16], ", "[8], ").find("2 numbers"), std::string::npos);
  EXPECT_NE(error_of("suffix", "prefix").find("unknown key"), std::string::npos);
  EXPECT_NE(error_of("derived = { INNER = \"1\" }\n", "").find("INNER"), std::string::npos);
}

TEST(Suite, TheStandardShapesAreTasksOfTheirOwn) {
  const std::filesystem::path path = std::filesystem::path(AK_SOURCE_DIR) / "playbook/suite/nine.toml";
  for (const std::string device : {"cuda", "cpu"}) {
    std::set<std::string> ids, seen;
    for (const SuiteRow& row : suite_rows(read_file(path), "nine.toml", families(), device)) {
      EXPECT_TRUE(ids.insert(row.task.id).second) << row.task.family << " " << row.shape;
      seen.insert(row.task.family);
    }
    EXPECT_EQ(seen.size(), 9u);
  }
}

}  // namespace
}  // namespace ak::graph
