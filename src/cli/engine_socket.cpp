// A Unix socket's path holds 107 characters, a run directory's may be longer: the address goes through /proc/self/fd.
#include "cli/engine_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/channel.h"
#include "core/error.h"
#include "core/log.h"

namespace ak::cli {
namespace {

using namespace std::chrono_literals;

Descriptor open_directory(const std::filesystem::path& directory) {
  Descriptor fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) throw Error("cannot open " + directory.string() + ": " + std::strerror(errno));
  return fd;
}

sockaddr_un address_in(const Descriptor& directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/socket", directory.get());
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Descriptor make_socket() {
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) throw Error(std::string("cannot make a socket: ") + std::strerror(errno));
  return fd;
}

Channel channel_over(Descriptor connection) {
  Descriptor copy(::fcntl(connection.get(), F_DUPFD_CLOEXEC, 3));
  return Channel(std::move(connection), std::move(copy));
}

Json answer(const RequestHandler& handler, const Json& request) {
  try {
    return {{"result", handler(request)}};
  } catch (const Error& error) {
    return {{"error", {{"message", error.what()}, {"what_to_do", error.what_to_do()}}}};
  } catch (const Json::exception& error) {
    return {{"error", {{"message", std::string("a malformed request: ") + error.what()}, {"what_to_do", ""}}}};
  }
}

}  // namespace

EngineSocket::EngineSocket(const std::filesystem::path& run_directory)
    : directory_(open_directory(run_directory)), listener_(make_socket()), path_(run_directory / "socket") {
  ::unlink(path_.c_str());  // of an engine that was killed; the lock says that it is gone
  const sockaddr_un address = address_in(directory_);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(listener_.get(), 8) != 0) {
    throw Error("cannot listen on " + path_.string() + ": " + std::strerror(errno));
  }
}

EngineSocket::~EngineSocket() { ::unlink(path_.c_str()); }

bool EngineSocket::serve_pending(const RequestHandler& handler) {
  for (bool served = false;; served = true) {
    pollfd ready{listener_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 0) <= 0) return served;
    Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.valid()) return served;
    const timeval patience{5, 0};  // a client that does not read its answer must not hold the engine
    ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    Channel channel = channel_over(std::move(connection));
    try {
      Json request;
      if (channel.receive(request, 2s) == Channel::Status::message) channel.send(answer(handler, request));
    } catch (const Error& error) {
      log_warning(fmt::format("a client of the run's socket was refused: {}", error.what()));
    }
  }
}

std::optional<Json> ask_engine(const std::filesystem::path& run_directory, const Json& request) {
  if (!std::filesystem::exists(run_directory / "socket")) return std::nullopt;
  const Descriptor directory = open_directory(run_directory);
  Descriptor connection = make_socket();
  const sockaddr_un address = address_in(directory);
  if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  Channel channel = channel_over(std::move(connection));
  Json reply;
  if (!channel.send(request) || channel.receive(reply) != Channel::Status::message) {
    throw Error("the engine of " + run_directory.string() + " ended before it answered",
                "run the same command again: it takes the run over");
  }
  if (reply.contains("error"))
    throw Error(reply["error"].value("message", std::string("unknown error")), reply["error"].value("what_to_do", std::string()));
  return reply.at("result");
}

}  // namespace ak::cli
