// Length-prefixed JSON messages over a pair of descriptors: the worker's, the judge's and the socket's framing.
#pragma once

#include <chrono>
#include <optional>

#include "core/file.h"
#include "core/json.h"

namespace ak {

/// Whole messages in both directions: 4 bytes little-endian length, then UTF-8 JSON. See docs/formats/worker.md.
class Channel {
 public:
  enum class Status { message, closed, timed_out };
  static constexpr size_t maximum_message_bytes = size_t{1} << 30;

  Channel(Descriptor input, Descriptor output) : input_(std::move(input)), output_(std::move(output)) {}

  /// Write one message. False when the other side is gone (EPIPE; SIGPIPE must be ignored by the program).
  bool send(const Json& message);

  /// Read one message into `message`, waiting at most `timeout` (forever without).
  /// errors: the bytes are no message of this framing.
  Status receive(Json& message, std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  int input_descriptor() const { return input_.get(); }
  void close_output() { output_.reset(); }

 private:
  Status read_exactly(char* bytes, size_t count, std::optional<std::chrono::steady_clock::time_point> deadline);

  Descriptor input_, output_;
};

}  // namespace ak
