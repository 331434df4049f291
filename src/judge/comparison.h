// Whether an output is what the reference says, within the error budget of docs/formats/judge.md.
#pragma once

#include <optional>

#include "judge/case_data.h"
#include "judge/finding.h"
#include "judge/poison.h"

namespace ak::judge {

/// `data`: where the output's first element lies. `poison` and `at` (the arena's offset of that place) tell what was never written; without
/// them nothing is stale. Returns the first of stale_output and wrong that holds, with the worst element.
std::optional<Finding> compare(const OutputTensor& output, const std::byte* data, double tolerance_k, const Poison* poison = nullptr,
                               int64_t at = 0);

/// The answers that know nothing (zeros, a constant, a copy of an input, the answer to `other` data) and pass the comparison all the same.
/// Where one passes, the task's inputs say too little.
std::vector<std::string> passing_null_candidates(const CaseData& data, const CaseData* other);

}  // namespace ak::judge
