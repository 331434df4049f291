// Lists of system calls as seccomp programs, built from small pieces; without libraries.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ak {

/// A program that starts with the call's architecture checked and its number loaded.
class CallFilter {
 public:
  using Body = std::vector<sock_filter>;

  CallFilter();

  /// `body`, which returns on every path, for the call `number`; the number stays loaded otherwise.
  void when(long number, const Body& body);
  void otherwise(uint32_t action) { program_.push_back(result(action)); }
  /// Put it before every thread's calls from here on. False where the kernel has no seccomp.
  bool install();

  static sock_filter jump(int code, uint32_t value, size_t if_true, size_t if_false);
  /// Half of an argument of the call.
  static sock_filter load_argument(size_t index, bool upper_half = false);
  static sock_filter result(uint32_t action);
  /// `action` where any of `bits` is set in the lower half of an argument; goes on otherwise.
  static void when_bits(Body& body, size_t argument, uint32_t bits, uint32_t action);
  /// Allow where the lower half of an argument is `value`, else `action`.
  static Body only_argument(size_t argument, uint32_t value, uint32_t action);

 private:
  Body program_;
};

/// The call answers with this error number and does nothing.
uint32_t answer_with(int error);

}  // namespace ak
