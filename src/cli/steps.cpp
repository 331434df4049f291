// The main job, step by step.
#include "cli/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/engine_socket.h"
#include "core/architecture.h"
#include "core/error.h"
#include "core/file.h"
#include "device/cuda/facts.h"
#include "graph/graph.h"
#include "graph/match.h"
#include "graph/pattern.h"
#include "graph/region.h"
#include "judge/statistic.h"
#include "kernel/launch_plan.h"

namespace ak::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t profile_iterations = 10;
constexpr int64_t baseline_rounds = 15;
constexpr int confirmation_rounds = 2;        // kernel, baseline, kernel, baseline
constexpr int64_t confirmation_samples = 15;  // of the baseline in each
constexpr double confirmation_error = 0.05;   // that the interval does not hold the speed-up

/// Samples of the kinds that ran; a kind that failed is announced.
std::map<std::string, std::vector<double>> baseline_samples(Session& session, const kernel::Task& task,
                                                            const std::vector<std::string>& kinds, int64_t rounds) {
  bridge::BaselineRequest request{.task = task,
                                  .binding = task.workload.front(),
                                  .seed = session.run().request().seed,
                                  .kinds = kinds,
                                  .rounds = rounds,
                                  .flush_bytes = session.judge_process().opened().at("flush_bytes"),
                                  .device = session.torch_device()};
  std::map<std::string, std::vector<double>> samples;
  for (auto& [kind, times] : session.worker().baseline(request)) {
    if (times.samples_us.empty()) {
      session.progress().note(fmt::format("{}: no {} baseline: {}", task.id, kind, times.error));
    } else {
      samples[kind] = std::move(times.samples_us);
    }
  }
  return samples;
}

constexpr const char* autotuned = "compile_max_autotune";

/// Where arithmetic is the limit, max-autotune times products while it compiles: it takes a minute, and a device that others leave alone.
bool is_autotuning_long(Session& session, const kernel::Task& task) {
  return plan::facts_of(task, Json::object(), 1, session.settings().ceilings).prospect < 1;
}

/// At first. A minute for what is faster still is worth it only where ours is faster than these (complete_baseline).
std::vector<std::string> first_kinds(Session& session, const kernel::Task& task) {
  std::vector<std::string> kinds = {"eager", "library", "compile"};
  if (session.run().request().device == "cuda" && !is_autotuning_long(session, task)) kinds.emplace_back(autotuned);
  return kinds;
}

/// The time of a copy (or read) of the bytes that the task must move, on the judge's clock; where arithmetic takes longer, of that.
double floor_us(Session& session, const kernel::Task& task) {
  const auto [read, written] = kernel::traffic(task, task.workload.front());
  const auto answer = session.judge_process().call("floor", {{"read_bytes", read}, {"write_bytes", written}}, std::chrono::seconds(60));
  const search::Ceilings& ceilings = session.settings().ceilings;
  return answer ? std::max(answer->at("us").get<double>(), search::arithmetic_us(task, ceilings)) : search::roofline_us(task, ceilings);
}

/// The null device has no clock: a baseline that its made-up kernels sometimes beat.
store::Baseline made_up_baseline() { return {{{"eager", 200.0}, {"compile", 100.0}}, "compile", 100.0, 200.0, 40.0}; }

store::Baseline measure_baseline(Session& session, const kernel::Task& task) {
  if (session.is_null_device()) return made_up_baseline();
  store::Baseline baseline;
  for (auto& [kind, samples] : baseline_samples(session, task, first_kinds(session, task), baseline_rounds))
    baseline.add(kind, judge::median(std::move(samples)));
  if (baseline.kinds_us.empty()) throw Error("no baseline of " + task.id + " could be measured", "see worker.log in the run directory");
  baseline.eager_us = baseline.kinds_us.contains("eager") ? baseline.kinds_us.at("eager") : baseline.best_us;
  baseline.floor_us = floor_us(session, task);
  return baseline;
}

/// Whether the data that the judge will compare on tell a kernel from an answer that knows nothing.
void try_null_candidates(Session& session, const std::string& task) {
  const auto [timed, everywhere] = session.judge_of(task).passing_null_candidates();
  if (!everywhere.empty()) {
    session.progress().note(fmt::format("{}: its data are too weak: {} would pass as a kernel", task, fmt::join(everywhere, ", ")));
  } else if (!timed.empty()) {
    session.progress().note(fmt::format("{}: its timed data are weak: {} would pass on them", task, fmt::join(timed, ", ")));
  }
  session.run().record_event({{"type", "null_candidates"}, {"task", task}, {"passing", everywhere}, {"timed", timed}});
}

/// What the model would need there without the kernel: the same operations as torch.compile runs them. The best baseline may be another way
/// to write them.
double replaced_us(const store::Baseline& baseline) {
  const auto compiled = baseline.kinds_us.find("compile");
  return compiled != baseline.kinds_us.end() ? compiled->second : baseline.eager_us;
}

/// Of a winner that compiled before.
fs::path compiled_winner(Session& session, const kernel::Task& task, const judge::Candidate& winner, const kernel::Binding& binding) {
  const auto source = compile::source_of(winner.file, task, winner.point, binding, session.judge_process().facts());
  const compile::Result compiled = session.compiler(winner.file.backend()).compile(source);
  if (!compiled.compiled)
    throw Error("the winner of " + task.id + " does not compile any more", "see the compiler's message: " + compiled.log);
  return compiled.module;
}

/// Triton's modules take tensors to begin at multiples of 16 bytes; this one serves the calls where they do not.
kernel::Binding unaligned(kernel::Binding binding) {
  binding.layout = "misaligned";
  return binding;
}

void write_bundle(Session& session, const kernel::Task& task, const judge::Candidate& winner, const store::Confirmation& confirmation) {
  const fs::path directory = session.file("bundles") / task.id;
  const std::string text = winner.file.with_defaults(winner.point);
  const kernel::Backend backend = winner.file.backend();
  const fs::path compiled = compiled_winner(session, task, winner, task.workload.front());
  fs::create_directories(directory);
  const std::string module = "kernel" + compiled.extension().string(), unaligned_module = "unaligned" + compiled.extension().string();
  fs::copy_file(compiled, directory / module, fs::copy_options::overwrite_existing);
  write_file(directory / kernel::file_name(backend), text);
  write_json(directory / "task.json", kernel::to_json(task));
  Json bundle = {{"schema", "autokernel.bundle/1"},
                 {"task", kernel::to_json(task)},
                 {"kernel_file", kernel::file_name(backend)},
                 {"module", module},
                 {"backend", kernel::name_of(backend)},
                 {"architecture", backend == kernel::Backend::cpu ? host_architecture() : device::cuda::architecture(0)},
                 {"point", winner.point},
                 {"speedup_vs_best", confirmation.speedup},
                 {"us", confirmation.kernel_us},
                 {"baseline_us", confirmation.baseline_us},
                 {"replaces_us", replaced_us(*session.run().state(task.id).baseline)}};
  if (backend == kernel::Backend::triton) {
    fs::copy_file(compiled_winner(session, task, winner, unaligned(task.workload.front())), directory / unaligned_module,
                  fs::copy_options::overwrite_existing);
    bundle["unaligned_module"] = unaligned_module;
  }
  write_json(directory / "bundle.json", bundle);
}

judge::Candidate incumbent_of(Session& session, const std::string& task) {
  const kernel::KernelFile file = kernel::KernelFile::read(session.run().best_path(task));
  return {file, file.defaults()};
}

/// The id that the tasks of one region have in common, whatever their backend.
std::string region_of(const std::string& task) { return task.substr(0, task.find('.')); }

/// Of another backend's task of the same region: what PyTorch needs is the same.
std::optional<store::Baseline> known_baseline(const store::Run& run, const std::string& task) {
  for (const std::string& other : run.task_ids()) {
    if (region_of(other) == region_of(task) && run.state(other).baseline) return run.state(other).baseline;
  }
  return std::nullopt;
}

void refuse_winner(Session& session, const std::string& id, const judge::Judgement& again) {
  session.progress().note(fmt::format("{}: the winner is refused when it is timed once more ({}{}{}); the baseline is kept", id,
                                      judge::name_of(again.verdict), again.rule.empty() ? "" : ": ", again.rule));
  session.run().record_refusal(id, {{"verdict", judge::name_of(again.verdict)}, {"rule", again.rule}, {"evidence", again.evidence}});
}

struct Winner {
  std::string task;
  store::Confirmation confirmation;
};

/// The fastest of a region's winners goes into the model.
void bundle_fastest(Session& session, const std::string& region, const std::vector<Winner>& winners) {
  const auto fastest = std::ranges::max_element(winners, {}, [](const Winner& each) { return each.confirmation.speedup; });
  write_bundle(session, session.run().task(fastest->task), incumbent_of(session, fastest->task), fastest->confirmation);
  for (const Winner& other : winners) {
    if (other.task == fastest->task) continue;
    fs::remove_all(session.file("bundles") / other.task);
    const double factor = other.confirmation.kernel_us / fastest->confirmation.kernel_us;
    session.progress().note(fmt::format("{}: {} is {:.3f}x as fast as {}", region, fastest->task, factor, other.task));
    session.run().record_event({{"type", "choice"}, {"region", region}, {"task", fastest->task}, {"over", other.task}, {"factor", factor}});
  }
}

/// Why a model has no task, for a person.
std::string nothing_to_do(size_t regions, double min_share_percent) {
  return fmt::format(
      "there is nothing to search in this model: {}. The families are in kernels/; docs/formats/task.md says how to add a spelling or a "
      "family",
      regions == 0
          ? "none of the families is found in it"
          : fmt::format("the {} regions that were found take less than {} % of its time each (--min-share)", regions, min_share_percent));
}

std::vector<graph::Region> matched_regions(Session& session) {
  session.progress().phase("match the families in the graph");
  const auto graphs = graph::parse_graphs(read_json(session.file("graph.json")));
  const auto patterns = graph::parse_patterns(read_json(session.file("patterns.json")), session.families());
  return graph::match(graphs, patterns, session.families());
}

/// A task for each kind of region, with shares of the model's time where that was profiled.
std::vector<graph::ProfiledTask> tasks_of(Session& session, const std::vector<graph::Region>& regions) {
  graph::Profile profile;
  if (session.has("profile.json")) profile = graph::parse_profile(read_json(session.file("profile.json")));
  return graph::extract_tasks(regions, session.families(), profile);
}

}  // namespace

std::vector<kernel::Backend> backends_of(const store::RunRequest& request) {
  if (request.backend == "both") return {kernel::Backend::cuda, kernel::Backend::triton};
  return {kernel::parse_backend(request.backend)};
}

std::string add_task(Session& session, kernel::Task task, kernel::Backend backend, double share_percent, const Json& profile) {
  const fs::path starter = session.families().at(task.family).folder / kernel::file_name(backend);
  if (!fs::exists(starter)) {
    session.progress().note(fmt::format("{} is left out: its family has no {}", task.id, starter.filename().string()));
    return "";
  }
  if (backends_of(session.run().request()).size() > 1) task.id += "." + std::string(kernel::name_of(backend));
  session.run().add_task(task, share_percent, profile, read_file(starter), backend);
  return task.id;
}

void require_tasks(Session& session) {
  if (session.run().task_ids().empty())
    throw Error("the run in " + session.run().directory().string() + " has no task",
                "run `autokernel extract` first: it makes them, or says why there is none");
}

void capture_model(Session& session) {
  if (!session.has("graph.json")) {
    bridge::Worker& worker = session.model_worker();
    session.progress().phase("capture the model's graph");
    const bridge::CaptureResult captured = worker.capture(session.file("graph.json"));
    session.progress().note(fmt::format("{} nodes in {} graph{}, captured by {}", captured.nodes, captured.graphs,
                                        captured.graphs == 1 ? "" : "s", captured.capture));
    if (!captured.reason.empty())
      session.progress().note("captured by dynamo with graph breaks, since torch.export cannot: " + captured.reason);
  }
  if (!session.has("patterns.json")) write_file(session.file("patterns.json"), session.patterns());
}

void measure_nodes(Session& session) {
  if (session.has("profile.json")) return;
  capture_model(session);
  bridge::Worker& worker = session.model_worker();
  session.progress().phase("measure the time of each node");
  worker.profile(profile_iterations, session.file("profile.json"));
}

void extract_tasks(Session& session, int64_t top, double min_share_percent, Profiled profiled) {
  if (!session.run().task_ids().empty()) return;
  if (profiled == Profiled::always) measure_nodes(session);
  capture_model(session);
  const auto regions = matched_regions(session);
  auto found = tasks_of(session, regions);
  if (found.size() > 1 && !session.has("profile.json")) {
    measure_nodes(session);
    found = tasks_of(session, regions);
  }
  const bool has_shares = session.has("profile.json");
  int64_t made = 0;
  for (const graph::ProfiledTask& each : found) {
    if (made == top || (has_shares && 100 * each.share < min_share_percent)) break;
    const Json profile = has_shares ? each.profile_json() : Json{{"us_per_call", 1.0}};
    int64_t starters = 0;
    for (const kernel::Backend backend : backends_of(session.run().request()))
      starters += add_task(session, each.task, backend, 100 * each.share, profile).empty() ? 0 : 1;
    made += std::min<int64_t>(starters, 1);
  }
  if (made == 0) session.progress().note(nothing_to_do(regions.size(), min_share_percent));
  session.progress().note(fmt::format("{} regions found, {} tasks", regions.size(), made));
}

void compile_baselines_ahead(Session& session, const std::vector<kernel::Task>& tasks) {
  if (session.torch_device() != "cuda" || tasks.size() < 2) return;
  std::vector<kernel::Task> undisturbed;
  for (const kernel::Task& task : tasks) {
    if (!is_autotuning_long(session, task)) undisturbed.push_back(task);
  }
  session.progress().phase("compile what PyTorch needs for all of them");
  session.compile_baselines(undisturbed, {"compile", autotuned});
}

std::vector<kernel::Task> unmeasured_tasks(const store::Run& run, const std::string& only) {
  std::map<std::string, kernel::Task> by_region;
  for (const std::string& id : run.task_ids()) {
    if ((only.empty() || id == only) && !known_baseline(run, id)) by_region.emplace(region_of(id), run.task(id));
  }
  std::vector<kernel::Task> tasks;
  for (auto& [region, task] : by_region) tasks.push_back(std::move(task));
  return tasks;
}

void measure_baselines(Session& session, const std::string& only) {
  std::vector<std::string> open;
  for (const std::string& id : session.run().task_ids()) {
    if (!session.run().state(id).baseline && (only.empty() || id == only)) open.push_back(id);
  }
  if (open.empty()) return;
  compile_baselines_ahead(session, unmeasured_tasks(session.run(), only));
  session.progress().phase("measure what PyTorch needs");
  for (size_t i = 0; i < open.size() && !stop_requested(); ++i) {
    session.progress().phase_progress(open[i], static_cast<int64_t>(i), static_cast<int64_t>(open.size()));
    if (const auto known = known_baseline(session.run(), open[i])) {
      session.run().record_baseline(open[i], *known);
      continue;
    }
    try_null_candidates(session, open[i]);
    session.run().record_baseline(open[i], measure_baseline(session, session.run().task(open[i])));
  }
}

void complete_baseline(Session& session, const std::string& id) {
  const std::optional<store::Baseline>& known = session.run().state(id).baseline;
  if (session.run().request().device != "cuda" || !known || known->kinds_us.contains(autotuned)) return;
  store::Baseline baseline = *known;
  for (auto& [kind, samples] : baseline_samples(session, session.run().task(id), {autotuned}, baseline_rounds))
    baseline.add(kind, judge::median(std::move(samples)));
  if (baseline.kinds_us.size() > known->kinds_us.size()) session.run().record_baseline(id, baseline);
}

plan::Scheduler make_scheduler(Session& session, const plan::Budget& budget, const std::string& only) {
  std::vector<plan::TaskFacts> facts;
  for (const std::string& id : session.run().task_ids()) {
    if (!only.empty() && id != only) continue;
    const kernel::Task task = session.run().task(id);
    const Json profile = read_json(session.file("tasks") / id / "task.json").at("profile");
    const search::Space space(kernel::KernelFile::read(session.run().best_path(id)), task, session.settings().device_facts);
    facts.push_back(plan::facts_of(task, profile, space.size(), session.settings().ceilings));
  }
  double total_us = 0;  // a suite is no model
  if (session.has("profile.json")) total_us = graph::parse_profile(read_json(session.file("profile.json"))).total_us;
  plan::Scheduler scheduler(std::move(facts), total_us, budget, session.clock());
  for (const std::string& id : session.run().task_ids()) {
    if (only.empty() || id == only) scheduler.update(session.run().state(id));
  }
  return scheduler;
}

std::string search_kernels(Session& session, const plan::Budget& budget, const std::string& only) {
  plan::Scheduler scheduler = make_scheduler(session, budget, only);
  EngineSocket socket(session.run().directory());
  const plan::Between serve = [&] {
    session.save_state_when_due();
    return socket.serve_pending([&](const Json& request) { return answer_client(session, request); });
  };
  return plan::run_plan(
      session.run(), scheduler, [&](const std::string& task) -> judge::Judge& { return session.judge_of(task); }, session.settings(), serve,
      stop_requested(), session.clock(), session.progress());
}

std::optional<store::Confirmation> confirm(Session& session, const std::string& id) {
  const store::TaskState& state = session.run().state(id);
  AK_CHECK(state.incumbent && state.baseline, "what is confirmed was judged and has a baseline");
  if (const store::Confirmation* known = state.confirmed()) return *known;
  const kernel::Task task = session.run().task(id);
  const judge::Candidate winner = incumbent_of(session, id);
  std::vector<double> kernel_us, baseline_us;
  for (int round = 0; round < confirmation_rounds; ++round) {
    const judge::Judgement again = session.judge_of(id).time_again(winner);
    if (again.verdict != judge::Verdict::kept) {
      refuse_winner(session, id, again);
      return std::nullopt;
    }
    std::ranges::copy(again.evidence.at("samples_us").get<std::vector<double>>(), std::back_inserter(kernel_us));
    // Where the best is SDPA's own choice, each backend that can be forced is timed beside it.
    auto samples = baseline_samples(session, task, {state.baseline->best_kind}, confirmation_samples);
    std::ranges::copy(samples[state.baseline->best_kind], std::back_inserter(baseline_us));
  }
  if (baseline_us.empty()) baseline_us.push_back(state.baseline->best_us);
  const double kernel = judge::median(kernel_us), baseline = judge::median(baseline_us);
  const judge::Interval kernel_interval = judge::median_interval(kernel_us, confirmation_error / 2);
  const judge::Interval baseline_interval = judge::median_interval(baseline_us, confirmation_error / 2);
  const store::Confirmation confirmation{state.incumbent->experiment,
                                         state.baseline->best_kind,
                                         kernel,
                                         baseline,
                                         floor_us(session, task),
                                         baseline / kernel,
                                         std::max(0.0, baseline_interval.low / kernel_interval.high),
                                         baseline_interval.high / std::max(kernel_interval.low, 1e-3)};
  session.run().record_confirmation(id, confirmation);
  return confirmation;
}

void bundle_winners(Session& session) {
  if (session.is_null_device()) return;
  session.progress().phase("measure winners and baselines in turn");
  std::map<std::string, std::vector<Winner>> winners;  // by region
  for (const std::string& id : session.run().task_ids()) {
    if (session.run().state(id).beats_baseline()) {
      session.progress().phase_progress(id, 0, 0);
      complete_baseline(session, id);
      const auto confirmation = confirm(session, id);
      if (confirmation && confirmation->speedup > 1) {
        winners[region_of(id)].push_back({id, *confirmation});
        continue;
      }
      if (confirmation)
        session.progress().note(fmt::format("{}: the winner does not hold against {} when measured in turn ({:.2f}x); the baseline is kept",
                                            id, confirmation->kind, confirmation->speedup));
    }
    fs::remove_all(session.file("bundles") / id);
  }
  for (const auto& [region, list] : winners) bundle_fastest(session, region, list);
}

Json verify_model(Session& session, int64_t rounds) {
  if (session.is_null_device()) return nullptr;
  session.progress().phase("put the kernels back and measure the whole model");
  const Json verification =
      session.model_worker().verify(fs::absolute(session.run().directory()), {}, rounds, fs::absolute(session.file("verification.json")));
  session.run().record_event({{"type", "verification"}, {"content", verification}});
  return verification;
}

}  // namespace ak::cli
