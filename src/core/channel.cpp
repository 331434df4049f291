// Blocking writes, polled reads with a deadline.
#include "core/channel.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak {

bool Channel::send(const Json& message) {
  const std::string body = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  AK_CHECK(body.size() < maximum_message_bytes, "a message fits the framing");
  std::string frame(4, '\0');
  for (size_t i = 0; i < 4; ++i) frame[i] = static_cast<char>(body.size() >> (8 * i));
  frame += body;
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t written = ::write(output_.get(), frame.data() + sent, frame.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    sent += static_cast<size_t>(written);
  }
  return true;
}

Channel::Status Channel::read_exactly(char* bytes, size_t count, std::optional<std::chrono::steady_clock::time_point> deadline) {
  for (size_t got = 0; got < count;) {
    int wait_ms = -1;
    if (deadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now()).count();
      if (left <= 0) return Status::timed_out;
      wait_ms = static_cast<int>(std::min<int64_t>(left, 1'000'000'000));
    }
    pollfd ready{input_.get(), POLLIN, 0};
    const int polled = ::poll(&ready, 1, wait_ms);
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0) continue;  // the deadline decides at the top
    const ssize_t count_read = ::read(input_.get(), bytes + got, count - got);
    if (count_read < 0 && errno == EINTR) continue;
    if (count_read <= 0) return Status::closed;
    got += static_cast<size_t>(count_read);
  }
  return Status::message;
}

Channel::Status Channel::receive(Json& message, std::optional<std::chrono::milliseconds> timeout) {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  if (timeout) deadline = std::chrono::steady_clock::now() + *timeout;
  std::array<unsigned char, 4> prefix{};
  if (const Status status = read_exactly(reinterpret_cast<char*>(prefix.data()), prefix.size(), deadline); status != Status::message)
    return status;
  const size_t length = prefix[0] | size_t{prefix[1]} << 8 | size_t{prefix[2]} << 16 | size_t{prefix[3]} << 24;
  if (length > maximum_message_bytes)
    throw Error("a message of " + std::to_string(length) + " bytes is over the limit: the other side does not speak this protocol");
  std::string body(length, '\0');
  if (const Status status = read_exactly(body.data(), length, deadline); status != Status::message) return status;
  try {
    message = Json::parse(body);
  } catch (const Json::exception& error) {
    throw Error(std::string("a message is not JSON: ") + error.what());
  }
  return Status::message;
}

}  // namespace ak
