// The engine's side of the judge's protocol: starts autokernel-judge, asks it, starts another when it dies.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/channel.h"
#include "core/expression.h"
#include "core/process.h"

namespace ak::judge {

class JudgeProcess {
 public:
  /// `opening`: the arguments of `open` (docs/formats/judge.md).
  JudgeProcess(std::filesystem::path executable, Json opening);

  /// The answer, or nothing when the judge died or did not answer in time; the next call starts another.
  /// errors: the judge cannot be started, or reports a failing environment.
  std::optional<Json> call(const std::string& verb, const Json& arguments, std::chrono::milliseconds timeout);

  /// What `open` answered; starts the judge where it is not running.
  const Json& opened();
  /// `workers`, `l2_bytes` and the like, for plans.
  Bindings facts();
  /// Of the running judge, else -1.
  pid_t pid() const { return process_ ? process_->pid() : -1; }
  /// How the last judge that died ended.
  const std::string& last_end() const { return last_end_; }

 private:
  void start();
  std::optional<Json> exchange(const std::string& verb, const Json& arguments, std::chrono::milliseconds timeout);
  void end(const std::string& how);

  std::filesystem::path executable_;
  Json opening_, opened_;
  std::optional<Process> process_;
  std::optional<Channel> channel_;
  int64_t last_id_ = 0;
  std::string last_end_;
};

/// autokernel-judge beside the running program.
std::filesystem::path judge_beside_program();

}  // namespace ak::judge
