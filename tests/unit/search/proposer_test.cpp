// Spaces and strategies: only valid points, none twice, the same again from the same seed, and the optimum is found.
#include "search/proposer.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "unit/search/fixtures.h"

namespace ak::search {
namespace {

using testing::four_tunables;
using testing::kernel_text;
using testing::separable_us;
using testing::simulate;
using testing::small_space;
using testing::small_task;

const kernel::Point optimum = {{"ROWS", 8}, {"BLOCK", 64}, {"VEC", 8}, {"UNROLL", 2}};

kernel::Point best_point(const std::vector<store::Trial>& trials) {
  return std::min_element(trials.begin(), trials.end(),
                          [](const auto& left, const auto& right) { return left.median_us < right.median_us; })
      ->point;
}

size_t distinct(const std::vector<store::Trial>& trials) {
  std::set<kernel::Point> points;
  for (const store::Trial& trial : trials) points.insert(trial.point);
  return points.size();
}

TEST(Space, RequireMustHoldForEveryWorkloadBinding) {
  const Space space = small_space();
  EXPECT_EQ(space.raw_size(), 240);
  size_t valid = 0;
  for (const int64_t rows : {1, 2, 4, 8, 16}) {
    for (const int64_t vec : {4, 8, 16}) valid += rows * vec <= 64 ? 16 : 0;  // the smaller M of the two bindings
  }
  EXPECT_EQ(space.size(), static_cast<double>(valid));
  EXPECT_EQ(space.points().size(), valid);
  EXPECT_TRUE(space.allows({{"ROWS", 16}, {"VEC", 4}, {"BLOCK", 16}, {"UNROLL", 1}}));
  EXPECT_FALSE(space.allows({{"ROWS", 16}, {"VEC", 8}, {"BLOCK", 16}, {"UNROLL", 1}}));
  EXPECT_FALSE(space.allows({{"ROWS", 3}, {"VEC", 8}, {"BLOCK", 16}, {"UNROLL", 1}}));
  EXPECT_FALSE(space.allows({{"ROWS", 1}}));
}

TEST(Space, TunablesAreOrderedByTierAndCanBeCutOffAtOne) {
  std::vector<std::string> names;
  const Space space = small_space();
  for (const auto& tunable : space.tunables()) names.push_back(tunable.name);
  EXPECT_EQ(names, (std::vector<std::string>{"ROWS", "BLOCK", "VEC", "UNROLL"}));
  const Space first_tier = small_space(1);
  EXPECT_EQ(first_tier.size(), 20);
  for (const auto& point : first_tier.points()) EXPECT_EQ(point.at("UNROLL"), 1);
}

TEST(Space, NeighboursAreNearestFirstAndValid) {
  const Space space = small_space();
  std::vector<int64_t> rows;
  for (const auto& point : space.neighbours({{"ROWS", 4}, {"VEC", 8}, {"BLOCK", 16}, {"UNROLL", 1}}, space.tunables()[0]))
    rows.push_back(point.at("ROWS"));
  EXPECT_EQ(rows, (std::vector<int64_t>{8, 2, 1}));
}

TEST(Space, AHugeSpaceIsNeverListedButSampledAndEstimated) {
  std::string tune;
  for (int i = 0; i < 16; ++i) tune += "T" + std::to_string(i) + " = { values = [1, 2, 3, 4, 5, 6, 7, 8], default = 1, tier = 1 }\n";
  const Space space(kernel::KernelFile::parse(kernel_text(tune + "require = [\"T0 <= 4\"]"), "kernel.cpp"), small_task(), {});
  EXPECT_FALSE(space.listed());
  EXPECT_NEAR(space.size() / space.raw_size(), 0.5, 0.1);
  Random random(5);
  const auto trials = simulate(random, space, 30, [](const kernel::Point& point) { return static_cast<double>(point.at("T3")); });
  EXPECT_EQ(distinct(trials), 30u);
  for (const auto& trial : trials) EXPECT_TRUE(space.allows(trial.point));
}

TEST(Space, ARequireThatCannotBeEvaluatedDoesNotHold) {
  const Space space(
      kernel::KernelFile::parse(kernel_text("A = { values = [0, 1, 2], default = 1, tier = 1 }\nrequire = [\"N % A == 0\"]"), "kernel.cpp"),
      small_task(), {});
  EXPECT_EQ(space.size(), 2);
}

TEST(Space, DescribesWhatChanged) {
  const kernel::KernelFile file = kernel::KernelFile::parse(kernel_text(four_tunables), "kernel.cpp");
  kernel::Point to = file.defaults();
  EXPECT_EQ(describe_change(file, file.defaults(), to), "the defaults");
  to["ROWS"] = 4;
  EXPECT_EQ(describe_change(file, file.defaults(), to), "ROWS 1→4 (tier 1)");
  to["UNROLL"] = 2;
  EXPECT_EQ(describe_change(file, file.defaults(), to), "UNROLL 1→2, ROWS 1→4 (tiers 1, 3)");
}

TEST(Coordinate, FindsTheOptimumOfASeparableFunction) {
  const Space space = small_space();
  Coordinate coordinate;
  const auto trials = simulate(coordinate, space, 40, separable_us);
  EXPECT_EQ(best_point(trials), optimum);
}

TEST(Coordinate, TakesTiersInOrderAndNearValuesFirst) {
  const Space space = small_space();
  Coordinate coordinate;
  const auto trials = simulate(coordinate, space, 7, [](const kernel::Point&) { return 10.0; });
  std::vector<std::string> notes;
  for (const auto& trial : trials) notes.push_back(trial.note);
  // The first is kept (nothing was before), and the search goes on from there.
  EXPECT_EQ(notes, (std::vector<std::string>{"ROWS 1→2 (tier 1)", "ROWS 2→4 (tier 1)", "ROWS 2→1 (tier 1)", "BLOCK 16→32 (tier 1)",
                                             "VEC 4→8 (tier 2)", "UNROLL 1→2 (tier 3)", "ROWS 2→8 (tier 1)"}));
}

TEST(Coordinate, FollowsTheTunableThatMoved) {
  const Space space = small_space();
  Playbook playbook(1);
  const auto trials =
      simulate(playbook, space, 12, [](const kernel::Point& point) { return 100.0 - static_cast<double>(point.at("VEC")); });
  std::vector<int64_t> kept;
  for (const auto& trial : trials) {
    if (trial.verdict == "kept") kept.push_back(trial.point.at("VEC"));
  }
  EXPECT_EQ(kept, (std::vector<int64_t>{4, 8, 16}));
}

TEST(Coordinate, TriesPairsWhenSingleStepsAreUsedUp) {
  const Space space(
      kernel::KernelFile::parse(
          kernel_text("A = { values = [1, 2], default = 1, tier = 1 }\nB = { values = [1, 2], default = 1, tier = 4 }"), "kernel.cpp"),
      small_task(), {});
  const auto valley = [](const kernel::Point& point) {
    return point.at("A") == point.at("B") ? 10.0 - static_cast<double>(point.at("A")) : 20.0;
  };
  Playbook playbook(3);
  const auto trials = simulate(playbook, space, 10, valley);
  EXPECT_EQ(trials.size(), 4u);
  EXPECT_EQ(best_point(trials), (kernel::Point{{"A", 2}, {"B", 2}}));
}

TEST(Playbook, CoversTheWholeSpaceWithoutRepeatingAPoint) {
  const Space space = small_space();
  for (const uint64_t seed : {1u, 2u, 77u}) {
    Playbook playbook(seed);
    const auto trials = simulate(playbook, space, 1000, separable_us);
    EXPECT_EQ(trials.size(), space.points().size());
    EXPECT_EQ(distinct(trials), trials.size());
    EXPECT_EQ(trials[0].point, space.file().defaults());
    EXPECT_EQ(best_point(trials), optimum);
  }
}

TEST(Playbook, PriorsThatHoldComeFirstInTheirOrderEachOnce) {
  const std::string priors = R"(
[[prior]]
when = "N > 1000"
set = { ROWS = 16 }
[[prior]]
when = "N <= 96 && sizeof(T) == 4"
set = { ROWS = 4, VEC = 8 }
[[prior]]
set = { ROWS = 8 }
[[prior]]
set = { ROWS = 16, VEC = 8 }
[[prior]]
set = { VEC = 8 })";
  std::string text = kernel_text(four_tunables);
  text.insert(text.find("\n*/"), priors);
  const Space space(kernel::KernelFile::parse(text, "kernel.cpp"), small_task(), {});
  Playbook playbook(1);
  const auto trials = simulate(playbook, space, 4, [](const kernel::Point&) { return 10.0; });
  std::vector<std::string> notes;
  for (const auto& trial : trials) notes.push_back(trial.note);
  // The first does not hold, the fourth is excluded by the require, and the last was tried with the second.
  EXPECT_EQ(notes, (std::vector<std::string>{"prior: ROWS 1→4, VEC 4→8 (tiers 1, 2)", "prior: ROWS 4→8, VEC 8→4 (tiers 1, 2)",
                                             "the defaults", "ROWS 4→8 (tier 1)"}));
  EXPECT_EQ(trials[0].proposer, "prior");
}

TEST(Playbook, WhatWonOnOtherShapesIsTriedAfterTheDefaults) {
  const Space space = small_space();
  const kernel::Point won = {{"ROWS", 4}, {"VEC", 16}, {"BLOCK", 32}, {"UNROLL", 8}};
  kernel::Point excluded = won;
  excluded["ROWS"] = 16;
  store::Trial defaults;
  defaults.point = space.file().defaults();
  defaults.verdict = "kept";
  defaults.kernel_hash = kernel_hash(space.file(), defaults.point);
  Playbook playbook(1);
  EXPECT_EQ(playbook.next(History(space, {}, {excluded, won}))->point, defaults.point);
  EXPECT_EQ(playbook.next(History(space, {defaults}, {excluded, won}))->point, won);
}

TEST(Playbook, MixesRandomRestartsIntoAPlateau) {
  const Space space = small_space();
  Playbook playbook(9);
  const auto trials = simulate(playbook, space, 25, [](const kernel::Point&) { return 10.0; });
  int random = 0;
  for (const auto& trial : trials) random += trial.proposer == "random";
  EXPECT_GE(random, 4);
  EXPECT_LE(random, 7);
}

TEST(Playbook, SameSeedAndHistoryGiveTheSameProposalsAlsoAfterAResume) {
  const Space space = small_space();
  const auto noisy = [](const kernel::Point& point) {
    return separable_us(point) + static_cast<double>((point.at("ROWS") * 7 + point.at("BLOCK") * 3) % 11);
  };
  Playbook first(42);
  const auto whole = simulate(first, space, 60, noisy);
  for (const size_t cut : {0u, 1u, 7u, 30u, 59u}) {
    Playbook resumed(42);
    const History history(space, {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut)});
    const auto proposal = resumed.next(history);
    ASSERT_TRUE(proposal);
    EXPECT_EQ(proposal->point, whole[cut].point) << "after " << cut;
    EXPECT_EQ(proposal->note, whole[cut].note);
  }
  Playbook other(43);
  const auto different = simulate(other, space, 60, noisy);
  EXPECT_NE(std::vector<std::string>({whole[40].note, whole[50].note, whole[59].note}),
            std::vector<std::string>({different[40].note, different[50].note, different[59].note}));
}

TEST(History, TrialsOfAnotherFileAreNoPointsOfThisOne) {
  const Space space = small_space();
  store::Trial trial;
  trial.point = space.file().defaults();
  trial.verdict = "kept";
  trial.kernel_hash = "of another text";
  History history(space, {trial});
  EXPECT_FALSE(history.seen(trial.point));
  EXPECT_EQ(history.trials(), 1);
  trial.kernel_hash = kernel_hash(space.file(), trial.point);
  history.add(trial);
  EXPECT_TRUE(history.seen(trial.point));
}

TEST(History, AFailedStarterLeavesTheSearchAtTheFastestCorrectPoint) {
  const Space space = small_space();
  History history(space, {});
  const auto add = [&](int64_t rows, const char* verdict, double us) {
    store::Trial trial;
    trial.point = space.file().defaults();
    trial.point["ROWS"] = rows;
    trial.verdict = verdict;
    trial.median_us = us;
    trial.kernel_hash = kernel_hash(space.file(), trial.point);
    history.add(trial);
  };
  add(1, "wrong", 0);
  EXPECT_EQ(history.centre().at("ROWS"), 1);
  add(2, "slower", 8);
  add(4, "slower", 9);
  EXPECT_EQ(history.centre().at("ROWS"), 2);
  add(8, "kept", 9);
  EXPECT_EQ(history.centre().at("ROWS"), 8);
  EXPECT_EQ(history.trials_since_kept(), 0);
}

TEST(MakeProposer, NamesTheKnownStrategies) {
  for (const char* name : {"playbook", "coordinate", "random"}) EXPECT_TRUE(make_proposer(name, 1));
  EXPECT_THROW(make_proposer("genetic", 1), Error);
}

}  // namespace
}  // namespace ak::search
