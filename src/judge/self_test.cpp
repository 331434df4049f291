// Reading the suite, and judging both sides of a pair.
#include "judge/self_test.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/file.h"
#include "core/toml.h"

namespace ak::judge {
namespace {

constexpr double load_seconds = 2, run_seconds = 2, timing_seconds = 0.25;
constexpr int64_t memory_bytes = 256 << 20;

/// `pair` as the backend has it: a table of the backend's name holds what differs there.
Json settings_of(Json pair, std::string_view backend) {
  if (const auto own = pair.find(backend); own != pair.end()) pair.update(*own);
  return pair;
}

/// A kernel file from the opening of its task, the plan and prelude of the pair where it has its own, and its code.
kernel::KernelFile kernel_file(const Json& task, const Json& pair, kernel::Backend backend, const std::string& code,
                               const std::string& origin) {
  const Json& opening = task.at(std::string(name_of(backend)));
  const std::string text = fmt::format(
      "/*autokernel\nfamily = \"{}\"\nbackend = \"{}\"\n[tune]\nPLANTED = {{ values = [0, 1], default = 0, tier = 1 }}\n{}*/\n"
      "#include <autokernel/{}>\n{}{}#line 1\n{}",
      pair.at("task").get<std::string>(), name_of(backend), (pair.contains("plan") ? pair : opening).at("plan").get<std::string>(),
      backend == kernel::Backend::cuda ? "reduce.cuh" : "cpu.h", opening.at("prelude").get<std::string>(), pair.value("prelude", ""), code);
  return kernel::KernelFile::parse(text, origin);
}

kernel::Task read_task(const std::string& name, const Json& json) {
  Json contract = json.at("contract");
  contract.update({{"schema", "autokernel.task/1"}, {"id", name}, {"family", contract.value("family", name)}});
  for (const char* key : {"scalars", "options"}) {
    if (!contract.contains(key)) contract[key] = Json::object();
  }
  return kernel::task_from_json(contract);
}

Json with_limits(Json opening) {
  if (opening.at("device") == "cpu") opening["threads"] = 2;
  opening["limits"] = {{"load_seconds", load_seconds}, {"run_seconds", run_seconds}, {"memory_bytes", memory_bytes}};
  return opening;
}

}  // namespace

Candidate Pair::candidate(bool planted) const { return {file, {{"PLANTED", planted ? 1 : 0}}}; }

SelfTest::SelfTest(const std::filesystem::path& folder, std::filesystem::path judge_executable, const compile::Compiler& compiler,
                   Json opening)
    : compiler_(compiler), process_(std::move(judge_executable), with_limits(opening)) {
  const std::string path = (folder / "suite.toml").string();
  const Json suite = parse_toml(read_file(path), path);
  const std::string device = opening.at("device");
  const kernel::Backend backend = kernel::parse_backend(device);
  const std::string ending = std::filesystem::path(kernel::file_name(backend)).extension();
  try {
    for (const auto& [name, json] : suite.at("task").items()) tasks_.emplace(name, read_task(name, json));
    for (const Json& shared : suite.at("pair")) {
      const Json json = settings_of(shared, device);
      const std::string name = json.at("name"), task = json.at("task");
      const std::string file = json.value("file", name) + ending;
      const auto code = read_file_if_exists(folder / device / file);
      if (!code) continue;
      pairs_.push_back({name, json.at("class"), task, parse_verdict(json.at("verdict").get<std::string>()), json.value("rule", ""),
                        kernel_file(suite.at("task").at(task), json, backend, *code, file)});
    }
  } catch (const Json::exception& error) {
    throw Error(path + " is malformed: " + error.what());
  }
}

ProcessJudge& SelfTest::judge_of(const std::string& task) {
  JudgeSettings settings;
  settings.timing_seconds = timing_seconds;
  return judges_.try_emplace(task, tasks_.at(task), process_, compiler_, fixtures_, settings).first->second;
}

void SelfTest::compile_ahead(int threads) {
  std::map<std::string, std::vector<Candidate>> candidates;
  for (const Pair& pair : pairs_) {
    for (const bool planted : {true, false}) candidates[pair.task].push_back(pair.candidate(planted));
  }
  for (const auto& [task, list] : candidates) judge_of(task).compile_ahead(list, threads);
}

PairResult SelfTest::run(const Pair& pair) {
  PairResult result;
  result.planted = judge(pair, true);
  result.twin = judge(pair, false);
  result.caught = caught(pair, result.planted);
  result.honest_passed = result.twin.verdict == Verdict::kept;
  return result;
}

namespace {

std::string text_of(Verdict verdict, const std::string& rule) {
  return std::string(name_of(verdict)) + (rule.empty() ? "" : " (" + rule + ")");
}

}  // namespace

bool caught(const Pair& pair, const Judgement& planted) { return planted.verdict == pair.verdict && planted.rule == pair.rule; }
std::string verdict_text(const Judgement& judgement) { return text_of(judgement.verdict, judgement.rule); }
std::string expected_text(const Pair& pair) { return text_of(pair.verdict, pair.rule); }

Json to_json(const Pair& pair, const PairResult& result) {
  Json json = {{"pair", pair.name},
               {"class", pair.class_name},
               {"expected", expected_text(pair)},
               {"got", verdict_text(result.planted)},
               {"twin", verdict_text(result.twin)}};
  if (!result.caught) json["evidence"] = result.planted.evidence;
  if (!result.honest_passed) json["twin_evidence"] = result.twin.evidence;
  return json;
}

}  // namespace ak::judge
