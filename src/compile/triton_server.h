// The warm Python process that forks a confined child for each Triton compile (docs/formats/triton.md).
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/channel.h"
#include "core/file.h"
#include "core/process.h"

namespace ak::compile {

/// Starts at once, and again where it died. Safe to use from several threads, each of which waits for its own compile.
class TritonServer {
 public:
  /// errors: no Python, no Triton, or one that does not compile the smallest kernel; the text says which.
  TritonServer();
  ~TritonServer();
  TritonServer(const TritonServer&) = delete;
  TritonServer& operator=(const TritonServer&) = delete;

  /// "3.9.0"
  const std::string& version() const { return version_; }
  /// What confines a compile, of files, calls and limits.
  const std::vector<std::string>& sandbox() const { return sandbox_; }

  /// One request of the protocol; nothing where the server died meanwhile.
  std::optional<Json> ask(const Json& request);

 private:
  void start();
  std::optional<Channel> connect();

  std::string version_;
  std::vector<std::string> sandbox_;
  std::mutex mutex_;  // of what follows
  std::optional<TemporaryDirectory> directory_;
  std::optional<Process> process_;
  Descriptor alive_;  // the server ends when it closes
};

}  // namespace ak::compile
