// The table of a suite: the kernel's own ratio also where it loses, as confirmed where it was.
#include "report/suite_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace ak::report {
namespace {

SuiteLine line(const std::string& shape, double ours_us) {
  SuiteLine line{"softmax", shape, "float16", {}};
  line.state.id = "softmax_" + shape;
  line.state.baseline = store::Baseline{{{"eager", 40.0}, {"compile", 20.0}}, "compile", 20.0, 40.0, 8.0};
  if (ours_us > 0) {
    store::Trial trial;
    trial.experiment = 3;
    trial.median_us = ours_us;
    line.state.incumbent = trial;
    line.state.trials = {trial, trial};
  }
  return line;
}

std::vector<std::vector<std::string>> cells(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string each; std::getline(lines, each);) {
    rows.emplace_back();
    std::istringstream parts(each);
    for (std::string cell; std::getline(parts, cell, '\t');) rows.back().push_back(cell);
  }
  return rows;
}

TEST(SuiteTable, HasEveryBaselineAndOurOwnRatioAlsoWhereItLoses) {
  SuiteLine unmeasured = line("3x3", 0);
  unmeasured.state.baseline.reset();
  SuiteLine confirmed = line("4x4", 9);
  confirmed.state.confirmation = store::Confirmation{3, "compile", 10, 20, 8, 2.0, 1.9, 2.1};
  const auto rows = cells(suite_tsv({line("1x1", 0), line("2x2", 40), unmeasured, confirmed}));
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[1], (std::vector<std::string>{"softmax", "1x1", "float16", "40.00", "-", "20.00", "-", "compile", "20.00", "-", "8.00",
                                               "-", "-", "-", "-", "0"}));
  EXPECT_EQ(rows[2], (std::vector<std::string>{"softmax", "2x2", "float16", "40.00", "-", "20.00", "-", "compile", "20.00", "40.00", "8.00",
                                               "5.000", "0.500", "-", "-", "2"}));
  EXPECT_EQ(rows[3][7], "-");
  EXPECT_EQ(rows[4], (std::vector<std::string>{"softmax", "4x4", "float16", "40.00", "-", "20.00", "-", "compile", "20.00", "10.00", "8.00",
                                               "1.250", "2.000", "1.900", "2.100", "2"}));
  EXPECT_EQ(rows[5], (std::vector<std::string>{"geometric mean of best/ours over 2 of 4 rows", "1.000"}));
}

TEST(SuiteTable, NamesTheBackendWhereThereAreSeveral) {
  SuiteLine cuda = line("1x1", 10), triton = line("1x1", 8);
  cuda.state.backend = kernel::Backend::cuda;
  triton.state.backend = kernel::Backend::triton;
  const auto rows = cells(suite_tsv({cuda, triton}));
  EXPECT_EQ(rows[0][3], "backend");
  EXPECT_EQ(rows[1][3], "cuda");
  EXPECT_EQ(rows[2][3], "triton");
  EXPECT_NE(cells(suite_tsv({cuda, cuda}))[0][3], "backend");
}

TEST(SuiteTable, AConfirmationOfAnEarlierIncumbentDoesNotCount) {
  SuiteLine stale = line("2x2", 10);
  stale.state.confirmation = store::Confirmation{2, "compile", 30, 20, 8, 0.7, 0.6, 0.8};
  EXPECT_EQ(suite_json({stale}).at("rows")[0].at("speedup"), 2.0);
  EXPECT_EQ(suite_json({stale}).at("geometric_mean"), 2.0);
  EXPECT_TRUE(suite_json({line("1x1", 0)}).at("geometric_mean").is_null());
}

}  // namespace
}  // namespace ak::report
