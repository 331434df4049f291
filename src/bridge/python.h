// Which Python runs the worker.
#pragma once

#include <filesystem>

namespace ak::bridge {

/// $AUTOKERNEL_PYTHON, else the environment in ${XDG_CACHE_HOME:-~/.cache}/autokernel/venv, else python3 on PATH.
/// errors: none of them; AUTOKERNEL_PYTHON names nothing that runs.
std::filesystem::path find_python();

}  // namespace ak::bridge
