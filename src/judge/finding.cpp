// What the end of a host means for its candidate.
#include "judge/finding.h"

#include <cmath>

namespace ak::judge {

using device::Outcome;

Finding finding_of(const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::cannot_load: return {Verdict::does_not_compile, {{"log", outcome.text}}, {}};
    case Outcome::Kind::does_not_fit: return {Verdict::does_not_fit, {{"message", outcome.text}}, {}};
    case Outcome::Kind::timed_out: return {Verdict::timed_out, Json::object(), {}};
    case Outcome::Kind::out_of_memory: return {Verdict::out_of_memory, {{"message", outcome.text}}, {}};
    case Outcome::Kind::forbidden: return {Verdict::cheating, {{"message", outcome.text}}, "forbidden system call"};
    case Outcome::Kind::tampered: return {Verdict::cheating, {{"message", outcome.text}}, "tampering with the judge"};
    case Outcome::Kind::state_changed: return {Verdict::cheating, {{"message", outcome.text}}, "processor state left changed"};
    case Outcome::Kind::crashed:
    case Outcome::Kind::done: break;
  }
  Finding finding{Verdict::crashed, {{"message", outcome.text}}, {}};
  if (outcome.signal != 0) finding.evidence["signal"] = outcome.signal;
  return finding;
}

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

}  // namespace ak::judge
