// The loop over tasks with a judge that computes: budgets, stopping, revisits, a failing environment, and resuming.
#include "plan/run_plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "unit/search/fake_judge.h"

namespace ak::plan {
namespace {

using search::testing::FakeJudge;
using search::testing::RunFixture;
using search::testing::separable_us;

const std::string two_by_two = "A = { values = [1, 2], default = 1, tier = 1 }\nB = { values = [1, 2], default = 1, tier = 2 }";

class Recorder final : public Observer {
 public:
  void task_chosen(const store::TaskState& task, const std::string&) override { chosen.push_back(task.id); }
  void judged(const store::TaskState&, const search::Step& step, const Progress&) override {
    ++judged_count;
    if (stop_after > 0 && judged_count == stop_after) stop = true;
    if (!step.trial) ++environment_failures;
  }
  void moved_on(const store::TaskState& task, const MoveOn& why) override { left.emplace_back(task.id, why.reason); }
  void finished(const std::string& why, const Progress& progress) override {
    end = why;
    last = progress;
  }

  std::vector<std::string> chosen;
  std::vector<std::pair<std::string, Reason>> left;
  int judged_count = 0, environment_failures = 0, stop_after = 0;
  std::atomic<bool> stop = false;
  std::string end;
  Progress last;
};

class RunPlanTest : public ::testing::Test {
 protected:
  store::Run new_run() {
    store::Run run = fixture_.open();
    fixture_.add(run, "softmax_00000001", 50, 150, 60);
    fixture_.add(run, "rmsnorm_00000002", 30, 90, 30, two_by_two);
    return run;
  }
  std::string play(store::Run& run, Budget budget) {
    Scheduler scheduler({{"softmax_00000001", "softmax", 500, 1, 1, {}}, {"rmsnorm_00000002", "rmsnorm", 300, 1, 1, {}}}, 1000, budget,
                        fixture_.clock);
    return run_plan(
        run, scheduler, [&](const std::string&) -> judge::Judge& { return judge_; }, {}, between_, recorder_.stop, fixture_.clock,
        recorder_);
  }
  static double cost(const judge::Candidate& candidate) {
    return candidate.point.contains("ROWS") ? separable_us(candidate.point)
                                            : 100 - 10.0 * static_cast<double>(candidate.point.at("A") + candidate.point.at("B"));
  }

  RunFixture fixture_;
  Between between_;
  FakeJudge judge_{cost, &fixture_.clock, 1.5};
  Recorder recorder_;
};

TEST_F(RunPlanTest, SpendsExactlyItsExperimentsAndWritesThePlan) {
  store::Run run = new_run();
  EXPECT_EQ(play(run, {.minutes = std::nullopt, .experiments = 25}), "the experiments are done");
  EXPECT_EQ(run.experiments(), 25);
  EXPECT_EQ(recorder_.last.experiment, 25);
  EXPECT_GT(recorder_.last.estimated_speedup, 1.1);
  const Json plan = read_json(run.directory() / "plan.json");
  ASSERT_EQ(plan.at("tasks").size(), 2u);
  EXPECT_FALSE(run.state("softmax_00000001").trials.empty());
  EXPECT_FALSE(run.state("rmsnorm_00000002").trials.empty());
}

TEST_F(RunPlanTest, EndsWithItsMinutes) {
  store::Run run = new_run();
  EXPECT_EQ(play(run, {.minutes = 0.5, .experiments = std::nullopt}), "the minutes are over");
  EXPECT_EQ(run.experiments(), 20);  // 1.5 s each
  EXPECT_DOUBLE_EQ(*recorder_.last.seconds_left, 0);
}

TEST_F(RunPlanTest, StopsAfterTheExperimentThatIsRunning) {
  store::Run run = new_run();
  recorder_.stop_after = 3;
  EXPECT_EQ(play(run, {}), "stopped");
  EXPECT_EQ(run.experiments(), 3);
}

TEST_F(RunPlanTest, WithoutABudgetEveryPointIsTriedOnceAndThenItEnds) {
  store::Run run = new_run();
  EXPECT_EQ(play(run, {}), "nothing is worth the effort");
  EXPECT_EQ(run.state("rmsnorm_00000002").trials.size(), 4u);
  EXPECT_EQ(*run.state("rmsnorm_00000002").moved_on, "exhausted: all 4 points were tried");
  std::set<kernel::Point> points;
  for (const store::Trial& trial : run.state("softmax_00000001").trials) points.insert(trial.point);
  EXPECT_EQ(points.size(), run.state("softmax_00000001").trials.size());
  int revisits = 0;
  for (const auto& [task, reason] : recorder_.left) revisits += reason == Reason::plateau;
  EXPECT_GE(revisits, 1);
  const int judged = recorder_.judged_count;
  EXPECT_EQ(play(run, {}), "nothing is worth the effort");
  EXPECT_EQ(recorder_.judged_count, judged);
}

TEST_F(RunPlanTest, AResumedRunContinuesItsNumbersAndRepeatsNoPoint) {
  {
    store::Run run = new_run();
    play(run, {.minutes = std::nullopt, .experiments = 8});
  }
  store::Run run = fixture_.open();
  play(run, {.minutes = std::nullopt, .experiments = 8});
  EXPECT_EQ(run.experiments(), 16);
  std::set<std::pair<std::string, kernel::Point>> tried;
  for (const std::string& id : run.task_ids()) {
    for (const store::Trial& trial : run.state(id).trials) tried.insert({id, trial.point});
  }
  EXPECT_EQ(tried.size(), 16u);
}

TEST_F(RunPlanTest, AnEnvironmentThatKeepsFailingEndsTheRunUncharged) {
  store::Run run = new_run();
  judge_.environment_failures = 1000;
  EXPECT_EQ(play(run, {.minutes = std::nullopt, .experiments = 50}), "the environment keeps failing: the compiler is gone");
  EXPECT_EQ(run.experiments(), 0);
  EXPECT_EQ(recorder_.environment_failures, 3);
  judge_.environment_failures = 0;
  EXPECT_EQ(play(run, {.minutes = std::nullopt, .experiments = 5}), "the experiments are done");
  EXPECT_EQ(run.experiments(), 5);
}

TEST_F(RunPlanTest, AKernelJudgedByHandMeanwhileIsTheIncumbentOfWhatFollows) {
  store::Run run = new_run();
  const std::string by_hand = read_file(run.best_path("rmsnorm_00000002")) + "// by hand\n";
  int calls = 0;
  between_ = [&] {
    if (++calls != 3) return false;
    search::TaskSearch search(run, judge_, "rmsnorm_00000002", {});
    EXPECT_TRUE(search.bench_edited(by_hand, "mine").kept());
    return true;
  };
  play(run, {.minutes = std::nullopt, .experiments = 12});
  EXPECT_GE(run.experiments(), 13);
  const auto& trials = run.state("rmsnorm_00000002").trials;
  EXPECT_EQ(std::count_if(trials.begin(), trials.end(), [](const store::Trial& trial) { return trial.proposer == "hand"; }), 1);
  EXPECT_NE(read_file(run.best_path("rmsnorm_00000002")).find("// by hand"), std::string::npos);
}

}  // namespace
}  // namespace ak::plan
