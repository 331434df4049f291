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

constexpr double state_every_s = 60;
constexpr size_t most_compiling_workers = 8;  // each has PyTorch, a context and inputs of its own

std::atomic<bool> stop_flag = false;  // set by a signal handler, which can reach nothing else

extern "C" void on_stop_signal(int) {
  if (stop_flag.exchange(true)) ::_exit(static_cast<int>(Exit::interrupted));
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

Session::Session(store::Run run, const Clock& clock, report::Progress& progress, std::shared_ptr<Processes> processes)
    : run_(std::move(run)),
      clock_(clock),
      progress_(progress),
      processes_(processes ? std::move(processes) : std::make_shared<Processes>(torch_device())) {}
Session::~Session() = default;

const graph::Families& Session::families() {
  if (!families_) families_ = graph::load_families(home_directory() / "kernels");
  return *families_;
}

bridge::Worker& Session::worker() {
  if (!processes_->has_worker()) progress_.phase("start PyTorch");
  bridge::Worker& worker = processes_->worker(file("worker.log"));
  worker.set_progress([this](const std::string& text, int64_t done, int64_t total) { progress_.phase_progress(text, done, total); });
  return worker;
}

bridge::Worker& Session::model_worker() {
  const store::RunRequest& request = run_.request();
  const bridge::LoadRequest model{
      .model = request.model, .input_shape = request.input_shape, .dtype = request.dtype, .device = torch_device(), .seed = request.seed};
  bridge::Worker& ready = worker();
  if (processes_->is_loaded(model)) return ready;
  progress_.phase("load the model");
  for (const std::string& warning : processes_->load(model)) progress_.note(warning);
  return ready;
}

const std::string& Session::patterns() {
  const std::string& dtype = run_.request().dtype;
  if (!processes_->has_patterns(dtype)) {
    worker();
    progress_.phase("trace the families' spellings");
  }
  const Processes::Patterns& traced = processes_->patterns(dtype);
  for (const auto& error : traced.errors)
    progress_.note(fmt::format("{} is not matched as {}: {}", error.family, error.spelling, error.message));
  return traced.text;
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
  compile::Compiler& compiler = processes_->compiler(backend);
  if (compilers_told_.insert(backend).second)
    run_.record_event({{"type", "isolation"}, {"compiler", compiler.version()}, {"compiles", compiler.sandbox()}});
  return compiler;
}

judge::JudgeProcess& Session::judge_process() {
  compiler(kernel::parse_backend(run_.request().device));
  judge::JudgeProcess& process = processes_->judge();
  if (!judge_told_) run_.record_event({{"type", "isolation"}, {"candidates", process.opened().at("sandbox")}});
  judge_told_ = true;
  return process;
}

judge::Judge& Session::judge_of(const std::string& task) {
  if (judge_ && judge_task_ == task) return *judge_;
  judge_.reset();
  if (is_null_device()) {
    judge_ = std::make_unique<judge::NullJudge>();
  } else {
    if (run_.state(task).backend == kernel::Backend::triton) {
      compiler(kernel::Backend::triton);
      processes_->prove_triton();
    }
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
    settings_->ceilings = processes_->ceilings();
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
