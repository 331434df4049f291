// Each step fills the judgement and says whether to go on.
#include "judge/process_judge.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/error.h"
#include "kernel/triton.h"

namespace ak::judge {
namespace {

constexpr std::chrono::seconds check_timeout(600), time_timeout(600);  // the judge's own limits are far below

constexpr int numerical_stage = 3;

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void set_failure(Judgement& judgement, const Json& reply) {
  judgement.verdict = parse_verdict(reply.at("verdict").get<std::string>());
  judgement.rule = reply.value("rule", "");
  judgement.evidence.update(reply.value("evidence", Json::object()));
}

void note_stage(Judgement& judgement, int stage) {
  Json& stages = judgement.evidence["stages"];
  if (stages.is_null()) stages = Json::array();
  if (std::ranges::find(stages, Json(stage)) == stages.end()) stages.push_back(stage);
}

size_t spare_threads() { return std::max(2u, std::thread::hardware_concurrency()) - 1; }

void set_case(Judgement& judgement, const StageCase& stage, const Json& test_case) {
  judgement.evidence["stage"] = stage.stage;
  judgement.evidence["case"] = test_case;
}

}  // namespace

ProcessJudge::ProcessJudge(kernel::Task task, JudgeProcess& process, const compile::Compiler& compiler, FixtureSource& fixtures,
                           JudgeSettings settings)
    : task_(std::move(task)),
      process_(process),
      compiler_(compiler),
      settings_(settings),
      fixtures_(fixtures, task_, settings.fixture_bytes) {}

compile::Source ProcessJudge::source_of(const Candidate& candidate, const kernel::Binding& binding) const {
  return compile::source_of(candidate.file, task_, candidate.point, binding, process_.facts());
}

void ProcessJudge::compile_ahead(std::span<const Candidate> candidates, int threads) const {
  std::vector<compile::Source> sources;
  for (const Candidate& candidate : candidates) sources.push_back(source_of(candidate, timed_binding()));
  compiler_.compile(sources, threads, settings_.compile);
}

void ProcessJudge::expect(std::span<const Candidate> candidates) {
  // What came out otherwise than expected waits in the compiler's cache.
  std::erase_if(ahead_, [](const auto& each) { return each.second.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  for (const Candidate& candidate : candidates) {
    if (candidate.file.backend() == kernel::Backend::cpu || ahead_.size() >= spare_threads()) return;
    std::optional<compile::Source> source = fitting_source(candidate, timed_binding());
    if (!source) continue;
    std::string key = compiler_.key(*source);
    if (ahead_.contains(key)) continue;
    ahead_.emplace(std::move(key), std::async(std::launch::async, [this, source = *std::move(source)] {
                     return compiler_.compile(source, settings_.compile);
                   }));
  }
}

std::optional<compile::Source> ProcessJudge::fitting_source(const Candidate& candidate, const kernel::Binding& binding) const try {
  return source_of(candidate, binding);
} catch (const Error&) {
  return std::nullopt;
}

compile::Result ProcessJudge::compiled(const compile::Source& source) {
  const auto waiting = ahead_.find(compiler_.key(source));
  if (waiting == ahead_.end()) return compiler_.compile(source, settings_.compile);
  std::future<compile::Result> result = std::move(waiting->second);
  ahead_.erase(waiting);
  return result.get();
}

std::optional<std::string> ProcessJudge::compile(const Candidate& candidate, const kernel::Binding& binding, Judgement& judgement) {
  const double start = seconds_now();
  const compile::Source source = source_of(candidate, binding);
  if (const auto known = modules_.find(source.specification); known != modules_.end()) return known->second;
  const compile::Result result = compiled(source);
  judgement.compile_seconds += seconds_now() - start;
  if (result.compiled) return modules_[source.specification] = result.module.string();
  judgement.verdict = Verdict::does_not_compile;
  judgement.evidence["log"] = result.log;
  return std::nullopt;
}

void ProcessJudge::compile_later_stages(const Candidate& candidate, Judgement& judgement) const {
  if (candidate.file.backend() != kernel::Backend::triton) return;
  const double start = seconds_now();
  std::map<std::string, compile::Source> sources;
  for (const StageCase& stage : later_cases(task_)) {
    const auto source = fitting_source(candidate, kernel::binding_from_json(stage.test_case));
    if (source) sources.emplace(source->specification, *source);
  }
  std::vector<compile::Source> list;
  for (auto& [specification, source] : sources) list.push_back(std::move(source));
  compiler_.compile(list, static_cast<int>(spare_threads()), settings_.compile);
  judgement.compile_seconds += seconds_now() - start;
}

std::optional<kernel::ConcretePlan> ProcessJudge::plan(const Candidate& candidate, const kernel::Binding& binding) const {
  const Bindings facts = process_.facts();
  if (!candidate.file.allows(kernel::plan_names(task_, binding, candidate.point, facts))) return std::nullopt;
  return kernel::make_concrete(candidate.file, task_, binding, candidate.point, facts);
}

kernel::ConcretePlan ProcessJudge::fitting_plan(const Candidate& candidate, const kernel::Binding& binding) const {
  auto fitting = plan(candidate, binding);
  if (!fitting)
    throw Error("a kernel that has passed no longer fits its task: a `require` of " + candidate.file.origin() + " does not hold");
  return *std::move(fitting);
}

std::optional<Json> ProcessJudge::ready(const Candidate& candidate, const kernel::ConcretePlan& plan, const kernel::Binding& binding,
                                        Judgement& judgement) {
  const auto module = compile(candidate, binding, judgement);
  if (!module) return std::nullopt;
  try {
    Json json = kernel::to_json(candidate.file.backend() == kernel::Backend::triton ? kernel::with_triton_module(plan, *module) : plan);
    json["module"] = *module;
    return json;
  } catch (const Error& error) {
    judgement.verdict = Verdict::does_not_compile;
    judgement.evidence["log"] = error.what();
    return std::nullopt;
  }
}

Json ProcessJudge::request(const CaseFixture& fixture) const {
  return {{"task", kernel::to_json(task_)},
          {"case", fixture.test_case},
          {"inputs", fixture.files.inputs.string()},
          {"expected", fixture.files.expected.string()}};
}

std::optional<Json> ProcessJudge::ask(const std::string& verb, const Json& arguments, Judgement& judgement) {
  auto reply = process_.call(verb, arguments, verb == "time" ? time_timeout : check_timeout);
  if (!reply) {
    judgement.verdict = Verdict::failed_environment;
    judgement.evidence["message"] = "the judge died: " + process_.last_end();
  }
  return reply;
}

bool ProcessJudge::check(const Candidate& candidate, const StageCase& stage, bool fresh, Judgement& judgement) {
  const CaseFixture& fixture = fixtures_.get(stage.test_case, fresh);
  std::optional<kernel::ConcretePlan> plan;
  std::optional<Json> json;
  try {
    plan = this->plan(candidate, fixture.binding);
    if (!plan && stage.must_hold) throw Error(candidate.file.origin() + ": a `require` does not hold for this point and shape");
    if (plan) json = ready(candidate, *plan, fixture.binding, judgement);
  } catch (const Error& error) {
    judgement.verdict = Verdict::does_not_fit;
    judgement.evidence["message"] = error.what();
  }
  if (!plan && judgement.verdict != Verdict::does_not_fit) {
    judgement.evidence["skipped_cases"] = judgement.evidence.value("skipped_cases", 0) + 1;
    return true;
  }
  if (!json) {
    set_case(judgement, stage, fixture.test_case);
    return false;
  }
  Json arguments = request(fixture);
  arguments["candidate"] = std::move(*json);
  arguments["runs"] = stage.runs;
  const auto reply = ask("check", arguments, judgement);
  if (!reply) return false;
  if (reply->at("verdict") == "pass") {
    note_stage(judgement, stage.stage);
    judgement.peak_memory_mb = std::max(judgement.peak_memory_mb, reply->at("evidence").value("arena_bytes", 0.0) * 1e-6);
    return true;
  }
  set_failure(judgement, *reply);
  set_case(judgement, stage, fixture.test_case);
  return false;
}

bool ProcessJudge::later_stages(const Candidate& candidate, Judgement& judgement) {
  compile_later_stages(candidate, judgement);
  for (const StageCase& stage : later_cases(task_)) {
    if (!check(candidate, stage, false, judgement)) return false;
  }
  return check(candidate, smoke_case(task_), true, judgement);
}

bool ProcessJudge::timing(const Candidate& candidate, const Candidate* incumbent, Judgement& judgement) {
  const StageCase timed = smoke_case(task_);
  const CaseFixture& fixture = fixtures_.get(timed.test_case);
  Json arguments = request(fixture);
  arguments["candidate"] = *ready(candidate, fitting_plan(candidate, fixture.binding), fixture.binding, judgement);
  arguments["incumbent"] = Json();
  if (incumbent != nullptr) {
    Judgement its_own;
    const auto own_modules = std::exchange(modules_, {});
    auto json = ready(*incumbent, fitting_plan(*incumbent, fixture.binding), fixture.binding, its_own);
    modules_ = own_modules;
    if (!json) throw Error("the incumbent no longer compiles: " + its_own.evidence.dump());
    arguments["incumbent"] = std::move(*json);
  }
  arguments["minimum_gain"] = settings_.minimum_gain;
  arguments["maximum_seconds"] = settings_.timing_seconds;
  const auto reply = ask("time", arguments, judgement);
  if (!reply) return false;
  set_failure(judgement, *reply);
  judgement.median_us = reply->value("median_us", 0.0);
  if (judgement.verdict != Verdict::kept && judgement.verdict != Verdict::slower) set_case(judgement, timed, fixture.test_case);
  return judgement.verdict == Verdict::kept;
}

/// Whether the smoke case's module can be made: before its data are, which takes longer.
bool ProcessJudge::compiles(const Candidate& candidate, Judgement& judgement) {
  try {
    return compile(candidate, timed_binding(), judgement).has_value();
  } catch (const Error& error) {
    judgement.verdict = Verdict::does_not_fit;
    judgement.evidence["message"] = error.what();
    return false;
  }
}

bool ProcessJudge::stands(const Candidate& candidate, Judgement& judgement) {
  modules_.clear();
  if (!compiles(candidate, judgement)) return false;
  if (plan(candidate, timed_binding())) return true;
  judgement.verdict = Verdict::does_not_fit;
  judgement.evidence["message"] = candidate.file.origin() + ": a `require` does not hold here";
  return false;
}

void ProcessJudge::run(const Candidate& candidate, const Candidate* incumbent, Judgement& judgement) {
  if (Judgement its_own; incumbent != nullptr && !stands(*incumbent, its_own)) {
    judgement.evidence["incumbent"] = {{"verdict", name_of(its_own.verdict)}, {"evidence", its_own.evidence}};
    incumbent = nullptr;
  }
  modules_.clear();
  if (!compiles(candidate, judgement)) return;
  bool going = check(candidate, smoke_case(task_), false, judgement);
  if (incumbent != nullptr) {
    going = going && timing(candidate, incumbent, judgement) && later_stages(candidate, judgement);
  } else {
    going = going && later_stages(candidate, judgement) && timing(candidate, nullptr, judgement);
  }
  if (going) judgement.verdict = Verdict::kept;
  for (const auto& [specification, module] : modules_)
    process_.call("release", {{"module", module}}, check_timeout);  // the next candidate meets a host of its own
}

Judgement ProcessJudge::judge(const Candidate& candidate, const Candidate* incumbent) {
  const double start = seconds_now();
  Judgement judgement;
  process_.opened();
  try {
    run(candidate, incumbent, judgement);
  } catch (const Error& error) {
    judgement.verdict = Verdict::failed_environment;
    judgement.evidence["message"] = error.what();
  }
  judgement.judge_seconds = seconds_now() - start - judgement.compile_seconds;
  return judgement;
}

Judgement ProcessJudge::time_again(const Candidate& candidate) {
  Judgement judgement;
  process_.opened();
  if (!stands(candidate, judgement)) return judgement;
  timing(candidate, nullptr, judgement);
  if (judgement.verdict == Verdict::failed_environment)
    throw Error("a kernel that has passed cannot be timed: " + judgement.evidence.dump());
  return judgement;
}

PassingNullCandidates ProcessJudge::passing_null_candidates() {
  const std::vector<std::string> timed = null_candidates_of(smoke_case(task_).test_case);
  std::vector<std::string> passing = timed;
  for (const StageCase& stage : later_cases(task_)) {
    if (passing.empty()) break;
    if (stage.stage != numerical_stage) continue;
    const std::vector<std::string> here = null_candidates_of(stage.test_case);
    std::erase_if(passing, [&](const std::string& name) { return std::ranges::find(here, name) == here.end(); });
  }
  return {timed, passing};
}

std::vector<std::string> ProcessJudge::null_candidates_of(const Json& test_case) {
  Json other_case = test_case;
  other_case["other"] = true;  // a case of its own, with a seed of its own
  const CaseFixture other = fixtures_.get(other_case);
  const CaseFixture& fixture = fixtures_.get(test_case);
  Json arguments = request(fixture);
  arguments["other"] = {{"inputs", other.files.inputs.string()}, {"expected", other.files.expected.string()}};
  const auto reply = process_.call("null_candidates", arguments, check_timeout);
  if (!reply) throw Error("the judge died: " + process_.last_end());
  return reply->at("passing").get<std::vector<std::string>>();
}

}  // namespace ak::judge
