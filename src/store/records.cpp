// One function each way and record.
#include "store/records.h"

#include <nlohmann/json.hpp>

namespace ak::store {

Json to_json(const RunRequest& request) {
  return {{"model", request.model},   {"input_shape", request.input_shape}, {"dtype", request.dtype},
          {"device", request.device}, {"backend", request.backend},         {"seed", request.seed}};
}

RunRequest request_from_json(const Json& json) {
  RunRequest request;
  request.model = json.at("model");
  request.input_shape = json.at("input_shape").get<std::vector<int64_t>>();
  request.dtype = json.at("dtype");
  request.device = json.at("device");
  request.backend = json.at("backend");
  request.seed = json.at("seed");
  return request;
}

Json to_json(const Trial& trial) {
  return {{"type", "trial"},
          {"experiment", trial.experiment},
          {"task", trial.task},
          {"proposer", trial.proposer},
          {"point", trial.point},
          {"note", trial.note},
          {"verdict", trial.verdict},
          {"rule", trial.rule},
          {"evidence", Json::parse(trial.evidence, nullptr, false)},
          {"median_us", trial.median_us},
          {"speedup_vs_best", trial.speedup_vs_best},
          {"speedup_vs_eager", trial.speedup_vs_eager},
          {"kernel_hash", trial.kernel_hash},
          {"compile_s", trial.compile_seconds},
          {"judge_s", trial.judge_seconds},
          {"tflops", trial.tflops},
          {"percent_of_peak", trial.percent_of_peak},
          {"peak_memory_mb", trial.peak_memory_mb}};
}

Trial trial_from_json(const Json& json) {
  Trial trial;
  trial.experiment = json.at("experiment");
  trial.task = json.at("task");
  trial.proposer = json.at("proposer");
  trial.point = json.at("point").get<kernel::Point>();
  trial.note = json.at("note");
  trial.verdict = json.at("verdict");
  trial.rule = json.at("rule");
  trial.evidence = json.at("evidence").dump();
  trial.median_us = json.at("median_us");
  trial.speedup_vs_best = json.at("speedup_vs_best");
  trial.speedup_vs_eager = json.at("speedup_vs_eager");
  trial.kernel_hash = json.at("kernel_hash");
  trial.compile_seconds = json.at("compile_s");
  trial.judge_seconds = json.at("judge_s");
  trial.tflops = json.at("tflops");
  trial.percent_of_peak = json.at("percent_of_peak");
  trial.peak_memory_mb = json.at("peak_memory_mb");
  return trial;
}

Json to_json(const std::string& task, const Baseline& baseline) {
  return {{"type", "baseline"},           {"task", task},
          {"kinds", baseline.kinds_us},   {"best_kind", baseline.best_kind},
          {"best_us", baseline.best_us},  {"eager_us", baseline.eager_us},
          {"floor_us", baseline.floor_us}};
}

Baseline baseline_from_json(const Json& json) {
  return {json.at("kinds").get<std::map<std::string, double>>(), json.at("best_kind"), json.at("best_us"), json.at("eager_us"),
          json.at("floor_us")};
}

Json to_json(const std::string& task, const Confirmation& confirmation) {
  return {{"type", "confirmation"},
          {"task", task},
          {"experiment", confirmation.experiment},
          {"kind", confirmation.kind},
          {"kernel_us", confirmation.kernel_us},
          {"baseline_us", confirmation.baseline_us},
          {"floor_us", confirmation.floor_us},
          {"speedup", confirmation.speedup},
          {"ci_low", confirmation.ci_low},
          {"ci_high", confirmation.ci_high}};
}

Confirmation confirmation_from_json(const Json& json) {
  return {json.at("experiment"), json.at("kind"),    json.at("kernel_us"), json.at("baseline_us"),
          json.at("floor_us"),   json.at("speedup"), json.at("ci_low"),    json.at("ci_high")};
}

}  // namespace ak::store
