// Diagnostics on standard error, by spdlog. What a user reads as a result goes to standard output instead.
#pragma once

#include <string_view>

namespace ak {

/// Set the level: "debug", "info", "warning", "error". AUTOKERNEL_LOG overrides it.
void set_log_level(std::string_view level);

void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace ak
