// Which Python runs our Python parts, and with what.
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

/// Go on as `python -m module arguments…`, which gets this process's files and whose exit code is this program's. `environment`: added to
/// python_environment(), where it is not set yet.
/// errors: as find_python(); it cannot be started.
[[noreturn]] void become_python(const std::string& module, const std::vector<std::string>& arguments,
                                const std::map<std::string, std::string>& environment = {});

/// The folders of a package that it has; none where it does not.
/// errors: as find_python().
std::vector<std::filesystem::path> python_package(const std::string& name);

}  // namespace ak::bridge
