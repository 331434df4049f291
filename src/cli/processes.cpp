// What takes seconds to start or to measure is had once.
#include "cli/processes.h"

#include <nlohmann/json.hpp>

#include "cli/toolchain.h"
#include "core/error.h"
#include "core/file.h"
#include "judge/triton_canary.h"
#include "kernel/launch_plan.h"

namespace ak::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto judge_timeout = 60s;

search::Ceilings measure_ceilings(judge::JudgeProcess& process) {
  const auto answer = process.call("ceilings", Json::object(), judge_timeout);
  if (!answer)
    throw Error("the judge did not measure the machine's ceilings: " + process.last_end(), "`autokernel doctor` says what is here");
  search::Ceilings ceilings{.bytes_per_second = answer->at("copy_bytes_per_s"),
                            .read_bytes_per_second = answer->at("read_bytes_per_s"),
                            .flops_per_second = {},
                            .launch_us = answer->at("launch_us")};
  for (const auto& [dtype, rate] : answer->at("flops_per_s").items()) ceilings.flops_per_second[parse_dtype(dtype)] = rate;
  return ceilings;
}

}  // namespace

std::string Processes::text_of(const bridge::LoadRequest& model) {
  return Json::array({model.model, model.input_shape, model.dtype, model.device, model.seed}).dump();
}

bridge::ProcessWorker& Processes::worker(const std::filesystem::path& log) {
  if (!worker_) worker_ = std::make_unique<bridge::ProcessWorker>(bridge::WorkerOptions{.log = log});
  return *worker_;
}

std::vector<std::string> Processes::load(const bridge::LoadRequest& model) {
  AK_CHECK(worker_, "the worker runs before a model is loaded");
  if (is_loaded(model)) return {};
  loaded_.reset();
  std::vector<std::string> warnings = worker_->load(model).warnings;
  loaded_ = text_of(model);
  return warnings;
}

const Processes::Patterns& Processes::patterns(const std::string& dtype) {
  AK_CHECK(worker_, "the worker runs before patterns are traced");
  const auto known = patterns_.find(dtype);
  if (known != patterns_.end()) return known->second;
  const TemporaryDirectory directory("autokernel-patterns-");
  const std::filesystem::path file = directory.path() / "patterns.json";
  Patterns traced{.text = {}, .errors = worker_->patterns(home_directory() / "kernels", {dtype}, file).errors};
  traced.text = read_file(file);
  return patterns_.emplace(dtype, std::move(traced)).first->second;
}

compile::Compiler& Processes::compiler(kernel::Backend backend) {
  auto& compiler = compilers_[backend];
  if (!compiler) compiler = make_compiler(backend);
  return *compiler;
}

judge::JudgeProcess& Processes::judge() {
  if (!judge_)
    judge_ = std::make_unique<judge::JudgeProcess>(judge::judge_beside_program(),
                                                   judge_opening(device_, compiler(kernel::parse_backend(device_))));
  return *judge_;
}

const search::Ceilings& Processes::ceilings() {
  if (!ceilings_) ceilings_ = measure_ceilings(judge());
  return *ceilings_;
}

void Processes::prove_triton() {
  if (triton_proved_) return;
  judge::prove_triton(judge(), compiler(kernel::Backend::triton), home_directory() / "kernels" / "include" / "judge");
  triton_proved_ = true;
}

}  // namespace ak::cli
