// The verb `time` on candidates whose order is known, and on those that cheat the clock.
#include "judge/cpu_machine.h"
#include "judge/paired_timer.h"
#include "rig.h"

namespace ak::judge::test {
namespace {

const std::string slow_body =
    "for (int pass = 0; pass < 40; ++pass) for (int64_t i = 0; i < N; ++i) { out[i] = x[i] * weight[i]; asm volatile(\"\" ::: \"memory\"); "
    "}";

TEST(Timing, a_gain_keeps_and_none_reverts) {
  Rig rig;
  const std::string first = scale_source(honest_body), second = scale_source(slow_body);
  const Json kept = rig.time(first, second);
  EXPECT_EQ(kept["verdict"], "kept") << kept.dump(1);
  EXPECT_GT(kept["median_us"], 0);
  EXPECT_GE(kept["evidence"]["ci_high"], kept["evidence"]["ci_low"]);
  const Json slower = rig.time(second, first, no_gain);
  EXPECT_EQ(slower["verdict"], "slower") << slower.dump(1);
  EXPECT_GE(slower["evidence"]["samples_us"].size(), 6);
  EXPECT_EQ(rig.time(first, first, no_gain)["verdict"], "slower");  // one module, two hosts
}

/// Times around `us` in the order A B B A, the machine drifting, a few of them disturbed.
struct Series {
  std::vector<Sample> candidate, incumbent;
};
Series series(int rounds, double candidate_us, double incumbent_us, double spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> noise(0, spread);
  Series made;
  for (int round = 0; round < rounds; ++round) {
    const double drift = 1 + 0.2 * round / rounds;
    for (int i = 0; i < 2; ++i) {
      const bool clean = random() % 5 != 0;
      made.candidate.push_back({candidate_us * drift * noise(random) * (clean ? 1 : 50), clean});
      made.incumbent.push_back({incumbent_us * drift * noise(random), true});
    }
  }
  return made;
}

bool faster(const Series& of) {
  Timing timing;
  conclude(of.candidate, of.incumbent, {}, true, timing);
  return timing.faster;
}

TEST(Conclusion, five_per_cent_are_found_and_half_a_per_cent_is_not_enough) {
  int found = 0, believed = 0, reversed = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    found += faster(series(40, 95, 100, 0.01, seed)) ? 1 : 0;
    believed += faster(series(40, 99.5, 100, 0.01, seed)) ? 1 : 0;
    reversed += faster(series(40, 103, 100, 0.03, seed)) ? 1 : 0;
  }
  EXPECT_GT(found, 195);
  EXPECT_LT(believed, 5);
  EXPECT_EQ(reversed, 0);
}

TEST(Conclusion, a_clear_loser_is_decided_at_the_first_look_and_a_close_call_is_not) {
  const Series loser = series(5, 130, 100, 0.02, 3), close = series(5, 99, 100, 0.02, 3);
  Timing timing;
  EXPECT_TRUE(conclude(loser.candidate, loser.incumbent, {}, false, timing));
  EXPECT_FALSE(timing.faster);
  EXPECT_NEAR(timing.speedup, 1 / 1.3, 0.03);
  EXPECT_FALSE(conclude(close.candidate, close.incumbent, {}, false, timing));
}

TEST(Conclusion, disturbed_samples_are_left_out_where_enough_others_are) {
  Series mixed = series(20, 80, 100, 0.01, 9);
  Timing timing;
  EXPECT_TRUE(conclude(mixed.candidate, mixed.incumbent, {}, false, timing));
  EXPECT_TRUE(timing.faster);
  EXPECT_GT(timing.disturbed, 0);
  EXPECT_EQ(timing.samples_us.size() + static_cast<size_t>(timing.disturbed), mixed.candidate.size());
  for (Sample& sample : mixed.candidate) sample.clean = false;
  EXPECT_FALSE(conclude(mixed.candidate, mixed.incumbent, {}, false, timing));
  conclude(mixed.candidate, mixed.incumbent, {}, true, timing);
  EXPECT_EQ(timing.disturbed, 0);
}

TEST(Conclusion, the_slower_of_two_measurements_counts) {
  Timing timing;
  timing.samples_us = {50, 51, 52};
  timing.launches.resize(3);
  timing.speedup = 2;
  timing.interval = {1.8, 2.2};
  timing.noise = 0.02;
  Timing faster, slower;
  faster.samples_us = {40, 41, 42};
  faster.launches.resize(4);
  count_slower(timing, faster);
  EXPECT_EQ(median(timing.samples_us), 51);
  EXPECT_EQ(timing.speedup, 2);
  EXPECT_TRUE(clears(timing, {.minimum_gain = 0.5}));
  slower.samples_us = {100, 101, 102, 103, 104};
  slower.disturbed = 1;
  count_slower(timing, slower);
  EXPECT_EQ(timing.samples_us, slower.samples_us);
  EXPECT_EQ(timing.disturbed, 1);
  EXPECT_NEAR(timing.speedup, 1, 1e-9);
  EXPECT_NEAR(timing.interval.low, 0.9, 1e-9);
  EXPECT_NEAR(timing.interval.high, 1.1, 1e-9);
  EXPECT_FALSE(clears(timing, {}));
  EXPECT_EQ(timing.launches.size(), 7);
  EXPECT_EQ(timing.measurements, 3);
}

TEST(Timing, a_first_candidate_is_timed_alone) {
  Rig rig;
  const Json reply = rig.time(scale_source(honest_body), "");
  EXPECT_EQ(reply["verdict"], "kept") << reply.dump(1);
  EXPECT_GE(reply["evidence"]["samples_us"].size(), 7);
}

TEST(Timing, a_remembered_answer_is_cheating) {
  // Computes honestly while it is checked, then hands out what it remembers for inputs that look the same in their first element of each
  // row.
  const std::string globals = "float memory[64][768]; float seen[64]; int launches[64];";
  const std::string body =
      "if (launches[block]++ < 2) { for (int64_t i = 0; i < N; ++i) memory[block][i] = out[i] = x[i] * weight[i]; seen[block] = x[0]; "
      "return; }\n"
      "for (int64_t i = 0; i < N; ++i) out[i] = memory[block][i];";
  Rig rig;
  const Json reply = rig.time(scale_source(body, globals), scale_source(slow_body));
  EXPECT_EQ(reply["verdict"], "cheating") << reply.dump(1);
  EXPECT_EQ(reply.value("rule", ""), "remembered answer");
}

TEST(Timing, a_launch_that_writes_nothing_after_its_check_is_found) {
  const std::string body = "if (launches[block]++ < 2) for (int64_t i = 0; i < N; ++i) out[i] = x[i] * weight[i];";
  Rig rig;
  const Json reply = rig.time(scale_source(body, "int launches[64];"), scale_source(slow_body));
  EXPECT_EQ(reply["verdict"], "cheating") << reply.dump(1);
}

TEST(Timing, mostly_all_elements_change_so_that_an_earlier_answer_cannot_be_brought_up_to_date) {
  const std::string globals = "float before[64][768]; int launches[64], alike[64];";
  const std::string body =
      "int same = 0;\n"
      "for (int64_t i = 0; i < N; ++i) { same += x[i] == before[block][i]; before[block][i] = x[i]; out[i] = x[i] * weight[i]; }\n"
      "if (++launches[block] > 3) alike[block] += same > N / 4;\n"
      "if (launches[block] > 3 + 8 && 2 * alike[block] > launches[block] - 3) out[0] += 1;";
  Rig rig;
  const Json reply = rig.time(scale_source(body, globals), scale_source(slow_body));
  EXPECT_EQ(reply["verdict"], "kept") << reply.dump(1);
}

/// Runs everything as the CPU's host does, and tells another time: about `us`, and `factor` of that by a second clock.
class TwoClocks : public device::Host {
 public:
  TwoClocks(std::unique_ptr<device::Host> host, double us, double factor) : host_(std::move(host)), us_(us), factor_(factor) {}

  device::Outcome load() override { return host_->load(); }
  std::span<std::byte> arena(int64_t bytes) override { return host_->arena(bytes); }
  void push(int64_t begin, int64_t bytes) override { host_->push(begin, bytes); }
  void pull(int64_t begin, int64_t bytes) override { host_->pull(begin, bytes); }
  device::Outcome install(const kernel::ConcretePlan& plan, const device::Placement& placement) override {
    return host_->install(plan, placement);
  }
  device::Outcome prepare(double timeout_seconds) override { return host_->prepare(timeout_seconds); }
  device::Outcome launch(int workers, double timeout_seconds, const device::Moments& moments) override {
    device::Outcome outcome = host_->launch(workers, timeout_seconds, moments);
    outcome.us = us_ * (1 + 0.001 * (launches_++ % 5));
    outcome.second_us = factor_ * outcome.us;
    return outcome;
  }
  void stop() override { host_->stop(); }
  void resume() override { host_->resume(); }
  int workers() const override { return host_->workers(); }
  int64_t alignment() const override { return host_->alignment(); }
  int64_t most_scratch_bytes() const override { return host_->most_scratch_bytes(); }
  bool alive() const override { return host_->alive(); }

 private:
  std::unique_ptr<device::Host> host_;
  double us_, factor_;
  int launches_ = 0;
};

/// Allocates at multiples of 512, as a GPU does, and sees where tensors lie.
class CoarseHost final : public TwoClocks {
 public:
  using TwoClocks::TwoClocks;
  device::Outcome install(const kernel::ConcretePlan& plan, const device::Placement& placement) override {
    as_allocated = std::ranges::all_of(placement.pointers, [&](const auto& each) { return each.second % alignment() == 0; });
    return TwoClocks::install(plan, placement);
  }
  int64_t alignment() const override { return 512; }
  bool as_allocated = false;
};

/// Takes 100 us, and counts how often it is stopped.
class StoppedHost final : public TwoClocks {
 public:
  explicit StoppedHost(std::unique_ptr<device::Host> host) : TwoClocks(std::move(host), 100, 1) {}
  device::Outcome launch(int workers, double timeout_seconds, const device::Moments& moments) override {
    before_starts += moments.while_stopped ? 1 : 0;
    return TwoClocks::launch(workers, timeout_seconds, moments);
  }
  void stop() override {
    TwoClocks::stop();
    ++at_ends;
  }
  size_t before_starts = 0, at_ends = 0;
};

TEST(Timing, two_stopped_launches_as_fast_as_others_are_enough) {
  Rig rig;
  CpuMachine machine(judge_executable(), 2, {}, 60);
  std::mt19937_64 secrets(5);
  const Json arguments = rig.arguments(Rig::workload_case()), candidate = rig.candidate(scale_source(honest_body), Rig::workload_case());
  const CaseData data =
      CaseData::load(scale_task(), arguments["case"], arguments["inputs"].get<std::string>(), arguments["expected"].get<std::string>());
  StoppedHost host(machine.new_host(candidate["module"].get<std::string>()));
  ASSERT_TRUE(host.load().ok());
  Bench bench(host, data, kernel::concrete_plan_from_json(candidate));
  ASSERT_FALSE(bench.place(1));
  std::vector<StoppedLaunch> stopped;
  EXPECT_FALSE(PairedTimer(machine, secrets).time_stopped(bench, 50, stopped));
  const size_t most = stopped.size();
  EXPECT_GT(most, 2);
  EXPECT_FALSE(PairedTimer(machine, secrets).time_stopped(bench, 200, stopped));
  EXPECT_EQ(stopped.size(), most) << "those of before are fast enough";
  stopped.clear();
  EXPECT_FALSE(PairedTimer(machine, secrets).time_stopped(bench, 200, stopped));
  EXPECT_EQ(stopped.size(), 2);
  EXPECT_EQ(host.before_starts, most + 2);
  EXPECT_EQ(host.at_ends, most + 2);
  for (const StoppedLaunch& each : stopped) {
    EXPECT_GE(each.perturbation.nudged, 64 * 768);
    EXPECT_FALSE(each.outputs_hash.empty());
  }
  EXPECT_NE(stopped[0].outputs_hash, stopped[1].outputs_hash);
}

/// What the timer says of a kernel that takes 100 us, alone and against one that takes 300, where the second clock runs `factor` as fast.
std::vector<std::optional<Finding>> with_a_second_clock(double factor) {
  Rig rig;
  CpuMachine machine(judge_executable(), 2, {}, 60);
  std::mt19937_64 secrets(5);
  const Json arguments = rig.arguments(Rig::workload_case());
  const CaseData data =
      CaseData::load(scale_task(), arguments["case"], arguments["inputs"].get<std::string>(), arguments["expected"].get<std::string>());
  const auto with_kernel = [&](double us, const auto& use) {
    const Json candidate = rig.candidate(scale_source(honest_body), Rig::workload_case());
    TwoClocks host(machine.new_host(candidate["module"].get<std::string>()), us, factor);
    EXPECT_TRUE(host.load().ok());
    Bench bench(host, data, kernel::concrete_plan_from_json(candidate));
    EXPECT_FALSE(bench.place(1));
    use(bench);
  };
  std::vector<std::optional<Finding>> findings;
  with_kernel(100, [&](Bench& candidate) {
    findings.push_back(PairedTimer(machine, secrets).measure(candidate, {}).failure);
    with_kernel(300, [&](Bench& incumbent) {
      const Timing timing = PairedTimer(machine, secrets).compare(candidate, incumbent, {.minimum_gain = any_gain});
      EXPECT_TRUE(timing.faster);
      findings.push_back(timing.failure);
    });
  });
  return findings;
}

TEST(Timing, a_time_that_another_clock_does_not_confirm_is_no_time) {
  for (const double factor : {0.5, 2.0}) {
    for (const auto& finding : with_a_second_clock(factor)) {
      ASSERT_TRUE(finding) << factor;
      EXPECT_EQ(finding->verdict, Verdict::clock_disagrees);
      EXPECT_NEAR(finding->evidence["second_clock_us"].get<double>(), factor * finding->evidence["us"].get<double>(), 0.01);
    }
  }
  for (const auto& finding : with_a_second_clock(1.01)) EXPECT_FALSE(finding) << finding->evidence.dump();
}

TEST(Bench, checks_lie_where_programs_allocate_and_elsewhere) {
  Rig rig;
  CpuMachine machine(judge_executable(), 2, {}, 60);
  const Json arguments = rig.arguments(Rig::workload_case()), candidate = rig.candidate(scale_source(honest_body), Rig::workload_case());
  const CaseData data =
      CaseData::load(scale_task(), arguments["case"], arguments["inputs"].get<std::string>(), arguments["expected"].get<std::string>());
  CoarseHost host(machine.new_host(candidate["module"].get<std::string>()), 100, 1);
  ASSERT_TRUE(host.load().ok());
  Bench bench(host, data, kernel::concrete_plan_from_json(candidate));
  int as_allocated = 0;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    ASSERT_FALSE(bench.place(seed));
    as_allocated += host.as_allocated ? 1 : 0;
    ASSERT_FALSE(bench.place(seed, Bench::Addresses::as_allocated));
    EXPECT_TRUE(host.as_allocated);
  }
  EXPECT_LT(as_allocated, 16);
  EXPECT_TRUE(bench.allocates_coarsely());
}

TEST(Disagreement, is_beyond_the_noise_of_the_clocks_and_more_than_they_may_differ) {
  const auto samples = [](double shift, double spread, int count) {
    std::vector<Sample> made;
    for (int i = 0; i < count; ++i) made.push_back({100, true, 100 + shift + spread * (i % 2 == 0 ? 1 : -1)});
    return made;
  };
  EXPECT_TRUE(disagreement(samples(6, 0.3, 20)));
  EXPECT_TRUE(disagreement(samples(-6, 0.3, 20)));
  EXPECT_FALSE(disagreement(samples(4, 0.3, 20))) << "4.5 us of 100 are allowed";
  EXPECT_FALSE(disagreement(samples(6, 10, 20))) << "the clocks' own noise is larger";
  EXPECT_FALSE(disagreement(samples(6, 0.3, 5))) << "too few to say";
  EXPECT_FALSE(disagreement(std::vector<Sample>(20, {100, true, 0}))) << "there is no second clock";
}

TEST(Timing, an_incumbent_that_fails_is_not_the_candidates_fault) {
  Rig rig;
  EXPECT_EQ(rig.time(scale_source(honest_body), scale_source("__builtin_trap();"))["verdict"], "failed_environment");
}

TEST(Timing, scratch_is_zeroed_prepared_and_split_by_worker) {
  const std::string source =
      "/*autokernel\nfamily = \"scale\"\nbackend = \"cpu\"\n[tune]\n"
      "[scratch.twice]\ndtype = \"float32\"\nshape = [\"N\"]\n"
      "[scratch.sum]\ndtype = \"float32\"\nshape = [\"M\"]\nzeroed = true\n"
      "[scratch.mine]\ndtype = \"float32\"\nshape = [\"N\"]\nper_worker = true\n"
      "[[prepare]]\nkernel = \"twice\"\ngrid = [\"1\"]\nargs = [\"weight\", \"twice\", \"N\"]\n"
      "[[launch]]\nkernel = \"scale\"\ngrid = [\"M\"]\nargs = [\"x\", \"twice\", \"sum\", \"out\", \"N\"]\n*/\n#include "
      "<autokernel/cpu.h>\n"
      "void twice(int64_t, int64_t, void*, const float* weight, float* t, int64_t N) { for (int64_t i = 0; i < N; ++i) t[i] = 2 * "
      "weight[i]; }\n"
      "AK_KERNEL(twice)\n"
      "void scale(int64_t block, int64_t, void* scratch, const float* x, const float* t, float* sum, float* out, int64_t N) {\n"
      "  float* mine = (float*)scratch;\n  for (int64_t i = 0; i < N; ++i) mine[i] = x[block * N + i] * t[i];\n  sum[block] += 0.5f;\n"
      "  for (int64_t i = 0; i < N; ++i) out[block * N + i] = sum[block] * mine[i];\n}\nAK_KERNEL(scale)\n";
  Rig rig;
  EXPECT_EQ(rig.check(source, 3)["verdict"], "pass");
  EXPECT_EQ(rig.time(source, "")["verdict"], "kept");
  std::string past = source;
  past.replace(past.find("mine[i] ="), 9, "mine[i + (i == N - 1)] =");
  EXPECT_EQ(rig.check(past)["verdict"], "out_of_bounds");
}

TEST(Ceilings, are_plausible_and_floors_grow_with_the_bytes) {
  Rig rig;
  const Json ceilings = rig.server().answer("ceilings", Json::object());
  EXPECT_GT(ceilings["copy_bytes_per_s"], 1e8);
  EXPECT_GT(ceilings["read_bytes_per_s"], 1e8);
  EXPECT_GT(ceilings["flops_per_s"]["float32"], 1e8);
  EXPECT_GT(ceilings["launch_us"], 0);
  const double small = rig.server().answer("floor", {{"read_bytes", 1 << 20}, {"write_bytes", 1 << 20}})["us"];
  const double large = rig.server().answer("floor", {{"read_bytes", 64 << 20}, {"write_bytes", 64 << 20}})["us"];
  EXPECT_GT(large, small);
}

}  // namespace
}  // namespace ak::judge::test
