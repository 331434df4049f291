// Kept kernels as packages that need no AutoKernel.
#pragma once

#include "cli/options.h"
#include "cli/session.h"

namespace ak::cli {

/// What `export` asks the Python part to write (python/autokernel/export): each kernel with its text, its plan in numbers and its evidence.
/// `only`: a task, or empty for every kernel that the run put into the model.
/// errors: nothing kept; a kernel that does not compile any more.
Json export_request(Session& session, const Options& options, const std::string& only);

/// Check what can be checked before anything is started: the form, the package's name, the directory.
/// errors: each of them, with what to do.
void check_export(const Options& options);

/// Run the Python part. Returns what it wrote.
/// errors: as it says.
Json write_export(const Json& request);

/// The same for a person.
std::string export_text(const Json& written);

}  // namespace ak::cli
