// The judge as the search uses it: real compiler, real judge process, fixtures from C++.
#include "judge/process_judge.h"

#include <signal.h>

#include "judge/null_judge.h"
#include "judge/stages.h"
#include "judge/statistic.h"
#include "rig.h"

namespace ak::judge::test {
namespace {

class ScaleFixtures final : public FixtureSource {
 public:
  Fixture make(const kernel::Task&, const Json& test_case) override {
    seeds.push_back(test_case.at("seed"));
    Json made = test_case;
    if (test_case.at("generator") == "normal") made["generator"] = usual;
    const FixturePaths paths = write_scale_fixture(made, directory_.path() / std::to_string(seeds.size()));
    return {paths.inputs, paths.expected};
  }
  size_t directories() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory_.path()), {})); }
  std::vector<uint64_t> seeds;
  std::string usual = "normal";

 private:
  TemporaryDirectory directory_{"autokernel-fixtures-"};
};

struct Bed {
  TemporaryDirectory cache{"autokernel-test-"};
  compile::CppCompiler compiler = compile::CppCompiler::find(AK_SOURCE_DIR "/kernels/include", cache.path());
  JudgeProcess process{judge_executable(), {{"device", "cpu"}, {"threads", 2}, {"limits", {{"load_seconds", 2.0}, {"run_seconds", 2.0}}}}};
  ScaleFixtures fixtures;
  ProcessJudge judge{scale_task(), process, compiler, fixtures, settings(any_gain)};

  static JudgeSettings settings(double minimum_gain) {
    JudgeSettings settings;
    settings.minimum_gain = minimum_gain;
    settings.timing_seconds = 0.5;
    return settings;
  }

  static Candidate candidate(const std::string& body, const std::string& more = {}) {
    kernel::KernelFile file = kernel::KernelFile::parse(scale_source(body, {}, more), "kernel.cpp");
    kernel::Point point = file.defaults();
    return {std::move(file), std::move(point)};
  }
};

const std::string slow_body =
    "for (int pass = 0; pass < 40; ++pass) for (int64_t i = 0; i < N; ++i) { out[i] = x[i] * weight[i]; asm volatile(\"\" ::: \"memory\"); "
    "}";

TEST(ProcessJudge, keeps_reverts_and_rejects) {
  Bed bed;
  const Candidate slow = Bed::candidate(slow_body), fast = Bed::candidate(honest_body);
  const Judgement first = bed.judge.judge(slow, nullptr);
  EXPECT_EQ(first.verdict, Verdict::kept) << first.evidence.dump(1);
  EXPECT_EQ(first.evidence["stages"], Json({1, 2, 3, 4, 5}));
  EXPECT_GT(first.median_us, 0);
  EXPECT_GT(first.peak_memory_mb, 0);

  const Judgement better = bed.judge.judge(fast, &slow);
  EXPECT_EQ(better.verdict, Verdict::kept) << better.evidence.dump(1);
  EXPECT_EQ(better.evidence["stages"], Json({1, 2, 3, 4, 5}));

  ProcessJudge strict(scale_task(), bed.process, bed.compiler, bed.fixtures, Bed::settings(no_gain));
  const Judgement worse = strict.judge(slow, &fast);
  EXPECT_EQ(worse.verdict, Verdict::slower);
  EXPECT_EQ(worse.evidence["stages"], Json::array({1}));

  const Judgement wrong = bed.judge.judge(Bed::candidate(honest_body + "if (block == 1) out[3] = 0;"), &fast);
  EXPECT_EQ(wrong.verdict, Verdict::wrong);
  EXPECT_EQ(wrong.evidence["stage"], 1);
  EXPECT_EQ(wrong.evidence["worst"]["index"], Json({1, 3}));

  const Judgement broken = bed.judge.judge(Bed::candidate("this is no C++;"), &fast);
  EXPECT_EQ(broken.verdict, Verdict::does_not_compile);
  EXPECT_NE(broken.evidence["log"].get<std::string>().find("kernel.cpp:"), std::string::npos);

  EXPECT_EQ(bed.judge.judge(Bed::candidate(honest_body, "require = [\"N == 5\"]\n"), &fast).verdict, Verdict::does_not_fit);
  const Judgement again = bed.judge.time_again(fast);
  EXPECT_EQ(again.verdict, Verdict::kept);
  EXPECT_GT(again.median_us, 0);
  EXPECT_EQ(median(again.evidence["samples_us"].get<std::vector<double>>()), again.median_us);
  const Judgement caught = bed.judge.time_again(Bed::candidate(honest_body + "if (block == 1) out[3] = 0;"));
  EXPECT_EQ(caught.verdict, Verdict::wrong);
}

TEST(ProcessJudge, an_incumbent_that_no_longer_compiles_or_fits_is_none) {
  Bed bed;
  const Candidate honest = Bed::candidate(honest_body), elsewhere = Bed::candidate(honest_body, "require = [\"N == 5\"]\n"),
                  broken = Bed::candidate("this is no C++;");
  for (const auto& [incumbent, verdict] : {std::pair(&elsewhere, Verdict::does_not_fit), std::pair(&broken, Verdict::does_not_compile)}) {
    const Judgement against = bed.judge.judge(honest, incumbent);
    EXPECT_EQ(against.verdict, Verdict::kept);
    EXPECT_EQ(against.evidence["stages"], Json({1, 2, 3, 4, 5}));
    EXPECT_EQ(against.evidence["incumbent"]["verdict"], name_of(verdict));
    EXPECT_EQ(bed.judge.time_again(*incumbent).verdict, verdict);
  }
}

TEST(ProcessJudge, a_fault_at_one_size_is_found_in_its_stage) {
  Bed bed;
  const Judgement edge = bed.judge.judge(Bed::candidate(honest_body + "if (N == 5) out[N] = 0;"), nullptr);
  EXPECT_EQ(edge.verdict, Verdict::out_of_bounds);
  EXPECT_EQ(edge.evidence["stage"], 5);
  EXPECT_EQ(edge.evidence["case"]["dims"]["N"], 5);
  const Judgement sweep = bed.judge.judge(Bed::candidate("for (int64_t i = 0; i < N / 8 * 8; ++i) out[i] = x[i] * weight[i];"), nullptr);
  EXPECT_EQ(sweep.verdict, Verdict::stale_output);
  EXPECT_EQ(sweep.evidence["stage"], 2);
  const Judgement large =
      bed.judge.judge(Bed::candidate("for (int64_t i = 0; i < N; ++i) out[i] = x[i] > 1e15f ? 0 : x[i] * weight[i];"), nullptr);
  EXPECT_EQ(large.verdict, Verdict::wrong);
  EXPECT_EQ(large.evidence["stage"], 3);
}

TEST(ProcessJudge, sizes_outside_a_require_are_left_out_and_counted) {
  Bed bed;
  const Judgement judgement = bed.judge.judge(Bed::candidate(honest_body, "require = [\"N % 8 == 0\"]\n"), nullptr);
  EXPECT_EQ(judgement.verdict, Verdict::kept);
  EXPECT_EQ(judgement.evidence["skipped_cases"], 2);
}

TEST(ProcessJudge, fixtures_are_kept_for_the_next_candidate_with_secret_seeds) {
  Bed bed;
  const Candidate slow = Bed::candidate(slow_body);
  bed.judge.judge(slow, nullptr);
  const size_t made = bed.fixtures.seeds.size();
  EXPECT_EQ(bed.judge.judge(Bed::candidate(honest_body + "if (block == 1) out[3] = 0;"), &slow).verdict, Verdict::wrong);
  EXPECT_EQ(bed.fixtures.seeds.size(), made);
  bed.judge.judge(Bed::candidate(honest_body), &slow);
  EXPECT_EQ(bed.fixtures.seeds.size(), made + 1);  // new data for what is about to be kept
  std::sort(bed.fixtures.seeds.begin(), bed.fixtures.seeds.end());
  EXPECT_EQ(std::unique(bed.fixtures.seeds.begin(), bed.fixtures.seeds.end()), bed.fixtures.seeds.end());
}

TEST(ProcessJudge, a_dead_judge_is_a_failed_environment_and_the_next_candidate_meets_a_new_one) {
  Bed bed;
  EXPECT_EQ(bed.judge.judge(Bed::candidate(slow_body), nullptr).verdict, Verdict::kept);
  ::signal(SIGPIPE, SIG_IGN);
  ::kill(bed.process.pid(), SIGKILL);
  const Judgement lost = bed.judge.judge(Bed::candidate(honest_body), nullptr);
  EXPECT_EQ(lost.verdict, Verdict::failed_environment);
  EXPECT_NE(lost.evidence["message"].get<std::string>().find("signal 9"), std::string::npos);
  EXPECT_EQ(bed.judge.judge(Bed::candidate(honest_body), nullptr).verdict, Verdict::kept);
}

TEST(ProcessJudge, null_candidates_fail_on_its_data) {
  Bed bed;
  EXPECT_TRUE(bed.judge.passing_null_candidates().timed.empty());
}

TEST(ProcessJudge, null_candidates_that_pass_on_timed_data_alone_are_told) {
  Bed bed;
  bed.fixtures.usual = "zeros";
  const PassingNullCandidates passing = bed.judge.passing_null_candidates();
  EXPECT_EQ(passing.timed, (std::vector<std::string>{"zeros", "mean", "copy of x", "answer to other data"}));
  EXPECT_TRUE(passing.everywhere.empty());
}

TEST(FixtureCache, stays_within_its_bytes) {
  ScaleFixtures source;
  FixtureCache cache(source, scale_task(), 3 << 20);
  for (int rows = 1; rows <= 40; ++rows) cache.get({{"stage", 2}, {"dims", {{"M", rows}, {"N", 512}}}, {"generator", "normal"}});
  EXPECT_LT(source.directories(), 20u);
  EXPECT_GT(source.directories(), 2u);
  const CaseFixture& kept = cache.get({{"stage", 5}, {"dims", {{"M", 3}, {"N", 5}}}, {"layout", "misaligned"}, {"generator", "normal"}});
  EXPECT_EQ(kept.binding.strides.at("x"), (std::vector<int64_t>{5, 1}));
}

/// Stage, generator and rows of the cases.
std::vector<std::tuple<int, std::string, int64_t>> listed(const std::vector<StageCase>& cases) {
  std::vector<std::tuple<int, std::string, int64_t>> list;
  for (const StageCase& each : cases) list.emplace_back(each.stage, each.test_case.at("generator"), each.test_case.at("dims").at("M"));
  return list;
}

TEST(Stages, ignored_values_are_in_what_is_checked_and_not_in_what_is_timed) {
  kernel::Task task = scale_task();
  task.workload.push_back({{{"M", 8}, {"N", 768}}});
  using List = std::vector<std::tuple<int, std::string, int64_t>>;
  const List plain = {{2, "normal", 8}, {2, "normal", 1}, {3, "large", 64}, {4, "normal", 64}, {5, "normal", 0}, {5, "normal", 3}};
  EXPECT_EQ(listed(later_cases(task)), plain);

  kernel::Tensor picked{"picked", kernel::Role::index, Dtype::int64, {Expression::parse("M", "a test")}, false, "N", "padding"};
  picked.absent = true;
  task.tensors.push_back(picked);
  EXPECT_EQ(listed(later_cases(task)), plain);

  task.tensors.back().absent = false;
  const List ignoring = {{2, "some_ignored", 64}, {2, "some_ignored", 8}, {2, "some_ignored", 1}, {3, "large", 64},
                         {4, "normal", 64},       {5, "some_ignored", 0}, {5, "some_ignored", 3}};
  EXPECT_EQ(listed(later_cases(task)), ignoring);
  EXPECT_TRUE(later_cases(task)[0].must_hold);
  EXPECT_EQ(listed({smoke_case(task)}), (List{{1, "normal", 64}}));
}

TEST(NullJudge, is_deterministic_smooth_and_sometimes_wrong) {
  std::string more;
  for (const char* name : {"A", "B", "C"}) more += std::string(name) + " = { values = [1, 2, 4, 8, 16, 32], default = 1, tier = 1 }\n";
  Candidate candidate = Bed::candidate(honest_body, more);
  const Candidate incumbent = candidate;
  NullJudge judge(100), again(100);
  std::mt19937_64 random(11);
  int wrong = 0, kept = 0;
  double best = 1e300;
  constexpr int trials = 2000;
  for (int trial = 0; trial < trials; ++trial) {
    for (auto& [name, value] : candidate.point)
      value = name == "UNROLL" ? 1 + static_cast<int64_t>(random() % 2) : int64_t{1} << random() % 6;
    const Judgement judgement = judge.judge(candidate, &incumbent);
    EXPECT_EQ(judgement.verdict, again.judge(candidate, &incumbent).verdict);
    wrong += judgement.verdict == Verdict::wrong ? 1 : 0;
    kept += judgement.verdict == Verdict::kept ? 1 : 0;
    best = std::min(best, judge.time_again(candidate).median_us);
  }
  EXPECT_GT(wrong, trials / 200);
  EXPECT_LT(wrong, trials / 20);
  EXPECT_GT(kept, 0);
  EXPECT_DOUBLE_EQ(best, 100);
  EXPECT_EQ(judge.judge(incumbent, nullptr).verdict, Verdict::kept);
}

TEST(Verdicts, have_names) {
  for (int i = 0; i <= static_cast<int>(Verdict::failed_environment); ++i) {
    const auto verdict = static_cast<Verdict>(i);
    EXPECT_EQ(parse_verdict(name_of(verdict)), verdict);
  }
  EXPECT_THROW(parse_verdict("fine"), Error);
}

}  // namespace
}  // namespace ak::judge::test
