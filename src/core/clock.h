// Time as a parameter, so that budgets and the terminal view can be tested without waiting.
#pragma once

#include <cstdint>
#include <string>

namespace ak {

/// A monotonic clock and the wall's date.
class Clock {
 public:
  virtual ~Clock() = default;
  /// units: nanoseconds from an arbitrary start.
  virtual int64_t now_ns() const = 0;
  /// UTC, ISO 8601, to the millisecond: "2026-01-31T12:00:00.123Z".
  virtual std::string timestamp() const = 0;

  double seconds_since(int64_t start_ns) const { return static_cast<double>(now_ns() - start_ns) * 1e-9; }
};

/// The machine's own clock.
class SystemClock final : public Clock {
 public:
  int64_t now_ns() const override;
  std::string timestamp() const override;
};

}  // namespace ak
