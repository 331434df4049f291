// report.html: one page that needs nothing else.
#pragma once

#include <string>

#include "report/view.h"
#include "store/run.h"

namespace ak::report {

std::string html_report(const RunView& run);

/// Write report.html and progress.svg of a run into its directory; returns the page's path.
/// errors: the disk is full.
std::filesystem::path write_report(const store::Run& run);

}  // namespace ak::report
