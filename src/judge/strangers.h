// A measurement while others may use the device.
#pragma once

#include <functional>
#include <vector>

#include "core/json.h"
#include "device/stranger.h"

namespace ak::judge {

/// Measure, and again while somebody else was there before or after it, three times at most. The last reply counts; its evidence says who
/// was there in any of them, and how many there were. A candidate that failed is not measured again.
Json measure_alone(const std::function<std::vector<device::Stranger>()>& strangers, const std::function<Json()>& measure);

}  // namespace ak::judge
