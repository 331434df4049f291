// `autokernel doctor`: what is here, what is missing, and how to get it.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace ak::cli {

struct Finding {
  enum class State { present, optional_missing, missing } state = State::present;
  std::string name, detail, how_to_get;
};

/// Look at everything the program needs or can use. Starts short-lived children only.
std::vector<Finding> examine_machine();

std::string doctor_text(const std::vector<Finding>& findings);
Json doctor_json(const std::vector<Finding>& findings);
/// Whether nothing that is required is missing.
bool healthy(const std::vector<Finding>& findings);

}  // namespace ak::cli
