// What a coding agent works in: one kernel file, the task's page, program.md, and a socket that judges.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/options.h"
#include "cli/session.h"

namespace ak::cli {

/// A directory that holds working-copy.json.
struct WorkingCopy {
  std::filesystem::path directory;
  std::string task, kernel_file;
};

/// Make `directory` anew: the incumbent to edit, the page of the task, what was tried, program.md, the headers.
/// units: `minutes`, `rounds`: what the agent has, for its page.
WorkingCopy make_working_copy(Session& session, const std::string& task, const std::filesystem::path& directory, double minutes,
                              int64_t rounds);

/// {file: text} of what the engine sends after each verdict: the incumbent as the kernel file, best.*, and results.tsv of the task.
Json current_files(const store::Run& run, const std::string& task);

/// The working copy that a command stands in, or that --run-dir names.
std::optional<WorkingCopy> working_copy(const Options& options);

/// `bench` in a working copy: the engine judges, and what it sends is written here. The engine itself never writes where an agent may.
/// errors: no kernel file (it is put back, nothing is judged), another task, no engine, as the engine says.
Json bench_in_working_copy(const WorkingCopy& copy, const Options& options);

}  // namespace ak::cli
