// Lazy starts: `report` needs no worker, `bench` no model graph.
#include "cli/session.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "cli/toolchain.h"
#include "cli/worker_fixtures.h"
#include "core/error.h"
#include "core/file.h"
#include "judge/triton_canary.h"
#include "kernel/launch_plan.h"
#include "store/state_file.h"

namespace ak::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto judge_timeout = 60s;
constexpr double state_every_s = 60;
constexpr size_t most_compiling_workers = 8;  // each has PyTorch, a context and inputs of its own

std::atomic<bool> stop_flag = false;  // set by a signal handler, which can reach nothing else

extern "C" void on_stop_signal(int) {
  if (stop_flag.exchange(true)) ::_exit(static_cast<int>(Exit::interrupted));
}

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

const std::atomic<bool>& stop_requested() { return stop_flag; }
void request_stop() { stop_flag = true; }

void listen_for_stop() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

Session::Session(store::Run run, const Clock& clock, report::Progress& progress)
    : run_(std::move(run)), clock_(clock), progress_(progress) {}
Session::~Session() = default;

const graph::Families& Session::families() {
  if (!families_) families_ = graph::load_families(home_directory() / "kernels");
  return *families_;
}

bridge::Worker& Session::worker() {
  if (worker_) return *worker_;
  progress_.phase(run_.request().is_suite() ? "start PyTorch" : "start PyTorch and load the model");
  worker_ = std::make_unique<bridge::ProcessWorker>(bridge::WorkerOptions{.log = file("worker.log")});
  worker_->set_progress([this](const std::string& text, int64_t done, int64_t total) { progress_.phase_progress(text, done, total); });
  const store::RunRequest& request = run_.request();
  if (request.is_suite()) return *worker_;
  const bridge::LoadedModel loaded = worker_->load(
      {.model = request.model, .input_shape = request.input_shape, .dtype = request.dtype, .device = torch_device(), .seed = request.seed});
  for (const std::string& warning : loaded.warnings) progress_.note(warning);
  return *worker_;
}

void Session::compile_baselines(const std::vector<kernel::Task>& tasks, const std::vector<std::string>& kinds) {
  if (tasks.empty()) return;
  const size_t count = std::min({tasks.size(), most_compiling_workers, std::max<size_t>(1, std::thread::hardware_concurrency() / 2)});
  const auto work = [&](size_t first) {
    std::vector<kernel::Task> own;
    for (size_t i = first; i < tasks.size(); i += count) own.push_back(tasks[i]);
    bridge::ProcessWorker(bridge::WorkerOptions{.log = file(fmt::format("compile-{}.log", first))})
        .compile_ahead(own, kinds, run_.request().seed, torch_device());
  };
  std::vector<std::future<void>> working;
  for (size_t first = 0; first < count; ++first) working.push_back(std::async(std::launch::async, work, first));
  for (std::future<void>& each : working) {
    try {
      each.get();
    } catch (const Error& error) {
      progress_.note(fmt::format("compiling ahead: {}", error.what()));
    }
  }
}

compile::Compiler& Session::compiler(kernel::Backend backend) {
  auto& compiler = compilers_[backend];
  if (!compiler) {
    compiler = make_compiler(backend);
    run_.record_event({{"type", "isolation"}, {"compiler", compiler->version()}, {"compiles", compiler->sandbox()}});
  }
  return *compiler;
}

judge::JudgeProcess& Session::judge_process() {
  if (judge_process_) return *judge_process_;
  const std::string& device = run_.request().device;
  judge_process_ =
      std::make_unique<judge::JudgeProcess>(judge::judge_beside_program(), judge_opening(device, compiler(kernel::parse_backend(device))));
  run_.record_event({{"type", "isolation"}, {"candidates", judge_process_->opened().at("sandbox")}});
  return *judge_process_;
}

void Session::prove_triton() {
  if (triton_proved_) return;
  judge::prove_triton(judge_process(), compiler(kernel::Backend::triton), home_directory() / "kernels" / "include" / "judge");
  triton_proved_ = true;
}

judge::Judge& Session::judge_of(const std::string& task) {
  if (judge_ && judge_task_ == task) return *judge_;
  judge_.reset();
  if (is_null_device()) {
    judge_ = std::make_unique<judge::NullJudge>();
  } else {
    if (run_.state(task).backend == kernel::Backend::triton) prove_triton();
    if (!fixtures_) fixtures_ = std::make_unique<WorkerFixtures>([this]() -> bridge::Worker& { return worker(); }, torch_device());
    judge_ = std::make_unique<judge::ProcessJudge>(run_.task(task), judge_process(), compiler(run_.state(task).backend), *fixtures_);
  }
  judge_task_ = task;
  return *judge_;
}

const search::Settings& Session::settings() {
  if (settings_) return *settings_;
  settings_.emplace();
  settings_->seed = static_cast<uint64_t>(run_.request().seed);
  if (is_null_device()) {
    settings_->device_facts = {{"workers", 2}, {"l2_bytes", 1 << 20}, {"l3_bytes", 1 << 25}};
  } else {
    settings_->device_facts = judge_process().facts();
    settings_->ceilings = measure_ceilings(judge_process());
  }
  return *settings_;
}

void Session::keep_state(const std::filesystem::path& file) {
  state_file_ = file;
  state_saved_ns_ = clock_.now_ns();
}

void Session::save_state() {
  if (state_file_.empty()) return;
  std::vector<std::filesystem::path> modules;
  for (const std::string& id : run_.task_ids()) {
    if (is_null_device() || !run_.state(id).incumbent) continue;
    const kernel::KernelFile file = kernel::KernelFile::read(run_.best_path(id));
    const kernel::Task task = run_.task(id);
    const compile::Result compiled =
        compiler(file.backend()).compile(compile::source_of(file, task, file.defaults(), task.workload.front(), judge_process().facts()));
    if (compiled.compiled) modules.push_back(compiled.module);
  }
  for (const std::string& left_out : store::write_state(run_.directory(), state_file_, modules))
    progress_.note(fmt::format("{} are not in {}: it would be too large", left_out, state_file_.string()));
  state_saved_ns_ = clock_.now_ns();
}

void Session::save_state_when_due() {
  if (!state_file_.empty() && clock_.seconds_since(state_saved_ns_) >= state_every_s) save_state();
}

std::string Session::find_task(const std::string& name) const {
  std::vector<std::string> found;
  for (const std::string& id : run_.task_ids()) {
    if (id == name) return id;
    if (id.rfind(name, 0) == 0) found.push_back(id);
  }
  if (found.size() == 1) return found.front();
  run_.state(found.empty() ? name : "");  // says what there is
  throw Error(fmt::format("'{}' is the beginning of {} tasks: {}", name, found.size(), fmt::join(found, ", ")), "give more of the name");
}

}  // namespace ak::cli
