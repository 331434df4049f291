// The three places, in order.
#include "bridge/python.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/process.h"

namespace ak::bridge {

std::filesystem::path find_python() {
  if (const char* named = std::getenv("AUTOKERNEL_PYTHON"); named != nullptr && *named != '\0') {
    if (const auto program = find_program(named)) return *program;
    throw Error("AUTOKERNEL_PYTHON is '" + std::string(named) + "', which is no program",
                "set it to a Python 3.10 or newer that has PyTorch, or unset it");
  }
  if (const auto program = find_program(cache_directory() / "venv" / "bin" / "python")) return *program;
  if (const auto program = find_program("python3")) return *program;
  throw Error("there is no Python: neither " + (cache_directory() / "venv").string() + " nor python3 on PATH",
              "install Python 3.10 or newer with PyTorch (pip install torch), or set AUTOKERNEL_PYTHON to one");
}

std::map<std::string, std::string> python_environment() {
  const std::filesystem::path home = home_directory();
  std::string path = (home / "python").string();
  if (const char* ours = std::getenv("PYTHONPATH"); ours != nullptr && *ours != '\0') path += ":" + std::string(ours);
  return {{"PYTHONPATH", path},
          {"AUTOKERNEL_FAMILIES", (home / "kernels").string()},
          {"PYTHONUNBUFFERED", "1"},
          {"TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC", "1"}};  // a choice of max-autotune that faults costs a child's context, not the worker's
}

void become_python(const std::string& module, const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& environment) {
  std::vector<std::string> words = {find_python().string(), "-m", module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (const auto& [name, value] : python_environment()) ::setenv(name.c_str(), value.c_str(), 1);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 0);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  throw Error("cannot start " + words[0] + ": " + std::strerror(errno), "`autokernel doctor` says what is here");
}

std::vector<std::filesystem::path> python_package(const std::string& name) {
  constexpr const char* script =
      "import importlib.util as u, sys\nspec = u.find_spec(sys.argv[1])\nprint(*(spec and spec.submodule_search_locations or []), "
      "sep='\\n')";
  const CommandResult result = run_command({.arguments = {find_python().string(), "-c", script, name}}, std::chrono::seconds(20));
  std::vector<std::filesystem::path> folders;
  std::istringstream lines(result.status.success() ? result.output : "");
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) folders.emplace_back(line);
  }
  return folders;
}

}  // namespace ak::bridge
