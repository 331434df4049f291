// A session on the run that the options name, and what it needs while it lives.
#pragma once

#include <memory>
#include <optional>

#include "cli/options.h"
#include "cli/session.h"
#include "report/progress.h"

namespace ak::cli {

struct Opened {
  SystemClock clock;
  std::unique_ptr<report::Progress> progress;
  std::optional<Session> session;
};

/// Where progress goes: events to standard output with --json, else lines or the live view to standard error.
std::unique_ptr<report::Progress> progress_for(const Options& options, const Clock& clock, const std::string& title);
/// Make or resume the run of `options.request`.
std::unique_ptr<Opened> open_for_request(Options& options);
/// The run that a part of a run works on (existing_directory).
std::unique_ptr<Opened> open_existing(const Options& options);

}  // namespace ak::cli
