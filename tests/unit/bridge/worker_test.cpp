// The worker's client against a worker that plays scripts.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "bridge/process_worker.h"
#include "bridge/python.h"
#include "core/error.h"
#include "core/file.h"
#include "fakes/scripted_worker.h"

namespace ak::bridge {
namespace {

using namespace std::chrono_literals;
using fakes::ScriptedWorker;
using Life = ScriptedWorker::Life;

Json step(const std::string& what, Json value) { return ScriptedWorker::step(what, std::move(value)); }

const Json usual_greeting = step("greet", Json::object());
const Json captured = step("result", Json::parse(R"({"capture": "export", "reason": null, "graphs": 1, "nodes": 17})"));
const Json loaded = step("result", Json::parse(R"({"parameters": 12, "inputs": [{"dtype": "int64", "shape": [1, 8]}],
  "output": [{"dtype": "float32", "shape": [1, 8, 5]}], "warnings": ["odd"], "kind": "module"})"));

WorkerOptions options_for(const ScriptedWorker& script) {
  WorkerOptions options;
  options.command = script.command(executable_path().string());
  options.log = script.log();
  return options;
}

/// What an Error says, both parts.
template <class Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.what_to_do();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Worker, GreetsLoadsAndCapturesWithTypedResults) {
  const ScriptedWorker script({Life{usual_greeting, "expect", loaded, "expect", captured}});
  ProcessWorker worker(options_for(script));
  EXPECT_EQ(worker.greeting().torch, "2.15.0");
  EXPECT_EQ(worker.greeting().devices, std::vector<std::string>{"cpu"});
  const LoadedModel model = worker.load({.model = "m.py:M", .input_shape = {1, 8}, .seed = 7});
  EXPECT_EQ(model.parameters, 12);
  EXPECT_EQ(model.output.at(0).shape, (std::vector<int64_t>{1, 8, 5}));
  EXPECT_EQ(model.warnings, std::vector<std::string>{"odd"});
  const CaptureResult result = worker.capture("/tmp/g.json");
  EXPECT_EQ(result.nodes, 17);
  EXPECT_EQ(result.reason, "");
  const auto requests = script.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].at("verb"), "load");
  EXPECT_EQ(requests[0].at("arguments"),
            Json::parse(R"({"model": "m.py:M", "input_shape": [1, 8], "dtype": null, "device": "cpu", "seed": 7})"));
  EXPECT_EQ(requests[1].at("arguments").at("path"), "/tmp/g.json");
  EXPECT_NE(requests[0].at("id"), requests[1].at("id"));
}

TEST(Worker, IsReplacedOnceWhereItSaysThatItCannotGoOn) {
  const Json broken =
      step("error", Json::parse(R"({"kind": "environment", "message": "the GPU's context broke: illegal access", "ends": true})"));
  const ScriptedWorker once(
      {Life{usual_greeting, "expect", loaded, "expect", broken}, Life{usual_greeting, "expect", loaded, "expect", captured}});
  ProcessWorker worker(options_for(once));
  worker.load({.model = "m.py:M"});
  EXPECT_EQ(worker.capture("/tmp/g.json").nodes, 17);
  EXPECT_EQ(once.lives(), 2);

  const ScriptedWorker twice({Life{usual_greeting, "expect", broken}, Life{usual_greeting, "expect", broken}});
  const std::string error = error_of([&] { ProcessWorker(options_for(twice)).capture("/tmp/g.json"); });
  EXPECT_TRUE(contains(error, "died twice in capture (the GPU's context broke: illegal access)")) << error;
  EXPECT_EQ(twice.lives(), 2);
}

TEST(Worker, ReadsPatternsProfileFixturesAndBaselines) {
  const Json patterns = step("result", Json::parse(R"({"patterns": 9, "errors": [{"family": "f", "spelling": "s", "message": "no"}]})"));
  const Json profile = step("result", Json::parse(R"({"total_us": 12.5, "nodes": 4})"));
  const Json fixtures = step("result", Json::parse(R"({"inputs": "/d/i", "expected": "/d/e", "bytes": 640})"));
  const Json baseline = {
      {"result", Json::parse(R"({"kinds": {"eager": {"samples_us": [3.5, 3.25]}, "compile": {"error": "no compiler"}}})")}};
  const ScriptedWorker script({Life{usual_greeting, "expect", patterns, "expect", profile, "expect", fixtures, "expect", baseline}});
  ProcessWorker worker(options_for(script));
  EXPECT_EQ(worker.patterns("/k", {"float32"}, "/p").errors.at(0).spelling, "s");
  EXPECT_EQ(worker.profile(5, "/p").total_us, 12.5);
  kernel::Task task;
  task.family = "f";
  task.id = "f_00000000";
  EXPECT_EQ(worker.fixtures(task, {{"stage", 2}}, "/d").expected, "/d/e");
  const auto times = worker.baseline({.task = task, .seed = 3, .kinds = {"eager", "compile"}});
  EXPECT_EQ(times.at("eager").samples_us, (std::vector<double>{3.5, 3.25}));
  EXPECT_EQ(times.at("compile").error, "no compiler");
  EXPECT_EQ(script.requests().at(2).at("arguments").at("task").at("id"), "f_00000000");
}

TEST(Worker, PassesProgressOn) {
  const Json half = step("progress", Json::parse(R"({"text": "half", "done": 1, "total": 2})"));
  const ScriptedWorker script({Life{usual_greeting, "expect", half, half, captured}});
  ProcessWorker worker(options_for(script));
  std::vector<std::string> heard;
  worker.set_progress([&](const std::string& text, int64_t done, int64_t total) {
    heard.push_back(text + std::to_string(done) + "/" + std::to_string(total));
  });
  worker.capture("/g");
  EXPECT_EQ(heard, (std::vector<std::string>{"half1/2", "half1/2"}));
}

TEST(Worker, TellsTheUsersErrorFromTheEnvironmentsAndItsOwn) {
  const auto failing = [](const char* kind) {
    return step("error", Json{{"kind", kind}, {"message", "It broke."}, {"traceback", "File m.py, line 3"}});
  };
  const ScriptedWorker script(
      {Life{usual_greeting, "expect", failing("user"), "expect", failing("environment"), "expect", failing("bug"), "expect", captured}});
  ProcessWorker worker(options_for(script));
  EXPECT_EQ(error_of([&] { worker.capture("/g"); }), "It broke.\nFile m.py, line 3 | ");
  EXPECT_EQ(error_of([&] { worker.capture("/g"); }), "It broke. | its log is " + script.log().string());
  const std::string bug = error_of([&] { worker.capture("/g"); });
  EXPECT_TRUE(contains(bug, "a fault of the PyTorch worker in capture: It broke.\nFile m.py, line 3")) << bug;
  EXPECT_EQ(worker.capture("/g").nodes, 17);  // it lives on
  EXPECT_EQ(script.lives(), 1);
}

TEST(Worker, StartsAgainAfterADeathAndLoadsTheModelAgain) {
  const ScriptedWorker script({Life{usual_greeting, "expect", loaded, "expect", step("kill", SIGKILL)},
                               Life{usual_greeting, "expect", loaded, "expect", captured}});
  ProcessWorker worker(options_for(script));
  worker.load({.model = "m.py:M", .seed = 7});
  EXPECT_EQ(worker.capture("/g").nodes, 17);
  const auto requests = script.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[2].at("verb"), "load");
  EXPECT_EQ(requests[2].at("arguments"), requests[0].at("arguments"));
  EXPECT_EQ(requests[3].at("verb"), "capture");
}

TEST(Worker, GivesUpAfterTheSecondDeathInOneRequestAndQuotesItsLog) {
  const Life dying = {usual_greeting, "expect", step("log", "terminate called\nout of luck\n"), step("exit", 3)};
  const ScriptedWorker script({dying, dying, Life{usual_greeting, "expect", captured}});
  ProcessWorker worker(options_for(script));
  const std::string error = error_of([&] { worker.capture("/g"); });
  EXPECT_TRUE(contains(error, "died twice in capture (exit code 3)")) << error;
  EXPECT_TRUE(contains(error, "out of luck")) << error;
  EXPECT_TRUE(contains(error, script.log().string())) << error;
  EXPECT_EQ(worker.capture("/g").nodes, 17);  // the next request has its own chance
}

TEST(Worker, StopsASilentWorkerAndStartsAnotherForTheNextRequest) {
  const ScriptedWorker script({Life{usual_greeting, "expect", loaded, "expect", "silence"},
                               Life{usual_greeting, "expect", loaded, "expect", step("result", Json{{"total_us", 1.5}, {"nodes", 4}})}});
  WorkerOptions options = options_for(script);
  options.timeouts["capture"] = 50ms;
  ProcessWorker worker(options);
  worker.load({.model = "m"});
  const std::string error = error_of([&] { worker.capture("/g"); });
  EXPECT_TRUE(contains(error, "silent for 50 ms in capture")) << error;
  EXPECT_EQ(worker.profile(1, "/p").nodes, 4);  // by the second worker, with the model loaded again
  ASSERT_EQ(script.requests().size(), 4u);
  EXPECT_EQ(script.requests().at(2).at("verb"), "load");
}

TEST(Worker, NamesGarbageOnItsChannel) {
  const ScriptedWorker script({Life{usual_greeting, "expect", step("raw", "Segmentation fault, and more\n"), "silence"},
                               Life{usual_greeting, "expect", step("raw", std::string("\x05\x00\x00\x00{,}!?", 9)), "silence"},
                               Life{usual_greeting, "expect", step("wrong_id", true), "silence"},
                               Life{usual_greeting, "expect", step("message", Json::array()), "silence"}});
  ProcessWorker worker(options_for(script));
  for (const char* why : {"does not speak its protocol", "not JSON", "answered another request", "answered another request"}) {
    const std::string error = error_of([&] { worker.capture("/g"); });
    EXPECT_TRUE(contains(error, "does not speak its protocol in capture") && contains(error, why)) << error;
  }
  EXPECT_EQ(script.lives(), 4);
}

TEST(Worker, RefusesABadGreeting) {
  const auto greeted = [](const Life& life) {
    const ScriptedWorker script({life});
    WorkerOptions options = options_for(script);
    options.greeting_timeout = 200ms;
    if (life != Life{"silence"}) options.greeting_timeout = 30s;
    return error_of([&] { ProcessWorker worker(options); });
  };
  EXPECT_TRUE(contains(greeted({step("greet", Json{{"protocol", 2}})}), "speaks version 2 of its protocol, this program version 1"));
  EXPECT_TRUE(contains(greeted({step("greet", Json{{"hello", "other"}})}), "another program"));
  EXPECT_TRUE(contains(greeted({step("greet", Json{{"device", 5}})}), "greeting is malformed"));
  EXPECT_TRUE(contains(greeted({step("raw", "Python 2.7 says hello")}), "does not speak its protocol"));
  EXPECT_TRUE(contains(greeted({step("log", "No module named autokernel\n"), step("exit", 1)}),
                       "ended before its greeting (exit code 1)\nthe end of its log:\nNo module named autokernel | "));
  EXPECT_TRUE(contains(greeted({"silence"}), "did not greet within 200 ms"));
  const std::string no_torch =
      greeted({step("message", Json::parse(R"({"error": {"kind": "environment", "message": "PyTorch cannot be imported: no torch"}})"))});
  EXPECT_TRUE(contains(no_torch, "PyTorch cannot be imported: no torch | ") && contains(no_torch, "pip install torch")) << no_torch;
}

TEST(Worker, RefusesAVerbThatItCannotDo) {
  const ScriptedWorker script({Life{step("greet", Json::parse(R"({"capabilities": ["load"]})")), "silence"}});
  ProcessWorker worker(options_for(script));
  EXPECT_TRUE(contains(error_of([&] { worker.verify("/r", {}, 3, "/v"); }), "cannot verify"));
  EXPECT_TRUE(script.requests().empty());
}

TEST(Worker, NamesAMalformedResult) {
  const ScriptedWorker script({Life{usual_greeting, "expect", step("result", Json{{"capture", 5}}), "expect", step("neither", 1)}});
  ProcessWorker worker(options_for(script));
  EXPECT_TRUE(contains(error_of([&] { worker.capture("/g"); }), "answer to capture is malformed"));
  EXPECT_TRUE(contains(error_of([&] { worker.capture("/g"); }), "has no result"));
}

TEST(Worker, QuotesOnlyTheLogOfTheWorkerThatFailed) {
  const ScriptedWorker script({Life{usual_greeting, "expect", step("log", "first life\n"), step("exit", 4)},
                               Life{usual_greeting, "expect", step("log", "second life\n"), step("exit", 5)}});
  ProcessWorker worker(options_for(script));
  const std::string error = error_of([&] { worker.capture("/g"); });
  EXPECT_TRUE(contains(error, "second life") && !contains(error, "first life")) << error;
}

TEST(Worker, FakesNeedOneMethod) {
  struct Fake : Worker {
    Json request(const std::string& verb, const Json& arguments) override {
      asked.push_back(verb + " " + arguments.at("path").get<std::string>());
      return {{"total_us", 4.0}, {"nodes", 2}};
    }
    std::vector<std::string> asked;
  } fake;
  EXPECT_EQ(fake.profile(3, "/p").nodes, 2);
  EXPECT_EQ(fake.asked, std::vector<std::string>{"profile /p"});
}

TEST(Python, IsTheNamedOneOrAnError) {
  ASSERT_EQ(::setenv("AUTOKERNEL_PYTHON", "/bin/sh", 1), 0);
  EXPECT_EQ(find_python(), "/bin/sh");
  ASSERT_EQ(::setenv("AUTOKERNEL_PYTHON", "/nowhere/python", 1), 0);
  EXPECT_TRUE(contains(error_of([] { find_python(); }), "AUTOKERNEL_PYTHON is '/nowhere/python'"));
  ::unsetenv("AUTOKERNEL_PYTHON");
}

}  // namespace
}  // namespace ak::bridge

int main(int count, char** arguments) {
  ::signal(SIGPIPE, SIG_IGN);
  if (count == 3 && std::string(arguments[1]) == "--scripted-worker") return ak::fakes::ScriptedWorker::play(arguments[2]);
  ::testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
