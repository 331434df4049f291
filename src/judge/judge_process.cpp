// One request at a time over two pipes.
#include "judge/judge_process.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"

namespace ak::judge {
namespace {

constexpr std::chrono::seconds open_timeout(30);

}  // namespace

std::filesystem::path judge_beside_program() { return executable_path().parent_path() / "autokernel-judge"; }

JudgeProcess::JudgeProcess(std::filesystem::path executable, Json opening)
    : executable_(std::move(executable)), opening_(std::move(opening)) {}

void JudgeProcess::start() {
  Pipe requests = make_pipe(), replies = make_pipe();
  ProcessOptions options;
  options.arguments = {executable_.string()};
  const Descriptor nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));  // a candidate on a GPU can print, and would print among our results
  options.descriptors = {{1, nothing.get()}, {3, requests.read_end.get()}, {4, replies.write_end.get()}};
  process_ = Process::start(options);
  channel_.emplace(std::move(replies.read_end), std::move(requests.write_end));
  Json opening = opening_;
  opening["family"] = ::getpid();
  const auto opened = exchange("open", opening, open_timeout);
  if (!opened) throw Error("the judge " + executable_.string() + " does not start: " + last_end_, "run `autokernel doctor`");
  opened_ = *opened;
}

void JudgeProcess::end(const std::string& how) {
  last_end_ = how;
  channel_.reset();
  process_.reset();
}

std::optional<Json> JudgeProcess::exchange(const std::string& verb, const Json& arguments, std::chrono::milliseconds timeout) {
  const int64_t id = ++last_id_;
  Json reply;
  const bool sent = channel_->send({{"id", id}, {"verb", verb}, {"arguments", arguments}});
  const Channel::Status status = sent ? channel_->receive(reply, timeout) : Channel::Status::closed;
  if (status != Channel::Status::message) {
    const auto ended = process_->wait(std::chrono::milliseconds(status == Channel::Status::closed ? 1000 : 0));
    end(ended ? ended->text() : "no answer to `" + verb + "` in time");
    return std::nullopt;
  }
  if (reply.value("ends", false)) end("a candidate broke the device's context");
  if (reply.contains("error"))
    throw Error("the judge: " + reply["error"].value("message", std::string("unknown error")), reply["error"].value("what_to_do", ""));
  return reply.at("result");
}

std::optional<Json> JudgeProcess::call(const std::string& verb, const Json& arguments, std::chrono::milliseconds timeout) {
  if (!channel_) start();
  return exchange(verb, arguments, timeout);
}

const Json& JudgeProcess::opened() {
  if (!channel_) start();
  return opened_;
}

Bindings JudgeProcess::facts() {
  Bindings facts;
  for (const auto& [name, value] : opened().at("facts").items()) facts[name] = value.get<int64_t>();
  return facts;
}

}  // namespace ak::judge
