// Names of verdicts.
#include "judge/verdict.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::judge {
namespace {

constexpr std::string_view names[] = {
    "kept",         "slower",  "wrong",     "nondeterministic", "out_of_bounds", "changed_input",   "stale_output",      "does_not_compile",
    "does_not_fit", "crashed", "timed_out", "out_of_memory",    "cheating",      "clock_disagrees", "failed_environment"};

}  // namespace

std::string_view name_of(Verdict verdict) { return names[static_cast<size_t>(verdict)]; }

Verdict parse_verdict(std::string_view name) {
  for (size_t i = 0; i < std::size(names); ++i) {
    if (names[i] == name) return static_cast<Verdict>(i);
  }
  throw Error("unknown verdict '" + std::string(name) + "'");
}

}  // namespace ak::judge
