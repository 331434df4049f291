// A bowl over the positions of the tunables' values.
#include "judge/null_judge.h"

#include <algorithm>
#include <cstdlib>

#include "core/hash.h"

namespace ak::judge {
namespace {

constexpr double depth = 1.5;  // how much slower the far end of one tunable is
constexpr uint64_t wrong_one_in = 50;

uint64_t number_of(const std::string& text) { return std::strtoull(short_hash(text, 15).c_str(), nullptr, 16); }

int64_t value_at(const Candidate& candidate, const kernel::Tunable& tunable) {
  const auto chosen = candidate.point.find(tunable.name);
  return chosen == candidate.point.end() ? tunable.default_value : chosen->second;
}

/// How far the chosen value is from the best one, 0 to 1.
double distance(const Candidate& candidate, const kernel::Tunable& tunable) {
  const auto count = static_cast<int64_t>(tunable.values.size());
  const auto position = std::ranges::find(tunable.values, value_at(candidate, tunable)) - tunable.values.begin();
  const auto best = static_cast<int64_t>(number_of(candidate.file.family() + tunable.name) % static_cast<uint64_t>(count));
  return count < 2 ? 0 : static_cast<double>(std::abs(position - best)) / static_cast<double>(count - 1);
}

bool is_wrong(const Candidate& candidate) {
  std::string text = candidate.file.family();
  bool best = true;
  for (const kernel::Tunable& tunable : candidate.file.tunables()) {
    text += " " + tunable.name + "=" + std::to_string(value_at(candidate, tunable));
    best = best && distance(candidate, tunable) == 0;
  }
  return !best && candidate.point != candidate.file.defaults() && number_of(text) % wrong_one_in == 0;
}

}  // namespace

double NullJudge::time_us(const Candidate& candidate) const {
  double us = best_us_;
  for (const kernel::Tunable& tunable : candidate.file.tunables()) {
    const double away = distance(candidate, tunable);
    us *= 1 + depth * away * away;
  }
  return us;
}

Judgement NullJudge::judge(const Candidate& candidate, const Candidate* incumbent) {
  Judgement judgement;
  if (is_wrong(candidate)) {
    judgement.verdict = Verdict::wrong;
    judgement.evidence = {{"stage", 1}, {"tensor", "out"}, {"failing_elements", 1}};
    return judgement;
  }
  judgement.median_us = time_us(candidate);
  const double speedup = incumbent == nullptr ? 1 : time_us(*incumbent) / judgement.median_us;
  judgement.verdict = incumbent == nullptr || speedup > 1 + minimum_gain_ ? Verdict::kept : Verdict::slower;
  judgement.evidence = {{"samples_us", {judgement.median_us}},
                        {"speedup", speedup},
                        {"ci_low", speedup},
                        {"ci_high", speedup},
                        {"noise", 0.0},
                        {"stages", {1, 2, 3, 4, 5}}};
  judgement.peak_memory_mb = 1;
  return judgement;
}

Judgement NullJudge::time_again(const Candidate& candidate) {
  Judgement judgement;
  judgement.verdict = Verdict::kept;
  judgement.median_us = time_us(candidate);
  judgement.evidence = {{"samples_us", {judgement.median_us}}};
  return judgement;
}

}  // namespace ak::judge
