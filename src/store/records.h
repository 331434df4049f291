// What a run stores, as JSON: the request in run.toml, trials and baselines in the journal (docs/formats/run-directory.md).
#pragma once

#include "core/json.h"
#include "store/run.h"

namespace ak::store {

Json to_json(const RunRequest& request);
/// errors: Json::exception for a missing or malformed field; so for all below.
RunRequest request_from_json(const Json& json);

Json to_json(const Trial& trial);
Trial trial_from_json(const Json& json);

Json to_json(const std::string& task, const Baseline& baseline);
Baseline baseline_from_json(const Json& json);

Json to_json(const std::string& task, const Confirmation& confirmation);
Confirmation confirmation_from_json(const Json& json);

}  // namespace ak::store
