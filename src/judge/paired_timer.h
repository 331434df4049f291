// Cold, interleaved timing of a candidate against its incumbent, no longer than the answer needs.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "judge/bench.h"
#include "judge/finding.h"
#include "judge/machine.h"
#include "judge/statistic.h"

namespace ak::judge {

struct TimingRules {
  double minimum_gain = 0.01;  // of the speed-up, on top of the noise
  double maximum_seconds = 1;
};

/// A launch of the candidate on contents that it had not seen before.
struct TimedLaunch {
  Perturbation perturbation;
  std::string outputs_hash;
};

/// One whose inputs changed while the candidate stood still.
struct StoppedLaunch : TimedLaunch {
  double us = 0;
};

struct Timing {
  std::optional<Finding> failure;                        // of the candidate
  std::optional<Finding> incumbent_failure;              // not the candidate's fault
  bool faster = false;                                   // the interval clears the gain and the noise
  std::vector<double> samples_us, incumbent_samples_us;  // those that nothing disturbed, if there are enough of them
  int disturbed = 0;                                     // others, left out
  double second_clock_us = 0;                            // median of the candidate on another clock; 0: there is none
  double speedup = 1, noise = 0;
  Interval interval{0, 0};            // of the speed-up, 95 %
  std::vector<TimedLaunch> launches;  // of all measurements
  int measurements = 1;
  std::vector<StoppedLaunch> acquitting;  // those that were as fast as the others
  /// Of the candidate's launches in the last measurement, where it is known: its time, and device::Outcome::outside_us.
  std::vector<std::pair<double, double>> outside_us;
};

/// Measured twice, the candidate is as slow as the slower of the two says: one that has learnt to be honest, or that others disturb.
void count_slower(Timing& timing, Timing again);

/// Whether a speed-up clears the gain and the noise.
bool clears(const Timing& timing, const TimingRules& rules);

/// Median of the CPU time that the candidate's threads took around its fastest launches, beyond what the clock allows for: of a launch
/// that others disturbed too much is allowed for. 0 where too little is known.
double outside_us(const Timing& timing);

/// A cold launch on the judge's clock.
struct Sample {
  double us = 0;
  bool clean = true;     // no other work on the machine kept its threads waiting
  double second_us = 0;  // on a clock of another make; 0: there is none
};

/// Whether a launch whose threads waited so long for a CPU says something about the kernel.
bool is_clean(double us, double waited_us);

/// What samples taken in the order A B B A say of A against B; `decided` when more of them would not change it.
/// `last`: no more will be taken.
bool conclude(const std::vector<Sample>& candidate, const std::vector<Sample>& incumbent, const TimingRules& rules, bool last,
              Timing& timing);

/// The verdict on a candidate whose time two clocks tell differently, by more than their difference varies from sample to sample: neither
/// of them is believed.
std::optional<Finding> disagreement(const std::vector<Sample>& samples);

class PairedTimer {
 public:
  static constexpr size_t enough_stopped = 2;  // one may have an answer of its own for inputs that are rare

  PairedTimer(Machine& machine, std::mt19937_64& secrets) : machine_(machine), secrets_(secrets) {}

  /// A B B A until the interval decides. Both benches are placed and warm.
  Timing compare(Bench& candidate, Bench& incumbent, const TimingRules& rules);
  /// The candidate alone, at other addresses every few samples, until its median is known within 1 %.
  Timing measure(Bench& candidate, const TimingRules& rules);
  /// Launches that look like those that were timed, whose end is seen at the very moment: whether the outputs are complete then.
  std::optional<Finding> watch(Bench& bench, int launches);
  /// Launches on inputs that change while the candidate stands still, until enough in `stopped` take no longer than `limit_us`, or some
  /// more were made. The fastest are first.
  std::optional<Finding> time_stopped(Bench& bench, double limit_us, std::vector<StoppedLaunch>& stopped);

 private:
  /// One launch on new contents, off the record.
  std::optional<Finding> launch_once(Bench& bench, Timing* timing, bool check_memory);
  /// The first undisturbed of a few launches, else the last.
  std::optional<Finding> sample(Bench& bench, std::vector<Sample>& samples, Timing* timing);

  Perturbation next_perturbation(const Bench& bench);

  Machine& machine_;
  std::mt19937_64& secrets_;
  double previous_us_ = 0;         // of the candidate's last launch
  uint64_t step_ = 0, alike_ = 0;  // launches of the candidate, within a cycle: this one, and the first of those that are alike
  uint64_t alike_seed_ = 0;
  int64_t alike_nudged_ = 0;  // of the launches that are alike, so that those of other cycles are not
};

}  // namespace ak::judge
