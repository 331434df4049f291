// The worker as a supervised child process.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bridge/worker.h"
#include "core/channel.h"
#include "core/file.h"
#include "core/process.h"

namespace ak::bridge {

/// How to start the worker and how long to wait for it.
struct WorkerOptions {
  std::vector<std::string> command;                     // empty: find_python() -m autokernel.worker
  std::filesystem::path log;                            // standard error is appended; empty: dropped with the worker
  std::map<std::string, std::string> environment;       // added to ours
  std::chrono::milliseconds greeting_timeout{120'000};  // a cold import from a slow disk, on a busy machine
  std::map<std::string, std::chrono::milliseconds>
      timeouts;  // of a verb, where not its default: the longest silence, progress starts it anew
};

/// A worker in a child process. Where it dies in the middle of a request it is started once more, the model loaded again and the request
/// repeated. The program must ignore SIGPIPE. Not for several threads at a time.
class ProcessWorker final : public Worker {
 public:
  /// Start the worker and wait for its greeting.
  /// errors: no Python, no PyTorch, another protocol, silence; the end of its log is in the text.
  explicit ProcessWorker(WorkerOptions options);
  /// Let the worker end by itself for a moment, then kill it.
  ~ProcessWorker() override;

  const Greeting& greeting() const { return greeting_; }
  const std::filesystem::path& log() const { return options_.log; }
  pid_t pid() const { return process_ ? process_->pid() : -1; }

  Json request(const std::string& verb, const Json& arguments) override;

 private:
  void start();
  void greet();
  void restart();
  /// Nothing where the worker died, or said that it cannot go on.
  std::optional<Json> attempt(const std::string& verb, const Json& arguments);
  Json result_of(const std::string& verb, const Json& reply) const;
  /// Wait for the child's end, kill it where it does not end, and say how it ended.
  std::string end();
  std::string log_tail() const;
  std::string see_log() const;

  WorkerOptions options_;
  std::optional<TemporaryDirectory> own_log_;
  std::optional<Process> process_;
  std::optional<Channel> channel_;
  Greeting greeting_;
  std::optional<std::string> loaded_;   // the arguments of the last load that succeeded, as JSON text
  std::string last_words_;              // why the running worker cannot go on, where it said so
  std::uintmax_t log_start_bytes_ = 0;  // of the running worker's part
  int64_t next_id_ = 1;
};

}  // namespace ak::bridge
