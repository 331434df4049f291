// What the command line asked for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "graph/suite.h"
#include "store/run.h"

namespace ak::cli {

/// What only `kernelbench` reads.
struct KernelbenchOptions {
  std::string verb, source, level, problems;
  int64_t evaluation_s = 180;  // the benchmark's own limit
};

/// Options of all commands; each command reads its own.
struct Options {
  store::RunRequest request{.device = "auto", .backend = "auto"};  // run, prepare
  std::string input_shape;                                         // as given: "1,256"
  std::filesystem::path run_directory;                             // empty: the default
  std::filesystem::path list;                                      // run-all
  std::filesystem::path state_file;                                // empty: none
  bool fresh = false, json = false, self_test = false, judge_rate = false;
  std::optional<double> minutes;
  std::optional<int64_t> experiments;
  int64_t top = 12, rounds = 25, tune = 0, crashes = 0;
  double min_share_percent = 0.5;  // run, extract: of the model's time; below, a task cannot pay for its search
  std::string task, note, solution, reference;
  KernelbenchOptions kernelbench;
  std::string suite;  // bench
  graph::SuiteFilter rows;
  std::optional<int64_t> trials;                          // of a row
  std::string agent;                                      // run, optimize: a preset or a command
  double agent_minutes = 30;                              // of one agent on one task
  int64_t agent_rounds = 40, agents = 1;                  // verdicts of one agent on one task; agents side by side
  std::vector<std::string> agent_paths, agent_variables;  // beside what a preset knows
  std::string to, name, push;                             // export
  std::filesystem::path export_directory;
};

/// Exit codes (docs/formats/command-line.md).
enum class Exit : int { done = 0, failed = 1, usage = 2, not_kept = 3, environment = 4, does_not_hold = 5, interrupted = 130 };

/// What was asked for; `auto` is the GPU where there is one, else the CPU.
std::string device_or_here(const std::string& device);

/// Check what was asked and fill in what `auto` means.
/// errors: a shape that is no list of positive integers, an unknown dtype, device or backend, a device that is not there.
void settle_request(Options& options);

/// Where the run of `options.request` lives: --run-dir, else the default, with --fresh the next free name beside it.
std::filesystem::path directory_for_request(const Options& options);

/// The run that a part of a run works on: --run-dir, else the run directory that holds the working directory, else the newest in
/// autokernel-runs/ whose model was captured. errors: there is none.
std::filesystem::path existing_directory(const Options& options);

}  // namespace ak::cli
