// What a person or a program sees while a run goes on.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "core/clock.h"
#include "plan/run_plan.h"

namespace ak::report {

/// How to show progress.
enum class Style { live, plain, json };

/// Is told of everything from set-up to the end of the search.
class Progress : public plan::Observer {
 public:
  /// A step of set-up or of the end begins: "capture the model's graph". Ends the one before.
  virtual void phase(const std::string& /*text*/) {}
  /// Within the step: "eager, 3 of 8".
  virtual void phase_progress(const std::string& /*text*/, int64_t /*done*/, int64_t /*total*/) {}
  /// Something that should be read: a warning of the model's loader.
  virtual void note(const std::string& /*text*/) {}
};

/// Live where `out` is a terminal, else plain.
Style style_for(std::FILE* out, bool json);
/// Colours are wanted: `out` is a terminal, and NO_COLOR is not set.
bool colour_for(std::FILE* out);
/// Columns of the terminal; 100 where `out` is none.
size_t width_of(std::FILE* out);

/// Events go to `out`, which must outlive the result. Of the live view nothing remains when it is destroyed but what was noted.
std::unique_ptr<Progress> make_progress(Style style, std::FILE* out, const Clock& clock, const std::string& title);

}  // namespace ak::report
