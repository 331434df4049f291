// Experiments on one task: what is recorded, what is kept, what is put back, and that a resumed search repeats nothing.
#include "search/task_search.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "unit/search/fake_judge.h"

namespace ak::search {
namespace {

using testing::FakeJudge;
using testing::four_tunables;
using testing::kernel_text;
using testing::RunFixture;
using testing::separable_us;

const std::string id = "rmsnorm_12345678";

double cost_of(const judge::Candidate& candidate) { return separable_us(candidate.point); }

class TaskSearchTest : public ::testing::Test {
 protected:
  store::Run new_run() {
    store::Run run = fixture_.open();
    fixture_.add(run, id, 40, 120, 50);
    return run;
  }
  static Settings settings() {
    Settings settings;
    settings.seed = 7;
    settings.ceilings.bytes_per_second = 1e9;
    settings.ceilings.flops_per_second[Dtype::float32] = 1e12;
    return settings;
  }
  static std::string faster_text() {
    std::string text = kernel_text(four_tunables);
    text.insert(text.find("void rows"), "// faster\n");
    return text;
  }

  RunFixture fixture_;
};

TEST_F(TaskSearchTest, TheFirstCorrectCandidateIsKeptAndRecordedWithItsSpeedups) {
  store::Run run = new_run();
  FakeJudge judge(cost_of);
  TaskSearch search(run, judge, id, settings());
  const Step step = search.run(*search.propose());
  ASSERT_TRUE(step.kept());
  ASSERT_TRUE(run.state(id).incumbent);
  const store::Trial& trial = *run.state(id).incumbent;
  EXPECT_EQ(trial.experiment, 1);
  EXPECT_EQ(trial.note, "the defaults");
  const double us = separable_us(search.space().file().defaults());
  EXPECT_DOUBLE_EQ(trial.median_us, us);
  EXPECT_DOUBLE_EQ(trial.speedup_vs_best, 120 / us);
  EXPECT_DOUBLE_EQ(trial.speedup_vs_eager, 180 / us);
  const double mean_rows = (3.0 * 100 + 1 * 64) / 4;
  EXPECT_NEAR(trial.tflops, 4 * mean_rows * 96 / us * 1e-6, 1e-12);
  EXPECT_NEAR(trial.percent_of_peak, 100 * (2 * mean_rows * 96 * 4 / 1e9) / (us * 1e-6), 1e-9);
}

TEST(Bound, IsTheRooflineWhereItIsNearAndLatencyWhereNothingIs) {
  const kernel::Task task = testing::small_task();
  const double rows = (3.0 * 100 + 1 * 64) / 4, bytes = 2 * rows * 96 * 4, flops = 4 * rows * 96;
  const Ceilings slow_memory{
      .bytes_per_second = bytes * 1e6 / 100, .flops_per_second = {{Dtype::float32, flops * 1e6 / 10}}, .launch_us = 3};
  const Ceilings slow_units{
      .bytes_per_second = bytes * 1e6 / 10, .flops_per_second = {{Dtype::float32, flops * 1e6 / 100}}, .launch_us = 3};
  EXPECT_EQ(bound_of(task, slow_memory, 1, 120), "memory");  // 100 us of memory, 10 us of arithmetic
  EXPECT_EQ(bound_of(task, slow_units, 1, 120), "compute");
  EXPECT_EQ(bound_of(task, slow_memory, 1, 200), "latency") << "half of the roofline is not what it waits for";
  EXPECT_EQ(bound_of(task, slow_memory, 40, 130), "latency") << "forty launches take longer by themselves";
  EXPECT_EQ(bound_of(task, {}, 1, 120), "");
  EXPECT_EQ(bound_of(task, slow_memory, 1, 0), "") << "was not timed";
}

TEST(Bound, OfWhatIsOnlyReadIsTheRateOfReading) {
  kernel::Task task = testing::small_task();
  const Ceilings ceilings{.bytes_per_second = 1e9, .read_bytes_per_second = 2e9, .flops_per_second = {}};
  const double copied = roofline_us(task, ceilings);
  for (kernel::Tensor& tensor : task.tensors) {
    if (tensor.role == kernel::Role::output) tensor.shape.clear();
  }
  EXPECT_DOUBLE_EQ(roofline_us(task, ceilings), copied / 2);
  EXPECT_EQ(arithmetic_us(task, ceilings), 0) << "its ceiling is unknown";
}

TEST_F(TaskSearchTest, TheEvidenceOfATrialSaysWhatBoundsIt) {
  store::Run run = new_run();
  FakeJudge judge(cost_of);
  TaskSearch search(run, judge, id, settings());
  const Step step = search.run(*search.propose());
  EXPECT_EQ(Json::parse(step.trial->evidence).value("bound", ""), bound_of(search.task(), settings().ceilings, 1, step.trial->median_us));
  EXPECT_NE(Json::parse(step.trial->evidence).value("bound", ""), "");
}

TEST_F(TaskSearchTest, FindsTheOptimumAndLeavesItAsTheDefaultsOfBest) {
  store::Run run = new_run();
  FakeJudge judge(cost_of);
  TaskSearch search(run, judge, id, settings());
  for (int i = 0; i < 60; ++i) search.run(*search.propose());
  const kernel::KernelFile best = kernel::KernelFile::read(run.best_path(id));
  EXPECT_EQ(best.defaults(), (kernel::Point{{"ROWS", 8}, {"BLOCK", 64}, {"VEC", 8}, {"UNROLL", 2}}));
  EXPECT_EQ(read_file(run.kernel_path(id)), best.text());
  EXPECT_DOUBLE_EQ(run.state(id).incumbent->median_us, 100);
}

TEST_F(TaskSearchTest, AResumedSearchContinuesAndProposesNothingTwice) {
  std::set<kernel::Point> points;
  size_t trials = 0;
  for (int session = 0; session < 5; ++session) {
    store::Run run = session == 0 ? new_run() : fixture_.open();
    FakeJudge judge(cost_of);
    TaskSearch search(run, judge, id, settings());
    for (int i = 0; i < 9; ++i, ++trials) points.insert(search.run(*search.propose()).proposal.point);
  }
  EXPECT_EQ(points.size(), trials);
  RunFixture other;
  store::Run whole = other.open();
  other.add(whole, id, 40, 120, 50);
  FakeJudge judge(cost_of);
  TaskSearch search(whole, judge, id, settings());
  for (size_t i = 0; i < trials; ++i) search.run(*search.propose());
  const store::Run resumed = fixture_.open();
  for (size_t i = 0; i < trials; ++i) EXPECT_EQ(resumed.state(id).trials[i].point, whole.state(id).trials[i].point) << i;
}

TEST_F(TaskSearchTest, AFailingEnvironmentIsTriedAgainOnceAndNeverCharged) {
  store::Run run = new_run();
  FakeJudge judge(cost_of);
  TaskSearch search(run, judge, id, settings());
  const Proposal proposal = *search.propose();
  judge.environment_failures = 1;
  EXPECT_TRUE(search.run(proposal).kept());
  EXPECT_EQ(judge.calls, 2);
  const Proposal second = *search.propose();
  judge.environment_failures = 2;
  const Step failed = search.run(second);
  EXPECT_FALSE(failed.trial);
  EXPECT_EQ(failed.judgement.evidence.at("message"), "the compiler is gone");
  EXPECT_EQ(run.state(id).trials.size(), 1u);
  EXPECT_EQ(search.propose()->point, second.point);
}

TEST_F(TaskSearchTest, AWrongStarterDoesNotEndTheSearch) {
  store::Run run = new_run();
  FakeJudge judge([](const judge::Candidate& candidate) { return candidate.point.at("ROWS") == 1 ? -1 : separable_us(candidate.point); });
  TaskSearch search(run, judge, id, settings());
  EXPECT_EQ(search.run(*search.propose()).judgement.verdict, judge::Verdict::wrong);
  EXPECT_TRUE(search.run(*search.propose()).kept());
  EXPECT_EQ(run.state(id).incumbent->point.at("ROWS"), 2);
}

TEST_F(TaskSearchTest, WhatIsAnnouncedFollowsWhileCandidatesLose) {
  store::Run run = new_run();
  FakeJudge judge([](const judge::Candidate& candidate) { return candidate.point == candidate.file.defaults() ? 1 : 2; });
  TaskSearch search(run, judge, id, settings());
  search.run(*search.propose());
  search.run(*search.propose());
  const std::vector<judge::Candidate> announced = judge.expected;
  ASSERT_GE(announced.size(), 4u);
  for (const judge::Candidate& candidate : announced) {
    const auto proposal = search.propose();
    ASSERT_TRUE(proposal);
    EXPECT_EQ(proposal->point, candidate.point);
    search.run(*proposal);
  }
}

TEST_F(TaskSearchTest, WhatWonOnAnotherShapeIsTriedFirst) {
  store::Run run = new_run();
  fixture_.add(run, "rmsnorm_other", 20, 120, 50);
  FakeJudge judge(cost_of);
  TaskSearch other(run, judge, "rmsnorm_other", settings());
  for (int i = 0; i < 60; ++i) other.run(*other.propose());
  TaskSearch search(run, judge, id, settings());
  search.run(*search.propose());
  const Proposal second = *search.propose();
  EXPECT_EQ(second.point, run.state("rmsnorm_other").incumbent->point);
  EXPECT_EQ(second.note.rfind("won on another shape: ", 0), 0u) << second.note;
}

TEST_F(TaskSearchTest, ABrokenLogIsStillRecorded) {
  store::Run run = new_run();
  class Broken final : public judge::Judge {
   public:
    judge::Judgement judge(const judge::Candidate&, const judge::Candidate*) override {
      judge::Judgement judgement;
      judgement.verdict = judge::Verdict::does_not_compile;
      judgement.evidence["log"] = "cut inside a character: \xE2\x80";
      return judgement;
    }
    judge::Judgement time_again(const judge::Candidate& candidate) override { return judge(candidate, nullptr); }
  } judge;
  TaskSearch search(run, judge, id, settings());
  search.run(*search.propose());
  EXPECT_EQ(run.state(id).trials.at(0).verdict, "does_not_compile");
}

TEST_F(TaskSearchTest, AnEditThatIsFasterIsKeptAndSearchedFromThere) {
  store::Run run = new_run();
  FakeJudge judge([](const judge::Candidate& candidate) {
    return separable_us(candidate.point) * (candidate.file.text().find("// faster") == std::string::npos ? 1 : 0.5);
  });
  TaskSearch search(run, judge, id, settings());
  search.run(*search.propose());
  const BenchResult result = search.bench_edited(faster_text(), "half the work");
  EXPECT_TRUE(result.kept());
  EXPECT_EQ(result.steps.size(), 1u);
  EXPECT_EQ(read_file(run.best_path(id)), faster_text());
  EXPECT_EQ(run.state(id).trials.back().note, "half the work");
  EXPECT_EQ(run.state(id).trials.back().proposer, "hand");
  EXPECT_EQ(search.space().file().text(), faster_text());
  EXPECT_EQ(search.propose()->note, "ROWS 1→2 (tier 1)");
}

TEST_F(TaskSearchTest, AnEditThatIsWrongOrSlowerIsPutBack) {
  store::Run run = new_run();
  FakeJudge judge([](const judge::Candidate& candidate) {
    return candidate.file.text().find("// faster") == std::string::npos ? separable_us(candidate.point) : -1;
  });
  TaskSearch search(run, judge, id, settings());
  search.run(*search.propose());
  const std::string before = read_file(run.best_path(id));
  write_file(run.kernel_path(id), faster_text());
  const BenchResult wrong = search.bench_edited(faster_text(), "a wrong edit");
  EXPECT_EQ(wrong.result().judgement.verdict, judge::Verdict::wrong);
  EXPECT_EQ(read_file(run.kernel_path(id)), before);
  EXPECT_EQ(search.bench_edited(before, "the same again: noise").result().judgement.verdict, judge::Verdict::slower);
  EXPECT_EQ(run.state(id).trials.size(), 3u);
}

TEST_F(TaskSearchTest, AnEditIsNotPutBackWhereTheEnvironmentFailed) {
  store::Run run = new_run();
  FakeJudge judge(cost_of);
  TaskSearch search(run, judge, id, settings());
  search.run(*search.propose());
  write_file(run.kernel_path(id), faster_text());
  judge.environment_failures = 2;
  const BenchResult result = search.bench_edited(faster_text(), "an edit", 5);
  EXPECT_EQ(result.result().judgement.verdict, judge::Verdict::failed_environment);
  EXPECT_EQ(result.steps.size(), 1u);
  EXPECT_EQ(read_file(run.kernel_path(id)), faster_text());
  EXPECT_EQ(run.state(id).trials.size(), 1u);
}

TEST_F(TaskSearchTest, TuningAnEditTurnsItsTunablesBeforeItIsGivenUp) {
  store::Run run = new_run();
  // The edit is slower at its defaults, and faster at ROWS 4.
  FakeJudge judge([](const judge::Candidate& candidate) {
    return candidate.file.text().find("// faster") == std::string::npos
               ? 100.0
               : 140.0 - 15.0 * static_cast<double>(std::min<int64_t>(candidate.point.at("ROWS"), 4));
  });
  TaskSearch search(run, judge, id, settings());
  search.run(*search.propose());
  const BenchResult result = search.bench_edited(faster_text(), "rows in groups", 3);
  EXPECT_TRUE(result.kept());
  EXPECT_EQ(result.steps.front().judgement.verdict, judge::Verdict::slower);
  EXPECT_EQ(result.result().proposal.note, "rows in groups: ROWS 2→4 (tier 1)");
  EXPECT_EQ(kernel::KernelFile::read(run.best_path(id)).defaults().at("ROWS"), 4);
}

TEST_F(TaskSearchTest, AFileThatCannotBeReadIsAnErrorAndLosesNothing) {
  store::Run run = new_run();
  FakeJudge judge(cost_of);
  TaskSearch search(run, judge, id, settings());
  write_file(run.kernel_path(id), "half an edit");
  EXPECT_THROW(search.bench_edited("half an edit", ""), Error);
  EXPECT_EQ(read_file(run.kernel_path(id)), "half an edit");
  EXPECT_TRUE(run.state(id).trials.empty());
}

}  // namespace
}  // namespace ak::search
