// spdlog lives here alone: its headers take seconds to compile.
#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <string>

namespace ak {
namespace {

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("autokernel");
    made->set_pattern("autokernel: %^%l%$: %v");
    const char* level = std::getenv("AUTOKERNEL_LOG");
    made->set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::warn);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(std::string_view level) {
  if (std::getenv("AUTOKERNEL_LOG") == nullptr) logger().set_level(spdlog::level::from_str(std::string(level)));
}
void log_debug(std::string_view message) { logger().debug("{}", message); }
void log_info(std::string_view message) { logger().info("{}", message); }
void log_warning(std::string_view message) { logger().warn("{}", message); }
void log_error(std::string_view message) { logger().error("{}", message); }

}  // namespace ak
