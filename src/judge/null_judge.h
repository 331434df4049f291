// The judge of the device `null`: no compiler, no process; what search, plan and store are tested with.
#pragma once

#include "judge/judge.h"

namespace ak::judge {

/// Latency is a smooth function of a point's values with one best point; about one point in fifty is wrong. The same point always gets the
/// same answer.
class NullJudge final : public Judge {
 public:
  explicit NullJudge(double best_us = 100, double minimum_gain = 0.01) : best_us_(best_us), minimum_gain_(minimum_gain) {}

  Judgement judge(const Candidate& candidate, const Candidate* incumbent) override;
  Judgement time_again(const Candidate& candidate) override;

 private:
  double time_us(const Candidate& candidate) const;

  double best_us_, minimum_gain_;
};

}  // namespace ak::judge
