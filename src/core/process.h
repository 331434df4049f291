// Supervised child processes: whatever may die is one of these.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"

namespace ak {

/// How a child ended.
struct ExitStatus {
  std::optional<int> code;    // it exited
  std::optional<int> signal;  // it was killed
  bool timed_out = false;     // by us, because its time was over

  bool success() const { return code == 0; }
  /// "exit code 1", "signal 11 (Segmentation fault)", "timed out".
  std::string text() const;
};

/// What to start and within which limits.
struct ProcessOptions {
  std::vector<std::string> arguments;              // [0] is looked up in PATH
  std::filesystem::path directory;                 // working directory; empty: ours
  std::map<std::string, std::string> environment;  // added to ours, or all of it with clear_environment
  bool clear_environment = false;
  std::vector<std::pair<int, int>> descriptors;                              // (child's number, ours) to hand down
  std::optional<int64_t> cpu_seconds, file_bytes, memory_bytes, open_files;  // rlimits
};

/// A child in its own process group; killed with its group when the object goes.
class Process {
 public:
  /// errors: the program cannot be started.
  static Process start(const ProcessOptions& options);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  /// Wait up to `timeout`; nothing if it still runs.
  std::optional<ExitStatus> wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  bool running() { return !wait(std::chrono::milliseconds(0)).has_value(); }
  /// Wait until none of its threads runs any more, because they were stopped or because it has ended.
  void stop();
  /// Let the threads run again.
  void resume();
  /// SIGKILL to the whole group, and reap.
  void kill();

 private:
  explicit Process(pid_t pid, Descriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  void reap();

  pid_t pid_ = -1;
  Descriptor pidfd_;
  std::optional<ExitStatus> status_;
};

struct Pipe {
  Descriptor read_end, write_end;
};
/// Both ends close on exec.
Pipe make_pipe();

struct CommandResult {
  ExitStatus status;
  std::string output;  // standard output and error together, at most `maximum_output_bytes`, then cut in the middle
};
/// Run to the end, or kill at `timeout`.
CommandResult run_command(const ProcessOptions& options, std::chrono::milliseconds timeout, size_t maximum_output_bytes = 64 * 1024);

/// The process that started another, by /proc; 0 where there is no such process.
pid_t parent_of(pid_t process);

/// The program's full path if PATH has it.
std::optional<std::filesystem::path> find_program(const std::string& name);

}  // namespace ak
