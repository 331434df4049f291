// Each round gives two pairs, (A1, B1) and (A2, B2), and one pair of the incumbent with itself for the noise.
#include "judge/paired_timer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>

namespace ak::judge {
namespace {

constexpr size_t first_look_pairs = 6;   // the least for which the median has a 95 % interval
constexpr size_t first_keep_pairs = 12;  // a winner is looked at longer than a loser
constexpr size_t most_pairs = 200;
constexpr double loser_error = 0.05, winner_error = 0.01, reported_error = 0.05;
constexpr int64_t always_checked_bytes = 16 << 20;  // of an arena: above, memory is checked after every eighth launch only
constexpr int most_attempts = 3;                    // at a sample that no other work on the machine disturbs
constexpr double tolerated_wait_us = 40, tolerated_wait_share = 0.05;  // for a CPU, by all threads together: waking up costs as much
constexpr double longest_repeated_us = 20'000;                         // a longer launch meets other work whenever there is any
constexpr double patience = 4;                                         // times maximum_seconds, where too few samples are undisturbed
constexpr double most_repeats = 16, repeated_us = 2000;                // of a launch, where the device has its own clock
constexpr size_t least_outside = 4;
constexpr int most_stopped = 12;
constexpr int64_t all_elements = std::numeric_limits<int64_t>::max();
constexpr uint64_t cycle = 8;                   // of launches, most of which leave no element as it was
constexpr std::array few_changes = {0, 1, 64};  // of those that are alike
constexpr size_t alone_least = 12, alone_most = 60;
constexpr size_t samples_a_place = 3;  // of the same addresses, which are a part of a kernel's luck
constexpr double alone_precision = 0.01;
// On an H200 both tick in steps of 32 ns, and how far they lie apart depends on the launches between: by up to 1.1 us.
constexpr double tolerated_disagreement_us = 1.5, tolerated_disagreement_share = 0.03;

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Pairs {
  std::vector<double> log_speedups, incumbent_ratios;
  std::vector<double> candidate_us, incumbent_us;
};

/// Pair each candidate sample with its neighbour, and neighbouring incumbent samples with each other.
Pairs pairs_of(const std::vector<Sample>& candidate, const std::vector<Sample>& incumbent, bool only_clean) {
  Pairs pairs;
  const size_t count = std::min(candidate.size(), incumbent.size());
  for (size_t i = 0; i < count; ++i) {
    if (only_clean && !(candidate[i].clean && incumbent[i].clean)) continue;
    pairs.log_speedups.push_back(std::log(incumbent[i].us / candidate[i].us));
    pairs.candidate_us.push_back(candidate[i].us);
    pairs.incumbent_us.push_back(incumbent[i].us);
  }
  for (size_t i = 0; i + 1 < count; i += 2) {
    if (only_clean && !(incumbent[i].clean && incumbent[i + 1].clean)) continue;
    pairs.incumbent_ratios.push_back(std::log(incumbent[i + 1].us / incumbent[i].us));
  }
  return pairs;
}

/// How far the incumbent seems to differ from itself.
double noise_of(const std::vector<double>& incumbent_ratios) {
  return incumbent_ratios.empty() ? 0 : std::abs(std::expm1(median(incumbent_ratios)));
}

std::vector<double> times_of(const std::vector<Sample>& samples, bool only_clean) {
  std::vector<double> times;
  for (const Sample& sample : samples) {
    if (sample.clean || !only_clean) times.push_back(sample.us);
  }
  return times;
}

double second_clock_us(const std::vector<Sample>& samples) {
  std::vector<double> times;
  for (const Sample& sample : samples) times.push_back(sample.second_us);
  return median(times);
}

}  // namespace

std::optional<Finding> disagreement(const std::vector<Sample>& samples) {
  std::vector<double> differences, times;
  for (const Sample& sample : samples) {
    if (sample.second_us == 0) continue;
    differences.push_back(sample.second_us - sample.us);
    times.push_back(sample.us);
  }
  if (differences.empty()) return std::nullopt;
  const double allowed = tolerated_disagreement_us + tolerated_disagreement_share * median(times);
  const Interval interval = median_interval(differences, winner_error);
  if (interval.low <= allowed && interval.high >= -allowed) return std::nullopt;
  return Finding{Verdict::clock_disagrees,
                 {{"message", "two clocks tell different times of the same launches"},
                  {"us", median(times)},
                  {"second_clock_us", second_clock_us(samples)},
                  {"allowed_us", allowed}},
                 {}};
}

void count_slower(Timing& timing, Timing again) {
  std::ranges::move(again.launches, std::back_inserter(timing.launches));
  ++timing.measurements;
  timing.outside_us = std::move(again.outside_us);
  const double factor = median(timing.samples_us) / median(again.samples_us);
  if (factor >= 1) return;
  timing.samples_us = std::move(again.samples_us);
  timing.disturbed = again.disturbed;
  timing.second_clock_us = again.second_clock_us;
  timing.speedup *= factor;
  timing.interval = {timing.interval.low * factor, timing.interval.high * factor};
}

bool clears(const Timing& timing, const TimingRules& rules) { return timing.interval.low > 1 + rules.minimum_gain + timing.noise; }

double outside_us(const Timing& timing) {
  if (timing.outside_us.size() < least_outside) return 0;
  auto launches = timing.outside_us;
  std::ranges::sort(launches);
  launches.resize(std::max(least_outside, launches.size() / 3));
  std::vector<double> us;
  for (const auto& [launch_us, outside] : launches) us.push_back(outside);
  return median(us);
}

bool is_clean(double us, double waited_us) { return waited_us <= tolerated_wait_us + tolerated_wait_share * us; }

/// Some launches in a row of each cycle differ in a few elements only: who looks at a part of the data believes that he has seen it.
Perturbation PairedTimer::next_perturbation(const Bench& bench) {
  if (step_ == 0) {
    alike_ = secrets_() % (cycle - few_changes.size() + 1);
    alike_seed_ = secrets_();
  }
  const uint64_t which = step_ - alike_;
  step_ = (step_ + 1) % cycle;
  if (which >= few_changes.size()) return {.seed = secrets_(), .nudged = bench.affordable_nudges()};
  if (which == 0) alike_nudged_ = bench.affordable_nudges();
  return {.seed = alike_seed_, .nudged = alike_nudged_, .few_seed = secrets_(), .few = few_changes[which]};
}

std::optional<Finding> PairedTimer::launch_once(Bench& bench, Timing* timing, bool check_memory) {
  const Perturbation perturbation =
      timing != nullptr ? next_perturbation(bench) : Perturbation{.seed = secrets_(), .nudged = bench.affordable_nudges()};
  bench.perturb(perturbation);
  bench.poison_outputs();
  machine_.flush();
  // The last of them is looked at; nobody can tell which it is.
  const int usual = static_cast<int>(std::clamp(repeated_us / std::max(bench.last_us(), 1.0), 1.0, most_repeats));
  const int repeats = usual + static_cast<int>(secrets_() % static_cast<uint64_t>(1 + usual / 2));
  if (auto finding = bench.launch(bench.workers(), Bench::Look::few, repeats)) return finding;
  if (auto finding = bench.check_finished()) return finding;
  if (timing != nullptr) {
    timing->launches.push_back({perturbation, bench.outputs_hash()});
    if (bench.last_outside_us() && previous_us_ > 0) timing->outside_us.emplace_back(previous_us_, *bench.last_outside_us());
    previous_us_ = bench.last_us();
  }
  if (check_memory || bench.total_bytes() <= always_checked_bytes) return bench.check_memory();
  bench.restore();
  return std::nullopt;
}

std::optional<Finding> PairedTimer::watch(Bench& bench, int launches) {
  for (int i = 0; i < launches; ++i) {
    bench.perturb({.seed = secrets_(), .nudged = bench.affordable_nudges()});
    bench.poison_outputs();
    machine_.flush();
    if (auto finding = bench.launch(bench.workers(), Bench::Look::all_at_once)) return finding;
    if (auto finding = bench.check_finished_later()) return finding;
    if (auto finding = bench.check_memory()) return finding;
  }
  return std::nullopt;
}

std::optional<Finding> PairedTimer::time_stopped(Bench& bench, double limit_us, std::vector<StoppedLaunch>& stopped) {
  const auto enough = [&] { return stopped.size() >= enough_stopped && stopped[enough_stopped - 1].us <= limit_us; };
  for (int i = 0; i < most_stopped && !enough(); ++i) {
    const Perturbation perturbation{.seed = secrets_(), .nudged = all_elements};
    const auto change = [&] {
      bench.perturb(perturbation);
      machine_.flush();
    };
    bench.poison_outputs();
    if (auto finding = bench.launch_stopped(change)) return finding;
    if (auto finding = bench.check_finished_later()) return finding;
    stopped.push_back({{perturbation, bench.hash_at_end()}, bench.last_us()});
    std::ranges::sort(stopped, {}, &StoppedLaunch::us);
    if (auto finding = bench.check_memory()) return finding;
  }
  return std::nullopt;
}

std::optional<Finding> PairedTimer::sample(Bench& bench, std::vector<Sample>& samples, Timing* timing) {
  Sample sample;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    if (auto finding = launch_once(bench, timing, attempt == 0 && samples.size() % 8 == 0)) return finding;
    sample.us = bench.last_us();
    sample.second_us = bench.last_second_us();
    sample.clean = is_clean(sample.us, bench.last_waited_us());
    if (sample.clean || sample.us > longest_repeated_us) break;
  }
  samples.push_back(sample);
  return std::nullopt;
}

bool conclude(const std::vector<Sample>& candidate, const std::vector<Sample>& incumbent, const TimingRules& rules, bool last,
              Timing& timing) {
  Pairs pairs = pairs_of(candidate, incumbent, true);
  if (pairs.log_speedups.size() < first_look_pairs) {
    if (!last) return false;
    pairs = pairs_of(candidate, incumbent, false);
  }
  timing.samples_us = pairs.candidate_us;
  timing.incumbent_samples_us = pairs.incumbent_us;
  timing.disturbed = static_cast<int>(candidate.size() - pairs.candidate_us.size());
  timing.speedup = std::exp(median(pairs.log_speedups));
  timing.noise = noise_of(pairs.incumbent_ratios);
  const Interval reported = median_interval(pairs.log_speedups, reported_error);
  timing.interval = {std::exp(reported.low), std::exp(reported.high)};
  if (std::exp(median_interval(pairs.log_speedups, loser_error).high) < 1 + rules.minimum_gain) return true;
  const double low = std::exp(last ? reported.low : median_interval(pairs.log_speedups, winner_error).low);
  timing.faster = (last || pairs.log_speedups.size() >= first_keep_pairs) && low > 1 + rules.minimum_gain + timing.noise;
  return timing.faster;
}

Timing PairedTimer::compare(Bench& candidate, Bench& incumbent, const TimingRules& rules) {
  Timing timing;
  std::vector<Sample> candidates, incumbents;
  const double start = seconds_now();
  for (;;) {
    for (const bool is_candidate : {true, false, false, true}) {
      if (is_candidate) {
        if ((timing.failure = sample(candidate, candidates, &timing))) return timing;
      } else if ((timing.incumbent_failure = sample(incumbent, incumbents, nullptr))) {
        return timing;
      }
    }
    const bool enough = pairs_of(candidates, incumbents, true).log_speedups.size() >= first_keep_pairs;
    const double elapsed = seconds_now() - start;
    const bool last = candidates.size() >= most_pairs ||
                      (candidates.size() >= first_look_pairs && elapsed > rules.maximum_seconds * (enough ? 1 : patience));
    if (!conclude(candidates, incumbents, rules, last, timing) && !last) continue;
    timing.second_clock_us = second_clock_us(candidates);
    if (timing.faster) timing.failure = disagreement(candidates);
    return timing;
  }
}

Timing PairedTimer::measure(Bench& candidate, const TimingRules& rules) {
  Timing timing;
  std::vector<Sample> samples;
  const double end = seconds_now() + rules.maximum_seconds;
  while (samples.size() < alone_most) {
    if (!samples.empty() && samples.size() % samples_a_place == 0 &&
        (timing.failure = candidate.place(secrets_(), Bench::Addresses::as_allocated)))
      return timing;
    if ((timing.failure = sample(candidate, samples, &timing))) return timing;
    timing.samples_us = times_of(samples, true);
    if (samples.size() < alone_least) continue;
    if (timing.samples_us.size() >= alone_least) {
      const Interval interval = median_interval(timing.samples_us, reported_error);
      if (interval.high - interval.low < 2 * alone_precision * median(timing.samples_us)) break;
    }
    if (seconds_now() > end) break;
  }
  if (timing.samples_us.size() < alone_least) timing.samples_us = times_of(samples, false);
  timing.disturbed = static_cast<int>(samples.size() - timing.samples_us.size());
  timing.second_clock_us = second_clock_us(samples);
  timing.failure = disagreement(samples);
  return timing;
}

}  // namespace ak::judge
