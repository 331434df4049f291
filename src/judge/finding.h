// A verdict with its evidence, where a check failed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "device/host.h"
#include "judge/verdict.h"

namespace ak::judge {

struct Finding {
  Verdict verdict;
  Json evidence = Json::object();
  std::string rule;  // of cheating
};

/// The verdict on a host that did not finish.
Finding finding_of(const device::Outcome& outcome);

/// A number as JSON, with "nan", "inf" and "-inf" as text.
Json number(double value);

}  // namespace ak::judge
