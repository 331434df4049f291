// The scheduler on simulated trials: where the next minute goes, when a task is left, and that budgets hold.
#include "plan/scheduler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "unit/search/fake_judge.h"

namespace ak::plan {
namespace {

using search::testing::FakeClock;

store::TaskState state_of(const std::string& id, double baseline_us, double floor_us) {
  store::TaskState state;
  state.id = id;
  state.baseline = store::Baseline{{{"eager", baseline_us}}, "eager", baseline_us, baseline_us, floor_us};
  return state;
}

void add_trial(store::TaskState& state, const std::string& verdict, double us) {
  store::Trial trial;
  trial.verdict = verdict;
  trial.median_us = us;
  state.trials.push_back(trial);
  if (verdict == "kept") state.incumbent = trial;
}

class SchedulerTest : public ::testing::Test {
 protected:
  Scheduler scheduler(std::vector<TaskFacts> facts, Budget budget = {}, Rules rules = {}) {
    return Scheduler(std::move(facts), 1000, budget, clock_, rules);
  }
  FakeClock clock_;
};

TEST_F(SchedulerTest, PrefersAGreatShareTimesHeadroom) {
  Scheduler plan =
      scheduler({{"at_its_floor", "matmul", 600, 1, 64, {}}, {"slow", "softmax", 300, 1, 64, {}}, {"small", "rope", 50, 1, 64, {}}});
  plan.update(state_of("at_its_floor", 600, 595));
  plan.update(state_of("slow", 300, 60));
  plan.update(state_of("small", 50, 5));
  EXPECT_EQ(plan.next(), "slow");
  const auto ranking = plan.ranking();
  EXPECT_EQ(ranking[0].task, "slow");
  EXPECT_NEAR(ranking[0].share, 0.3, 1e-12);
  EXPECT_NEAR(ranking[0].speedup_ceiling, 1000.0 / 760, 1e-12);
  EXPECT_GT(ranking[0].gain_per_minute, ranking[1].gain_per_minute);
  EXPECT_NE(Scheduler::why(ranking[0]).find("30.0 % of the forward"), std::string::npos);
}

TEST_F(SchedulerTest, CheapExperimentsAreWorthMore) {
  Scheduler plan = scheduler({{"dear", "a", 300, 1, 64, {}}, {"cheap", "b", 250, 1, 64, {}}});
  plan.update(state_of("dear", 300, 100));
  plan.update(state_of("cheap", 250, 80));
  EXPECT_EQ(plan.ranking()[0].task, "dear");
  plan.charge("dear", 20);
  plan.charge("cheap", 2);
  EXPECT_EQ(plan.ranking()[0].task, "cheap");
}

TEST_F(SchedulerTest, LeavesAPlateauAfterPatienceThatGrowsWithTheSpace) {
  for (const auto& [size, patience] : std::vector<std::pair<double, int>>{{1, 6}, {64, 12}, {4096, 18}}) {
    Scheduler plan = scheduler({{"task", "a", 300, 1, size, {}}});
    store::TaskState state = state_of("task", 300, 100);
    add_trial(state, "kept", 200);
    for (int i = 0; i < patience; ++i) {
      plan.update(state);
      ASSERT_FALSE(plan.move_on("task")) << size << " after " << i;
      add_trial(state, i % 2 ? "slower" : "wrong", 250);
    }
    plan.update(state);
    ASSERT_TRUE(plan.move_on("task"));
    EXPECT_EQ(plan.move_on("task")->reason, Reason::plateau);
    EXPECT_EQ(plan.move_on("task")->text.rfind("plateau: ", 0), 0u);
    add_trial(state, "kept", 190);
    plan.update(state);
    EXPECT_FALSE(plan.move_on("task"));
  }
}

TEST_F(SchedulerTest, LeavesATaskAtItsFloor) {
  Scheduler plan = scheduler({{"task", "a", 300, 1, 64, {}}});
  store::TaskState state = state_of("task", 300, 100);
  add_trial(state, "kept", 103);
  plan.update(state);
  EXPECT_FALSE(plan.move_on("task"));
  add_trial(state, "kept", 102);
  plan.update(state);
  ASSERT_TRUE(plan.move_on("task"));
  EXPECT_EQ(plan.move_on("task")->reason, Reason::roofline);
}

TEST_F(SchedulerTest, GivesUpWhatStaysFarBehindTheBaseline) {
  Scheduler plan = scheduler({{"task", "a", 300, 1, 1e6, {}}});
  store::TaskState state = state_of("task", 300, 100);
  for (int i = 0; i < 12; ++i) add_trial(state, "kept", 900 - 10 * i);
  plan.update(state);
  ASSERT_TRUE(plan.move_on("task"));
  EXPECT_EQ(plan.move_on("task")->reason, Reason::hopeless);
  add_trial(state, "kept", 500);
  plan.update(state);
  EXPECT_FALSE(plan.move_on("task"));
}

TEST_F(SchedulerTest, TheFartherBehindTheSoonerItGivesUp) {
  for (const auto& [us, trials] : {std::pair(700.0, 11), std::pair(1500.0, 5), std::pair(3000.0, 3)}) {
    Scheduler plan = scheduler({{"task", "a", 300, 1, 1e6, {}}});
    store::TaskState state = state_of("task", 300, 100);
    for (int i = 1; i < trials; ++i) {
      add_trial(state, i == 1 ? "kept" : "slower", us);
      plan.update(state);
      EXPECT_FALSE(plan.move_on("task")) << us << " after " << i;
    }
    add_trial(state, "slower", us);
    plan.update(state);
    ASSERT_TRUE(plan.move_on("task")) << us;
    EXPECT_EQ(plan.move_on("task")->reason, Reason::hopeless);
  }
}

TEST_F(SchedulerTest, ATaskMayNotTakeTheOthersTime) {
  Scheduler plan = scheduler({{"large", "a", 300, 1, 1e6, {}}, {"small", "b", 100, 1, 1e6, {}}, {"tiny", "c", 1, 1, 1e6, {}}},
                             {.minutes = std::nullopt, .experiments = 40});
  for (const char* id : {"large", "small", "tiny"}) plan.update(state_of(id, 100, 10));
  const auto allowed = [&](const std::string& id) {
    int count = 0;
    while (!plan.move_on(id)) {
      plan.charge(id, 1);
      ++count;
    }
    EXPECT_EQ(plan.move_on(id)->reason, Reason::budget);
    return count;
  };
  EXPECT_EQ(allowed("large"), 40);  // its share, one and a half times: more than all
  EXPECT_EQ(allowed("small"), 15);
  EXPECT_EQ(allowed("tiny"), 10);  // half of an equal share, one and a half times
}

TEST_F(SchedulerTest, StaysUntilAnotherTaskPromisesMuchMore) {
  Scheduler plan = scheduler({{"a", "a", 300, 1, 1e6, {}}, {"b", "b", 290, 1, 1e6, {}}});
  store::TaskState a = state_of("a", 300, 100);
  plan.update(a);
  plan.update(state_of("b", 290, 100));
  int changes = 0;
  std::string last = *plan.next();
  EXPECT_EQ(last, "a");
  for (int i = 0; i < 4; ++i) {
    add_trial(a, "slower", 300);
    plan.charge("a", 1);
    plan.update(a);
    const std::string now = *plan.next();
    changes += now != last;
    last = now;
    EXPECT_EQ(now, i < 3 ? "a" : "b") << i;
  }
  EXPECT_EQ(changes, 1);
}

TEST_F(SchedulerTest, WhatIsFarBehindWaitsForWhatIsPromising) {
  Scheduler plan = scheduler({{"products", "a", 600, 1, 1e6, {}}, {"norm", "b", 60, 1, 1e6, {}}});
  store::TaskState products = state_of("products", 600, 200);
  plan.update(products);
  plan.update(state_of("norm", 60, 40));
  EXPECT_EQ(plan.next(), "products");
  add_trial(products, "kept", 2400);  // the first trial says it all
  plan.charge("products", 1);
  plan.update(products);
  EXPECT_EQ(plan.next(), "norm");
}

TEST_F(SchedulerTest, WhereArithmeticIsTheLimitTheProspectIsSmall) {
  search::Ceilings slow_memory, slow_arithmetic;
  slow_memory.bytes_per_second = 1;
  slow_memory.flops_per_second[Dtype::float32] = 1e12;
  slow_arithmetic.bytes_per_second = 1e12;
  slow_arithmetic.flops_per_second[Dtype::float32] = 1;
  const auto prospect = [](const search::Ceilings& ceilings) {
    return facts_of(search::testing::small_task(), {{"us_per_call", 1}}, 1, ceilings).prospect;
  };
  EXPECT_EQ(prospect(slow_memory), 1);
  EXPECT_LT(prospect(slow_arithmetic), 0.5);
  Scheduler plan = scheduler({{"products", "a", 300, 1, 1e6, {}, prospect(slow_arithmetic)}, {"norm", "b", 200, 1, 1e6, {}}});
  plan.update(state_of("products", 300, 100));
  plan.update(state_of("norm", 200, 60));
  EXPECT_EQ(plan.next(), "norm");
}

TEST_F(SchedulerTest, ComesBackToAPlateauButNotToTheRoofline) {
  Scheduler plan = scheduler({{"done", "a", 500, 1, 64, {}}, {"stuck", "b", 300, 1, 64, {}}});
  store::TaskState done = state_of("done", 500, 400), stuck = state_of("stuck", 300, 100);
  add_trial(done, "kept", 405);
  done.moved_on = "roofline: 99 % of the floor";
  for (int i = 0; i < 12; ++i) add_trial(stuck, "slower", 400);
  stuck.moved_on = "plateau: 12 trials without a keep";
  plan.update(done);
  plan.update(stuck);
  EXPECT_EQ(plan.next(), "stuck");
  EXPECT_TRUE(plan.is_revisit("stuck"));
  plan.reopen("stuck");
  EXPECT_FALSE(plan.move_on("stuck"));
  stuck.moved_on.reset();
  int more = 0;
  while (!plan.move_on("stuck")) {
    add_trial(stuck, "slower", 400);
    plan.update(stuck);
    ++more;
  }
  EXPECT_EQ(more, 24);  // twice the patience
  stuck.moved_on = "exhausted: all 64 points were tried";
  plan.update(stuck);
  EXPECT_EQ(plan.next(), std::nullopt);
}

TEST_F(SchedulerTest, EndsWithItsMinutesOrItsExperiments) {
  Scheduler minutes = scheduler({{"a", "a", 300, 1, 64, {}}}, {.minutes = 2, .experiments = std::nullopt});
  EXPECT_FALSE(minutes.over());
  EXPECT_DOUBLE_EQ(*minutes.seconds_left(), 120);
  clock_.advance(119);
  EXPECT_FALSE(minutes.over());
  clock_.advance(1);
  EXPECT_TRUE(minutes.over());
  Scheduler experiments = scheduler({{"a", "a", 300, 1, 64, {}}}, {.minutes = std::nullopt, .experiments = 2});
  experiments.charge("a", 1);
  EXPECT_FALSE(experiments.over());
  experiments.charge("a", 1);
  EXPECT_TRUE(experiments.over());
  EXPECT_FALSE(experiments.seconds_left());
}

TEST_F(SchedulerTest, EstimatesTheModelByAmdahlWithoutCountingANodeTwice) {
  Scheduler plan = scheduler({{"attention", "a", 400, 1, 64, {"g0/q", "g0/softmax", "g0/v"}},
                              {"softmax", "b", 100, 1, 64, {"g0/softmax"}},
                              {"norm", "c", 200, 1, 64, {"g0/norm"}}});
  store::TaskState attention = state_of("attention", 400, 10), softmax = state_of("softmax", 100, 10), norm = state_of("norm", 200, 10);
  add_trial(attention, "kept", 100);
  add_trial(softmax, "kept", 50);
  add_trial(norm, "kept", 300);  // slower than the baseline, which is kept
  for (const auto* state : {&attention, &softmax, &norm}) plan.update(*state);
  EXPECT_DOUBLE_EQ(plan.estimated_speedup(), 1000.0 / 700);
  add_trial(norm, "kept", 100);
  plan.update(norm);
  EXPECT_DOUBLE_EQ(plan.estimated_speedup(), 1000.0 / 600);
  const Json json = to_json(plan);
  EXPECT_EQ(json.at("tasks").size(), 3u);
  EXPECT_DOUBLE_EQ(json.at("estimated_speedup").get<double>(), 1000.0 / 600);
}

TEST_F(SchedulerTest, SameStatesGiveTheSameChoices) {
  const auto play = [&](uint64_t seed) {
    Scheduler plan = scheduler({{"a", "a", 300, 1, 64, {}}, {"b", "b", 250, 1, 64, {}}, {"c", "c", 90, 1, 64, {}}},
                               {.minutes = std::nullopt, .experiments = 60});
    std::map<std::string, store::TaskState> states = {
        {"a", state_of("a", 300, 100)}, {"b", state_of("b", 250, 100)}, {"c", state_of("c", 90, 20)}};
    for (const auto& [id, state] : states) plan.update(state);
    std::mt19937_64 random(seed);
    std::string choices;
    while (!plan.over()) {
      const std::string task = *plan.next();
      if (plan.is_revisit(task)) plan.reopen(task);
      choices += task;
      store::TaskState& state = states.at(task);
      state.moved_on.reset();
      const double best = state.incumbent ? state.incumbent->median_us : state.baseline->best_us;
      if (random() % 4 == 0)
        add_trial(state, "kept", best * 0.97);
      else
        add_trial(state, "slower", best * 1.1);
      plan.charge(task, 1 + static_cast<double>(random() % 3));
      plan.update(state);
      if (const auto why = plan.move_on(task)) {
        state.moved_on = why->text;
        plan.update(state);
      }
    }
    return choices;
  };
  EXPECT_EQ(play(5), play(5));
  EXPECT_NE(play(5), play(6));
  EXPECT_NE(play(5).find('b'), std::string::npos);
}

TEST(FactsOf, MultipliesByTheCallsOfTheWorkload) {
  const TaskFacts facts = facts_of(search::testing::small_task(), {{"us_per_call", 12.5}, {"share", 0.1}, {"nodes", {"g0/a", "g0/b"}}}, 64);
  EXPECT_DOUBLE_EQ(facts.us_per_forward, 50);
  EXPECT_EQ(facts.calls, 4);
  EXPECT_EQ(facts.nodes, (std::vector<std::string>{"g0/a", "g0/b"}));
}

}  // namespace
}  // namespace ak::plan
