// Which Python runs the worker.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ak::bridge {

/// $AUTOKERNEL_PYTHON, else the environment in ${XDG_CACHE_HOME:-~/.cache}/autokernel/venv, else python3 on PATH.
/// errors: none of them; AUTOKERNEL_PYTHON names nothing that runs.
std::filesystem::path find_python();

/// What a Python of ours is started with: where its package and the families are.
std::map<std::string, std::string> python_environment();

/// The folders of a package that it has; none where it does not.
/// errors: as find_python().
std::vector<std::filesystem::path> python_package(const std::string& name);

}  // namespace ak::bridge
