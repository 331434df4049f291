// Integer expressions of kernel files and tasks: dims, tunables and device facts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace ak {

/// Values by name: "M", "ROWS", "x.stride(0)", "sizeof(T)", "sm_count".
using Bindings = std::map<std::string, int64_t, std::less<>>;

/// A parsed expression of 64-bit signed integers; see docs/formats/kernel-file.md. Immutable, cheap to copy.
class Expression {
 public:
  /// errors: a syntax error, with `where` and the column.
  static Expression parse(std::string_view text, std::string_view where);
  static Expression constant(int64_t value);

  /// errors: an unknown name, a division by zero, an overflow; the text has `where` of parse().
  int64_t evaluate(const Bindings& bindings) const;

  /// Names that evaluation may ask for.
  const std::set<std::string, std::less<>>& names() const;
  const std::string& text() const;

  struct Node;
  struct Parsed;

 private:
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace ak
