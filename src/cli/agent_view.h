// A view of this machine for a coding agent: its working copy, the system to read, its own settings, and the network.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/process.h"

namespace ak::cli {

/// What an agent may see beside the system's own programs and libraries.
struct View {
  std::filesystem::path working_copy;              // to write, as View::inside
  std::vector<std::filesystem::path> read_only;    // where they are
  std::vector<std::filesystem::path> read_write;   // where they are: settings and credentials
  std::map<std::string, std::string> environment;  // all of it

  static constexpr const char* inside = "/work";  // where the working copy is for the agent
  static constexpr const char* programs = "/run/autokernel";
};

/// `words` in the view: with a process namespace, a temporary directory and a home of its own, and `autokernel` on PATH. Everything in it
/// ends with the first process.
/// errors: no bubblewrap, or none that works here.
ProcessOptions confined(const std::vector<std::string>& words, const View& view);

/// errors: as confined().
void require_confinement();

/// What `program`, of PATH or with a path, needs to be read to start: its own directory, and the packages of a script.
/// errors: there is no such program.
std::vector<std::filesystem::path> needed_to_start(const std::string& program);

}  // namespace ak::cli
