// Judging one edited file, in the engine that owns the run, whoever asked.
#include "cli/bench.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/steps.h"
#include "core/error.h"
#include "core/file.h"
#include "kernel/kernel_file.h"
#include "report/text.h"
#include "search/task_search.h"

namespace ak::cli {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

Json describe(const search::Step& step, const store::TaskState& state) {
  const judge::Judgement& judgement = step.judgement;
  Json json = {{"task", state.id},
               {"family", state.family},
               {"verdict", judge::name_of(judgement.verdict)},
               {"note", step.proposal.note},
               {"point", step.proposal.point},
               {"evidence", judgement.evidence},
               {"compile_s", judgement.compile_seconds},
               {"judge_s", judgement.judge_seconds}};
  if (!judgement.rule.empty()) json["rule"] = judgement.rule;
  if (step.trial) {
    json.update({{"experiment", step.trial->experiment},
                 {"median_us", step.trial->median_us},
                 {"tflops", step.trial->tflops},
                 {"percent_of_peak", step.trial->percent_of_peak},
                 {"speedup_vs_best_baseline", step.trial->speedup_vs_best},
                 {"speedup_vs_eager", step.trial->speedup_vs_eager}});
  }
  if (state.incumbent)
    json["incumbent"] = {
        {"experiment", state.incumbent->experiment}, {"median_us", state.incumbent->median_us}, {"note", state.incumbent->note}};
  if (state.baseline)
    json["baseline"] = {{"kind", state.baseline->best_kind}, {"us", state.baseline->best_us}, {"floor_us", state.baseline->floor_us}};
  return json;
}

/// How an edit differs from the incumbent: lines that only one of the two has, and tunables with another default.
Json changes(const std::string& before, const std::string& after) {
  std::map<std::string, int64_t> balance;
  const auto count = [&](const std::string& text, int64_t weight) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) balance[line] += weight;
  };
  count(before, -1);
  count(after, 1);
  int64_t added = 0, removed = 0;
  for (const auto& [line, net] : balance) (net > 0 ? added : removed) += std::abs(net);
  Json tunables = Json::object();
  const kernel::Point old_point = kernel::KernelFile::parse(before, "the incumbent").defaults(),
                      new_point = kernel::KernelFile::parse(after, "kernel").defaults();
  for (const auto& [name, value] : new_point) {
    const auto old_value = old_point.find(name);
    if (old_value == old_point.end()) {
      tunables[name] = {nullptr, value};
    } else if (old_value->second != value) {
      tunables[name] = {old_value->second, value};
    }
  }
  return {{"lines_added", added}, {"lines_removed", removed}, {"tunables", tunables}};
}

std::string changes_text(const Json& changed) {
  std::string text = fmt::format("  changed: {} lines added, {} removed", changed.at("lines_added").get<int64_t>(),
                                 changed.at("lines_removed").get<int64_t>());
  for (const auto& [name, values] : changed.at("tunables").items())
    text += fmt::format(", {} {} → {}", name, values[0].is_null() ? "new" : values[0].dump(), values[1].dump());
  return text + "\n";
}

std::string worst_text(const Json& evidence) {
  std::string text;
  if (const std::string strangers = report::strangers_text(evidence); !strangers.empty()) text += "  " + strangers + "\n";
  if (evidence.contains("message")) text += fmt::format("  {}\n", evidence["message"].get<std::string>());
  if (evidence.contains("stage"))
    text += fmt::format("  stage {}{}\n", evidence["stage"].dump(), evidence.contains("case") ? ", case " + evidence["case"].dump() : "");
  if (evidence.contains("worst")) {
    const Json& worst = evidence["worst"];
    text += fmt::format("  worst element of {} at {}: got {}, expected {}, error {}, allowed {}\n",
                        evidence.value("tensor", std::string("the output")), worst.value("index", Json()).dump(),
                        worst.value("got", Json()).dump(), worst.value("expected", Json()).dump(), worst.value("error", Json()).dump(),
                        worst.value("budget", Json()).dump());
  }
  if (evidence.contains("log") && evidence["log"].is_string()) text += evidence["log"].get<std::string>() + "\n";
  return text;
}

}  // namespace

Json bench_kernel(Session& session, const BenchRequest& request) {
  const std::string task = session.find_task(request.task);
  measure_baselines(session, task);
  const std::string incumbent = read_file(session.run().best_path(task));
  search::TaskSearch search(session.run(), session.judge_of(task), task, session.settings());
  const search::BenchResult bench = search.bench_edited(request.kernel_text, request.note.empty() ? "edited by hand" : request.note,
                                                        static_cast<int>(request.tune), request.proposer);
  Json result = describe(bench.result(), session.run().state(task));
  if (request.tune > 0) result["tried"] = bench.steps.size();
  result["kept"] = bench.kept();
  result["changed"] = changes(incumbent, bench.result().proposal.kernel_text.value_or(request.kernel_text));
  if (bench.result().trial) session.run().revert(task);  // to the incumbent: what was kept, or what was there before
  return result;
}

std::string bench_text(const Json& result) {
  std::string text = fmt::format("{}  {}", result.at("task").get<std::string>(), result.at("verdict").get<std::string>());
  if (result.contains("rule")) text += fmt::format(" ({})", result["rule"].get<std::string>());
  if (result.contains("experiment")) text += fmt::format("  experiment {}", result["experiment"].get<int64_t>());
  text += "\n";
  const double us = result.value("median_us", 0.0);
  if (us > 0) text += fmt::format("  {:.2f} us", us);
  const Json& evidence = result.at("evidence");
  if (us > 0 && evidence.contains("speedup")) {
    text += fmt::format(", {:.3f}x the incumbent ({:.3f} to {:.3f})", evidence.value("speedup", 0.0), evidence.value("ci_low", 0.0),
                        evidence.value("ci_high", 0.0));
  }
  if (us > 0 && result.contains("baseline")) {
    const Json& baseline = result["baseline"];
    text += fmt::format("\n  {:.2f}x of {} ({:.2f} us), {:.1f} % of the roofline, {:.4f} TFLOP/s", ratio(baseline.value("us", 0.0), us),
                        baseline.value("kind", std::string()), baseline.value("us", 0.0), result.value("percent_of_peak", 0.0),
                        result.value("tflops", 0.0));
  }
  if (us > 0) text += "\n";
  text += fmt::format("  compiled in {:.2f} s, judged in {:.2f} s\n", result.value("compile_s", 0.0), result.value("judge_s", 0.0));
  text += worst_text(evidence) + changes_text(result.at("changed"));
  if (result.contains("experiment")) {
    text += result.at("kept").get<bool>()
                ? "  kept: it is the incumbent now\n"
                : fmt::format("  not kept: tasks/{}/kernel.* is the incumbent again\n", result.at("task").get<std::string>());
  } else {
    text += "  the environment failed; the edit is where it was, and nothing was recorded\n";
  }
  return text;
}

Json answer_client(Session& session, const Json& request) {
  const std::string verb = request.at("verb");
  if (verb == "bench") {
    const Json& arguments = request.at("arguments");
    return bench_kernel(session, {.task = arguments.at("task"),
                                  .note = arguments.value("note", std::string()),
                                  .kernel_text = arguments.at("kernel_text"),
                                  .tune = arguments.value("tune", int64_t{0})});
  }
  if (verb == "status") return {{"run_dir", session.run().directory().string()}, {"trials", session.run().experiments()}};
  if (verb == "stop") {
    request_stop();
    return {{"stopping", true}};
  }
  throw Error("the engine does not know '" + verb + "'", "it answers bench, status and stop");
}

}  // namespace ak::cli
