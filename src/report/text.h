// Small pieces of text: times, factors, columns, escaping.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"

namespace ak::report {

/// For HTML and SVG, in text and in attributes. Characters that XML forbids become U+FFFD.
std::string escape(std::string_view text);

/// "12.3 us", "1.42 ms", "2.10 s"; "–" for 0 and below, which nobody measured.
std::string time_text(double us);
/// "1.42x"; "–" for 0 and below.
std::string factor_text(double factor);
/// "3:07", "1:02:09".
std::string duration_text(double seconds);

/// Columns that UTF-8 text takes, one a character. Escape sequences of colours take none.
size_t columns(std::string_view text);
/// Exactly `width` columns: padded on the right, or cut with "…".
std::string fit(std::string_view text, size_t width);
/// The same, padded on the left.
std::string fit_right(std::string_view text, size_t width);
/// At most `width` columns, cut with "…".
std::string cut(std::string_view text, size_t width);

/// Colours of a terminal; plain text where they are off.
class Paint {
 public:
  explicit Paint(bool colour) : colour_(colour) {}
  std::string good(std::string_view text) const { return wrap("32", text); }
  std::string bad(std::string_view text) const { return wrap("31", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string strong(std::string_view text) const { return wrap("1", text); }
  std::string accent(std::string_view text) const { return wrap("36", text); }
  /// By verdict: kept is good, slower is dim, the rest is bad.
  std::string verdict(std::string_view verdict, std::string_view text) const;

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  bool colour_;
};

/// "✓", "·" or "✗".
std::string_view mark_of(std::string_view verdict);

/// What to say of a trial that others on the device may have disturbed; empty where nobody was there.
std::string strangers_text(const Json& evidence);

}  // namespace ak::report
