// One file from which a run goes on elsewhere: an SQLite archive of the run directory (docs/formats/run-directory.md).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ak::store {

/// A state file is never larger.
/// units: bytes.
inline constexpr int64_t largest_state = int64_t{16} << 20;

/// Replace `file` by the run's state: what was asked, the journal, graph and profile, the tasks, bundles and verification, and `modules`,
/// compiled kernels by their names. Where that is too much, modules, then kept files that are no incumbents any more, then bundles are left
/// out. Returns what was left out. errors: the file cannot be written; the rest alone is larger than `largest_state`.
std::vector<std::string> write_state(const std::filesystem::path& run_directory, const std::filesystem::path& file,
                                     const std::vector<std::filesystem::path>& modules = {});

/// Bring `run_directory` to where the state file is, unless it is there already or further; modules go to `module_directory`, those that
/// are there stay. `model`, where not empty, stands for the state's own where both name the same file and class in different places.
/// Nothing happens where there is no `file`.
/// errors: not a state file; damaged; the directory's run went another way since.
void read_state(const std::filesystem::path& file, const std::filesystem::path& run_directory,
                const std::filesystem::path& module_directory, const std::string& model = {});

}  // namespace ak::store
