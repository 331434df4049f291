// Starts, greets, connects. A connection is a compile, so that threads need nothing but the socket's name.
#include "compile/triton_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bridge/python.h"
#include "core/error.h"

namespace ak::compile {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int64_t protocol_version = 1;
constexpr auto greeting_timeout = 120s;  // a cold import from a slow disk
constexpr auto grace = 10s;              // beyond the time that the server itself allows a compile
constexpr auto farewell = 2s;
constexpr const char* needs_triton = "pip install triton, or set AUTOKERNEL_PYTHON to a Python that has it";

}  // namespace

TritonServer::TritonServer() { start(); }

TritonServer::~TritonServer() {
  alive_.reset();
  if (process_) process_->wait(farewell);
}

void TritonServer::start() {
  process_.reset();
  directory_.emplace("autokernel-triton-");
  const std::string socket = (directory_->path() / "socket").string(), log = (directory_->path() / "log").string();
  const Descriptor output(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)),
      nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::map<std::string, std::string> environment = bridge::python_environment();
  environment["PYTHONDONTWRITEBYTECODE"] = "1";
  Pipe alive = make_pipe(), greeting = make_pipe();
  process_.emplace(Process::start(
      {.arguments = {bridge::find_python().string(), "-m", "autokernel.triton_backend.server", socket, std::to_string(::getpid())},
       .environment = std::move(environment),
       .descriptors = {
           {0, nothing.get()}, {1, output.get()}, {2, output.get()}, {3, alive.read_end.get()}, {4, greeting.write_end.get()}}}));
  alive_ = std::move(alive.write_end);
  greeting.write_end.reset();
  Json hello;
  Channel channel(std::move(greeting.read_end), Descriptor());
  if (channel.receive(hello, greeting_timeout) != Channel::Status::message)
    throw Error("the Triton compiler does not start: " + read_file_if_exists(log).value_or(""), needs_triton);
  if (hello.contains("error")) throw Error("Triton does not work: " + hello["error"].get<std::string>(), needs_triton);
  if (hello.value("protocol", int64_t{0}) != protocol_version)
    throw Error("the Triton compiler speaks another protocol", "set AUTOKERNEL_HOME to the installation that belongs to this program");
  version_ = hello.at("triton");
  sandbox_ = hello.at("sandbox");
}

std::optional<Channel> TritonServer::connect() {
  Descriptor connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::lock_guard lock(mutex_);
  if (!process_ || !process_->running()) start();
  const std::string path = (directory_->path() / "socket").string();
  if (path.size() >= sizeof address.sun_path) throw Error(path + " is too long for a socket", "set TMPDIR to a shorter directory");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  Descriptor copy(::fcntl(connection.get(), F_DUPFD_CLOEXEC, 3));
  return Channel(std::move(connection), std::move(copy));
}

std::optional<Json> TritonServer::ask(const Json& request) {
  auto channel = connect();
  if (!channel || !channel->send(request)) return std::nullopt;
  const auto patience = std::chrono::milliseconds(static_cast<int64_t>(request.at("seconds").get<double>() * 1000)) + grace;
  Json reply;
  if (channel->receive(reply, patience) != Channel::Status::message) return std::nullopt;
  return reply;
}

}  // namespace ak::compile
