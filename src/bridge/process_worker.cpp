// Start, greet, ask, and what to do where no answer comes.
#include "bridge/process_worker.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "bridge/python.h"
#include "core/error.h"
#include "core/log.h"

namespace ak::bridge {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int64_t protocol_version = 1;
constexpr int requests_descriptor = 3, replies_descriptor = 4;
constexpr auto farewell = 2s;
constexpr size_t log_tail_bytes = 2000, log_tail_lines = 15;

/// The longest silence of a verb that is no fault: a cold torch.compile of a large model takes minutes, float64 references of large cases
/// too.
const std::map<std::string, std::chrono::milliseconds, std::less<>> default_timeouts = {
    {"load", 10min},     {"capture", 15min},  {"patterns", 10min},      {"profile", 15min},
    {"fixtures", 10min}, {"baseline", 20min}, {"compile_ahead", 20min}, {"verify", 40min}};

std::vector<std::string> default_command() { return {find_python().string(), "-m", "autokernel.worker"}; }

Descriptor open_or_throw(const fs::path& path, int flags) {
  Descriptor descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (!descriptor.valid()) throw Error("cannot open " + path.string() + ": " + std::strerror(errno));
  return descriptor;
}

std::string seconds(std::chrono::milliseconds time) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  return whole == time ? std::to_string(whole.count()) + " s" : std::to_string(time.count()) + " ms";
}

/// The error in a reply or a failed greeting, as an exception for the user.
[[noreturn]] void throw_error(const std::string& verb, const Json& error, const std::string& see_log) {
  const std::string kind = error.value("kind", std::string("bug")), message = error.value("message", std::string("no message"));
  const std::string traceback =
      error.contains("traceback") && error.at("traceback").is_string() ? error.at("traceback").get<std::string>() : std::string();
  const std::string with_traceback = traceback.empty() ? message : message + "\n" + traceback;
  if (kind == "user") throw Error(with_traceback);
  if (kind == "environment") throw Error(message, see_log);
  throw Error("a fault of the PyTorch worker in " + verb + ": " + with_traceback, "please report it; " + see_log);
}

}  // namespace

ProcessWorker::ProcessWorker(WorkerOptions options) : options_(std::move(options)) {
  if (options_.log.empty()) {
    own_log_.emplace("autokernel-worker-");
    options_.log = own_log_->path() / "worker.log";
  }
  start();
}

ProcessWorker::~ProcessWorker() {
  if (!process_) return;
  channel_.reset();
  process_->wait(farewell);
}

void ProcessWorker::start() {
  ProcessOptions child;
  child.arguments = options_.command.empty() ? default_command() : options_.command;
  if (options_.command.empty()) child.environment = python_environment();
  for (const auto& [name, value] : options_.environment) child.environment[name] = value;

  if (options_.log.has_parent_path()) fs::create_directories(options_.log.parent_path());
  const Descriptor log = open_or_throw(options_.log, O_WRONLY | O_CREAT | O_APPEND), nothing = open_or_throw("/dev/null", O_RDONLY);
  log_start_bytes_ = fs::file_size(options_.log);
  Pipe requests = make_pipe(), replies = make_pipe();
  child.descriptors = {{0, nothing.get()},
                       {1, log.get()},
                       {2, log.get()},
                       {requests_descriptor, requests.read_end.get()},
                       {replies_descriptor, replies.write_end.get()}};
  process_.emplace(Process::start(child));
  channel_.emplace(std::move(replies.read_end), std::move(requests.write_end));
  requests.read_end.reset();
  replies.write_end.reset();
  greet();
}

void ProcessWorker::greet() {
  constexpr const char* needs_torch =
      "the worker needs Python 3.10 or newer with PyTorch: pip install torch, or set AUTOKERNEL_PYTHON to a Python that has it";
  Json hello;
  Channel::Status status = Channel::Status::closed;
  try {
    status = channel_->receive(hello, options_.greeting_timeout);
  } catch (const Error& error) {
    end();
    throw Error(std::string("the PyTorch worker does not speak its protocol: ") + error.what() + log_tail(), needs_torch);
  }
  if (status == Channel::Status::timed_out) {
    end();
    throw Error("the PyTorch worker did not greet within " + seconds(options_.greeting_timeout) + log_tail(), see_log());
  }
  if (status == Channel::Status::closed)
    throw Error("the PyTorch worker ended before its greeting (" + end() + ")" + log_tail(), needs_torch);
  if (hello.is_object() && hello.contains("error")) {
    end();
    throw_error("its start", hello.at("error"), needs_torch);
  }
  try {
    if (hello.at("hello") != "autokernel.worker")
      throw Error("another program answered in place of the PyTorch worker: " + hello.dump().substr(0, 200));
    if (hello.at("protocol") != protocol_version) {
      throw Error("the PyTorch worker speaks version " + hello.at("protocol").dump() + " of its protocol, this program version " +
                      std::to_string(protocol_version),
                  "install the Python package and the program of the same version");
    }
    greeting_ = {hello.at("python").get<std::string>(), hello.at("torch").get<std::string>(),
                 hello.at("device").get<std::vector<std::string>>(), hello.at("capabilities").get<std::vector<std::string>>(),
                 hello.at("threads").get<int64_t>()};
  } catch (const Json::exception& error) {
    end();
    throw Error(std::string("the PyTorch worker's greeting is malformed: ") + error.what(),
                "install the Python package and the program of the same version");
  } catch (const Error&) {
    end();
    throw;
  }
}

void ProcessWorker::restart() {
  start();
  if (!loaded_) return;
  const auto reply = attempt("load", Json::parse(*loaded_));
  if (!reply) throw Error("the PyTorch worker died while it loaded the model again (" + end() + ")" + log_tail(), see_log());
  result_of("load", *reply);
}

Json ProcessWorker::request(const std::string& verb, const Json& arguments) {
  if (!process_) restart();
  const auto& known = greeting_.capabilities;
  if (std::find(known.begin(), known.end(), verb) == known.end()) {
    throw Error("this PyTorch worker cannot " + verb + " (PyTorch " + greeting_.torch + ")",
                "install the Python package and the program of the same version");
  }
  auto reply = attempt(verb, arguments);
  if (!reply) {
    log_warning("the PyTorch worker died in " + verb + " (" + end() + "); starting it again");
    restart();
    reply = attempt(verb, arguments);
  }
  if (!reply) throw Error("the PyTorch worker died twice in " + verb + " (" + end() + ")" + log_tail(), see_log());
  Json result = result_of(verb, *reply);
  if (verb == "load") loaded_ = arguments.dump();
  return result;
}

std::optional<Json> ProcessWorker::attempt(const std::string& verb, const Json& arguments) {
  const int64_t id = next_id_++;
  if (!channel_->send({{"id", id}, {"verb", verb}, {"arguments", arguments}})) return std::nullopt;
  const auto given = options_.timeouts.find(verb);
  const auto usual = default_timeouts.find(verb);
  const std::chrono::milliseconds silence = given != options_.timeouts.end()  ? given->second
                                            : usual != default_timeouts.end() ? usual->second
                                                                              : 10min;
  for (;;) {
    Json message;
    Channel::Status status = Channel::Status::closed;
    try {
      status = channel_->receive(message, silence);
      if (status == Channel::Status::message && (!message.is_object() || message.value("id", int64_t{-1}) != id))
        throw Error("it answered another request");
    } catch (const Json::exception& error) {
      end();
      throw Error("the PyTorch worker does not speak its protocol in " + verb + ": " + error.what() + log_tail(), see_log());
    } catch (const Error& error) {
      end();
      throw Error("the PyTorch worker does not speak its protocol in " + verb + ": " + error.what() + log_tail(), see_log());
    }
    if (status == Channel::Status::closed) return std::nullopt;
    if (status == Channel::Status::timed_out) {
      end();
      throw Error("the PyTorch worker was silent for " + seconds(silence) + " in " + verb + " and was stopped" + log_tail(), see_log());
    }
    if (message.contains("error") && message.at("error").value("ends", false)) {
      last_words_ = message.at("error").value("message", std::string("it cannot go on"));
      return std::nullopt;
    }
    if (!message.contains("progress")) return message;
    const Json& progress = message.at("progress");
    report(progress.value("text", std::string()), progress.value("done", int64_t{0}), progress.value("total", int64_t{0}));
  }
}

Json ProcessWorker::result_of(const std::string& verb, const Json& reply) const {
  if (reply.contains("error")) throw_error(verb, reply.at("error"), see_log());
  if (!reply.contains("result")) throw Error("the PyTorch worker's answer to " + verb + " has no result" + log_tail(), see_log());
  return reply.at("result");
}

std::string ProcessWorker::end() {
  if (!process_) return "it ended before";
  channel_.reset();
  const auto status = process_->wait(100ms);
  process_.reset();
  if (!last_words_.empty()) return std::exchange(last_words_, {});
  return status ? status->text() : "stopped by us";
}

std::string ProcessWorker::log_tail() const {
  const std::string content = read_file_if_exists(options_.log).value_or("");
  std::string tail = content.substr(std::min<size_t>(content.size(), log_start_bytes_));
  if (tail.size() > log_tail_bytes) tail = tail.substr(tail.size() - log_tail_bytes);
  size_t lines = 0, begin = tail.size();
  while (begin > 0 && (tail[begin - 1] != '\n' || begin == tail.size() || ++lines < log_tail_lines)) --begin;
  tail = tail.substr(begin);
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  return tail.empty() ? "" : "\nthe end of its log:\n" + tail;
}

std::string ProcessWorker::see_log() const { return own_log_ ? "" : "its log is " + options_.log.string(); }

}  // namespace ak::bridge
