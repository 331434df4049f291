// The one exception for a failing environment, and the check for a broken invariant.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace ak {

/// A failure of the environment or of the user's input: says what failed, with what, and what to do next.
/// Caught at the top of a command or of a child process, nowhere else.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what_failed, std::string what_to_do = {})
      : std::runtime_error(what_failed), what_to_do_(std::move(what_to_do)) {}

  /// A sentence for the user, or empty.
  const std::string& what_to_do() const { return what_to_do_; }

 private:
  std::string what_to_do_;
};

/// Print what should have held and abort. Use AK_CHECK.
[[noreturn]] void check_failed(const char* file, int line, std::string_view what_should_hold);

}  // namespace ak

/// Abort unless `condition` holds, in release builds too. No input may trigger it.
#define AK_CHECK(condition, what_should_hold) \
  ((condition) ? static_cast<void>(0) : ::ak::check_failed(__FILE__, __LINE__, what_should_hold))
