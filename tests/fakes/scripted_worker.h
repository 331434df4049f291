// A worker that plays a script instead of running PyTorch: greets, answers, dies, falls silent or talks nonsense, as told.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/channel.h"
#include "core/file.h"

namespace ak::fakes {

/// What a scripted worker does, one list of steps for each time that it is started:
/// {"greet": {changes to the usual greeting}} · "expect" (read a request) · {"result": …} · {"error": {…}} · {"progress": {…}} ·
/// {"message": {any}} · {"raw": "bytes"} · {"log": "text"} · {"exit": code} · {"kill": signal} · {"wrong_id": true} · "silence" (until the
/// engine goes)
class ScriptedWorker {
 public:
  using Life = std::vector<Json>;

  explicit ScriptedWorker(const std::vector<Life>& lives) : directory_("scripted-worker-") { write_json(script(), lives); }

  /// {what: value}
  static Json step(const std::string& what, Json value) {
    Json object = Json::object();
    object[what] = std::move(value);
    return object;
  }

  /// The command that plays it, where `program` hands its arguments to play().
  std::vector<std::string> command(const std::string& program) const { return {program, "--scripted-worker", script().string()}; }
  std::filesystem::path log() const { return directory_.path() / "worker.log"; }
  /// The requests of all lives, in order.
  std::vector<Json> requests() const {
    std::vector<Json> result;
    std::ifstream file(script().string() + ".requests");
    for (std::string line; std::getline(file, line);) result.push_back(Json::parse(line));
    return result;
  }
  int64_t lives() const {
    std::ifstream file(script().string() + ".lives");
    return std::distance(std::istreambuf_iterator<char>(file), {});
  }

  /// The program's side: play the next life.
  static int play(const std::string& script) {
    std::ofstream(script + ".lives", std::ios::app) << '*';
    std::ifstream counted(script + ".lives");
    const auto life = static_cast<size_t>(std::distance(std::istreambuf_iterator<char>(counted), {})) - 1;
    const Json lives = read_json(script);
    if (life >= lives.size()) return 99;  // started more often than the script says
    Channel channel{Descriptor(3), Descriptor(4)};
    Json request = {{"id", 0}};
    for (const Json& step : lives[life]) {
      if (step == "expect") {
        if (channel.receive(request) != Channel::Status::message) return 0;
        std::ofstream(script + ".requests", std::ios::app) << request.dump() << '\n';
      } else if (step == "silence") {
        Json ignored;
        while (channel.receive(ignored) == Channel::Status::message) {
        }
        return 0;
      } else if (const auto code = perform(step, request, channel)) {
        return *code;
      }
    }
    return 0;
  }

 private:
  static std::optional<int> perform(const Json& step, const Json& request, Channel& channel) {
    const std::string what = step.begin().key();
    const Json& value = step.begin().value();
    if (what == "greet") {
      Json greeting = {{"hello", "autokernel.worker"},
                       {"protocol", 1},
                       {"python", "3.11.7"},
                       {"torch", "2.15.0"},
                       {"device", {"cpu"}},
                       {"threads", 2},
                       {"capabilities", {"load", "capture", "patterns", "profile", "fixtures", "baseline", "verify"}}};
      greeting.update(value);
      channel.send(greeting);
    } else if (what == "wrong_id") {
      channel.send({{"id", 12345}, {"result", Json::object()}});
    } else if (what == "raw") {
      const auto bytes = value.get<std::string>();
      [[maybe_unused]] const ssize_t written = ::write(4, bytes.data(), bytes.size());
    } else if (what == "log") {
      std::fputs(value.get<std::string>().c_str(), stderr);
    } else if (what == "message") {
      channel.send(value);
    } else if (what == "exit") {
      return value.get<int>();
    } else if (what == "kill") {
      ::raise(value.get<int>());
    } else {
      channel.send({{"id", request.at("id")}, {what, value}});
    }
    return std::nullopt;
  }

  std::filesystem::path script() const { return directory_.path() / "script.json"; }
  TemporaryDirectory directory_;
};

}  // namespace ak::fakes
