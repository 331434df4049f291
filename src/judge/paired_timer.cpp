// Each round gives two pairs, (A1, B1) and (A2, B2), and one pair of the incumbent with itself for the noise.
#include "judge/paired_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace ak::judge {
namespace {

constexpr size_t first_look_pairs = 6;   // the least for which the median has a 95 % interval
constexpr size_t first_keep_pairs = 12;  // a winner is looked at longer than a loser
constexpr size_t most_pairs = 200;
constexpr double loser_error = 0.05, winner_error = 0.01, reported_error = 0.05;
constexpr int64_t always_checked_bytes = 16 << 20;  // of an arena: above, memory is checked after every eighth launch only
constexpr size_t alone_least = 7, alone_most = 60;
constexpr double alone_precision = 0.02;

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<double> log_ratios(const std::vector<double>& numerators, const std::vector<double>& denominators) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(numerators.size(), denominators.size()); ++i) ratios.push_back(std::log(numerators[i] / denominators[i]));
  return ratios;
}

/// How far the incumbent seems to differ from itself: the half width of the interval around "not at all".
double noise_of(const std::vector<double>& incumbent_us) {
  std::vector<double> ratios;
  for (size_t i = 0; i + 1 < incumbent_us.size(); i += 2) ratios.push_back(std::log(incumbent_us[i + 1] / incumbent_us[i]));
  return ratios.empty() ? 0 : std::abs(std::expm1(median(ratios)));
}

}  // namespace

std::optional<Finding> PairedTimer::sample(Bench& bench, std::vector<double>& samples_us, std::vector<TimedLaunch>* launches) {
  const uint64_t seed = secrets_();
  bench.perturb(seed);
  bench.poison_outputs();
  flusher_.flush();
  if (auto finding = bench.launch(bench.workers())) return finding;
  samples_us.push_back(bench.last_us());
  if (auto finding = bench.check_finished()) return finding;
  if (launches != nullptr) launches->push_back({seed, bench.outputs_hash()});
  if (bench.total_bytes() <= always_checked_bytes || samples_us.size() % 8 == 1) return bench.check_memory();
  bench.restore();
  return std::nullopt;
}

bool PairedTimer::decided(Timing& timing, const TimingRules& rules, bool last) {
  const std::vector<double> ratios = log_ratios(timing.incumbent_samples_us, timing.samples_us);
  timing.speedup = std::exp(median(ratios));
  timing.noise = noise_of(timing.incumbent_samples_us);
  const Interval reported = median_interval(ratios, reported_error), strict = median_interval(ratios, winner_error);
  timing.interval = {std::exp(reported.low), std::exp(reported.high)};
  const double needed = 1 + rules.minimum_gain + timing.noise;
  if (std::exp(median_interval(ratios, loser_error).high) < 1 + rules.minimum_gain) return true;
  timing.faster = ratios.size() >= first_keep_pairs && std::exp(last ? reported.low : strict.low) > needed;
  return timing.faster;
}

Timing PairedTimer::compare(Bench& candidate, Bench& incumbent, const TimingRules& rules) {
  Timing timing;
  const double end = seconds_now() + rules.maximum_seconds;
  for (;;) {
    for (const bool is_candidate : {true, false, false, true}) {
      if (is_candidate) {
        if ((timing.failure = sample(candidate, timing.samples_us, &timing.launches))) return timing;
      } else if ((timing.incumbent_failure = sample(incumbent, timing.incumbent_samples_us, nullptr))) {
        return timing;
      }
    }
    const size_t pairs = timing.samples_us.size();
    const bool last = pairs >= most_pairs || (pairs >= first_look_pairs && seconds_now() > end);
    if (pairs >= first_look_pairs && (decided(timing, rules, last) || last)) return timing;
  }
}

Timing PairedTimer::measure(Bench& candidate, const TimingRules& rules) {
  Timing timing;
  const double end = seconds_now() + rules.maximum_seconds;
  while (timing.samples_us.size() < alone_most) {
    if ((timing.failure = sample(candidate, timing.samples_us, &timing.launches))) return timing;
    if (timing.samples_us.size() < alone_least) continue;
    const Interval interval = median_interval(timing.samples_us, reported_error);
    const double middle = median(timing.samples_us);
    if (interval.high - interval.low < 2 * alone_precision * middle || seconds_now() > end) break;
  }
  return timing;
}

}  // namespace ak::judge
