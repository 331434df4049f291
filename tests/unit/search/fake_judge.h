// A judge that computes times from a formula, and a clock that only moves when told.
#pragma once

#include <functional>
#include <vector>

#include "core/clock.h"
#include "core/file.h"
#include "judge/judge.h"
#include "store/run.h"
#include "unit/search/fixtures.h"

namespace ak::search::testing {

class FakeClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  std::string timestamp() const override { return "2026-01-31T12:00:00.000Z"; }
  void advance(double seconds) { now_ns_ += static_cast<int64_t>(seconds * 1e9); }

 private:
  int64_t now_ns_ = 0;
};

/// Time by `cost`, faster by 1 % is kept; a negative cost is `wrong`.
class FakeJudge final : public judge::Judge {
 public:
  using Cost = std::function<double(const judge::Candidate&)>;
  explicit FakeJudge(Cost cost, FakeClock* clock = nullptr, double seconds = 1)
      : cost_(std::move(cost)), clock_(clock), seconds_(seconds) {}

  judge::Judgement judge(const judge::Candidate& candidate, const judge::Candidate* incumbent) override {
    ++calls;
    if (clock_) clock_->advance(seconds_);
    judge::Judgement judgement;
    if (environment_failures > 0) {
      --environment_failures;
      judgement.evidence["message"] = "the compiler is gone";
      return judgement;
    }
    const double us = cost_(candidate);
    judgement.judge_seconds = seconds_;
    if (us < 0) {
      judgement.verdict = judge::Verdict::wrong;
      judgement.evidence["stage"] = 2;
      return judgement;
    }
    judgement.median_us = us;
    judgement.verdict = !incumbent || us < 0.99 * cost_(*incumbent) ? judge::Verdict::kept : judge::Verdict::slower;
    return judgement;
  }
  judge::Judgement time_again(const judge::Candidate& candidate) override { return judge(candidate, nullptr); }
  void expect(std::span<const judge::Candidate> candidates) override { expected = {candidates.begin(), candidates.end()}; }

  int calls = 0, environment_failures = 0;
  std::vector<judge::Candidate> expected;  // as last announced

 private:
  Cost cost_;
  FakeClock* clock_;
  double seconds_;
};

/// A run directory with one task or more.
class RunFixture {
 public:
  store::Run open() { return store::Run::open(directory.path() / "run", {.model = "models/tiny.py:Tiny", .input_shape = {1, 16}}, clock); }

  void add(store::Run& run, const std::string& id, double share, double best_us, double floor_us, const std::string& tune = four_tunables) {
    kernel::Task task = small_task();
    task.id = id;
    run.add_task(task, share, {{"us_per_call", best_us}}, kernel_text(tune), kernel::Backend::cpu);
    run.record_baseline(id, {{{"eager", 1.5 * best_us}, {"compile", best_us}}, "compile", best_us, 1.5 * best_us, floor_us});
  }

  FakeClock clock;
  TemporaryDirectory directory{"ak-test-"};
};

}  // namespace ak::search::testing
