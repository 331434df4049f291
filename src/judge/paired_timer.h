// Cold, interleaved timing of a candidate against its incumbent, no longer than the answer needs.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "judge/bench.h"
#include "judge/finding.h"
#include "judge/flusher.h"
#include "judge/statistic.h"

namespace ak::judge {

struct TimingRules {
  double minimum_gain = 0.01;  // of the speed-up, on top of the noise
  double maximum_seconds = 1;
};

/// A launch of the candidate on contents that it had not seen before.
struct TimedLaunch {
  uint64_t seed;  // of Bench::perturb
  std::string outputs_hash;
};

struct Timing {
  std::optional<Finding> failure;            // of the candidate
  std::optional<Finding> incumbent_failure;  // not the candidate's fault
  bool faster = false;                       // the interval clears the gain and the noise
  std::vector<double> samples_us, incumbent_samples_us;
  double speedup = 1, noise = 0;
  Interval interval{0, 0};  // of the speed-up, 95 %
  std::vector<TimedLaunch> launches;
};

class PairedTimer {
 public:
  PairedTimer(Flusher& flusher, std::mt19937_64& secrets) : flusher_(flusher), secrets_(secrets) {}

  /// A B B A until the interval decides. Both benches are placed and warm.
  Timing compare(Bench& candidate, Bench& incumbent, const TimingRules& rules);
  /// The candidate alone, until its median is known within 2 %.
  Timing measure(Bench& candidate, const TimingRules& rules);

 private:
  std::optional<Finding> sample(Bench& bench, std::vector<double>& samples_us, std::vector<TimedLaunch>* launches);
  static bool decided(Timing& timing, const TimingRules& rules, bool last);

  Flusher& flusher_;
  std::mt19937_64& secrets_;
};

}  // namespace ak::judge
