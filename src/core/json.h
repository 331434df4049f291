// JSON values, by nlohmann. Keys are sorted, so a dump is canonical.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace ak {

using Json = nlohmann::json;

}  // namespace ak
