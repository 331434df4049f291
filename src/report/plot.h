// The progress plot: running best speed-up of each task over the experiments, as SVG.
#pragma once

#include <string>

#include "report/view.h"

namespace ak::report {

/// A document of its own with inline styles for light and dark; `embedded` leaves out what only a file needs.
std::string progress_svg(const RunView& run, bool embedded = false);

/// Colour of the n-th task, the same in the plot and the tables: a CSS class "ak-c0" to "ak-c7".
std::string colour_class(size_t task);

/// The CSS of plot and colours.
std::string plot_style();

}  // namespace ak::report
