// The socket of the engine that owns a run: `bench` and `status` from another process are served between two experiments.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "core/file.h"
#include "core/json.h"

namespace ak::cli {

/// Answers one request {"verb", "arguments"} with {"result"} or {"error"}.
using RequestHandler = std::function<Json(const Json& request)>;

/// Listens in a run directory, without a thread: the engine calls serve_pending() when it has a moment.
class EngineSocket {
 public:
  /// errors: the socket cannot be made.
  explicit EngineSocket(const std::filesystem::path& run_directory);
  ~EngineSocket();
  EngineSocket(const EngineSocket&) = delete;
  EngineSocket& operator=(const EngineSocket&) = delete;

  /// Serve every client that waits now; returns whether there was one. A client's fault is answered to it and does not reach the engine.
  bool serve_pending(const RequestHandler& handler);

 private:
  Descriptor directory_, listener_;
  std::filesystem::path path_;
};

/// Ask the engine that owns `run_directory`; nothing where none listens.
/// errors: the engine went away in the middle.
std::optional<Json> ask_engine(const std::filesystem::path& run_directory, const Json& request);

}  // namespace ak::cli
