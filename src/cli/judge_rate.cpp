// One task of a family, judged as a run judges it: worker, compiler, judge and search are those of every run.
#include "cli/judge_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bridge/process_worker.h"
#include "cli/session.h"
#include "cli/toolchain.h"
#include "cli/worker_fixtures.h"
#include "core/error.h"
#include "core/file.h"
#include "graph/region.h"
#include "judge/statistic.h"
#include "report/progress.h"

namespace ak::cli {
namespace {

constexpr double default_minutes = 1;
constexpr int repetitions = 20;
constexpr double agreeing = 0.015;                               // of the median
constexpr int64_t copied_bytes[] = {1 << 25, 1 << 27, 1 << 28};  // read and written together
constexpr std::chrono::seconds floor_timeout(60);

/// A memory-bound kernel with a large space. The CPU's shape is smaller by what its memory is slower.
kernel::Task task_for(const std::string& device) {
  const graph::Families families = graph::load_families(home_directory() / "kernels");
  graph::Region region{.family = "rmsnorm", .spelling = "functional", .dtype = Dtype::float16};
  const int64_t extent = device == "cuda" ? 4096 : 1024;
  region.dims = {{"M", extent}, {"N", extent}};
  return graph::make_task(region, families.at("rmsnorm"));
}

store::Run run_of(const kernel::Task& task, const std::string& device, const std::filesystem::path& directory, const Clock& clock) {
  store::Run run = store::Run::open(directory, {.model = task.id, .dtype = "float16", .device = device, .backend = device}, clock);
  const kernel::Backend backend = kernel::parse_backend(device);
  run.add_task(task, 100, Json::object(), read_file(home_directory() / "kernels" / task.family / kernel::file_name(backend)), backend);
  return run;
}

/// Judgements of the search's own proposals until the time is over or every point was tried.
Json rate(search::TaskSearch& search, double seconds, const Clock& clock) {
  const int64_t start = clock.now_ns();
  int64_t judged = 0;
  std::map<std::string, int64_t> verdicts;
  while (clock.seconds_since(start) < seconds && !stop_requested()) {
    const auto proposal = search.propose();
    if (!proposal) break;
    const search::Step step = search.run(*proposal);
    if (!step.trial) throw Error("the environment failed: " + step.judgement.evidence.value("message", std::string("no reason given")));
    ++judged;
    ++verdicts[step.trial->verdict];
  }
  const double elapsed = clock.seconds_since(start);
  return {{"judged", judged}, {"seconds", elapsed}, {"per_hour", static_cast<double>(judged) / elapsed * 3600}, {"verdicts", verdicts}};
}

/// All five stages and the timing, again and again.
Json repeat(judge::Judge& judge, const judge::Candidate& candidate) {
  std::vector<double> medians_us;
  while (medians_us.size() < repetitions && !stop_requested()) {
    const judge::Judgement judgement = judge.judge(candidate, nullptr);
    if (judgement.verdict != judge::Verdict::kept)
      throw Error(
          fmt::format("the judge kept a kernel once and then found it {}: {}", name_of(judgement.verdict), judgement.evidence.dump()));
    medians_us.push_back(judgement.median_us);
  }
  return agreement(medians_us, agreeing);
}

Json copies(judge::JudgeProcess& process) {
  Json list = Json::array();
  for (const int64_t bytes : copied_bytes) {
    const auto floor = process.call("floor", {{"read_bytes", bytes / 2}, {"write_bytes", bytes / 2}}, floor_timeout);
    if (!floor) throw Error("the judge died: " + process.last_end());
    const Json& by = floor->at("by");
    const char* ours = by.contains("move_1") ? "move_1" : "stream";
    const double our_us = by.at(ours), system_us = by.at("memcpy");
    list.push_back({{"bytes", bytes}, {"ours_us", our_us}, {"memcpy_us", system_us}, {"ratio", our_us / system_us}});
  }
  return list;
}

Json measure(const std::string& device, double minutes, report::Progress& progress) {
  const SystemClock clock;
  const TemporaryDirectory directory("autokernel-judge-rate-");
  const kernel::Task task = task_for(device);
  progress.phase("start compiler, PyTorch and judge");
  const auto compiler =
      make_compiler(kernel::parse_backend(device), directory.path() / "compile");  // its own cache: compiling is part of the rate
  bridge::ProcessWorker worker({});
  WorkerFixtures fixtures([&]() -> bridge::Worker& { return worker; }, device);
  judge::JudgeProcess process(judge::judge_beside_program(), judge_opening(device, *compiler));
  judge::ProcessJudge judge(task, process, *compiler, fixtures);
  store::Run run = run_of(task, device, directory.path() / "run", clock);
  search::Settings settings;
  settings.device_facts = process.facts();
  search::TaskSearch search(run, judge, task.id, settings);
  progress.phase("judge what the search proposes");
  Json result = {{"device", device}, {"task", task.id}, {"dims", task.workload.front().dims}, {"dtype", ak::name_of(task.dtype)}};
  result["rate"] = rate(search, 60 * minutes, clock);
  progress.phase("judge one kernel again and again");
  const kernel::KernelFile best = kernel::KernelFile::read(run.best_path(task.id));
  result["repeated"] = repeat(judge, {best, best.defaults()});
  progress.phase("copy");
  result["copies"] = copies(process);
  return result;
}

}  // namespace

Json agreement(const std::vector<double>& values, double share) {
  if (values.empty()) return {{"times", 0}, {"agree", 0}};
  const double middle = judge::median(values);
  const auto [least, most] = std::ranges::minmax(values);
  const auto agree = std::ranges::count_if(values, [&](double value) { return std::abs(value - middle) <= share * middle; });
  return {{"times", values.size()},
          {"agree", agree},
          {"share", share},
          {"median_us", middle},
          {"least_us", least},
          {"most_us", most},
          {"spread", (most - least) / middle},
          {"medians_us", values}};
}

std::string judge_rate_text(const Json& result) {
  const Json& rate = result.at("rate");
  const Json& repeated = result.at("repeated");
  std::string verdicts;
  for (const auto& [verdict, count] : rate.at("verdicts").items()) verdicts += fmt::format(" {} {},", count.get<int64_t>(), verdict);
  if (!verdicts.empty()) verdicts.pop_back();
  std::string text =
      fmt::format("{} on {}\n  judgements an hour  {:>8.0f}  ({} in {:.1f} s, compiled and judged:{})\n",
                  result.at("task").get<std::string>(), result.at("device").get<std::string>(), rate.at("per_hour").get<double>(),
                  rate.at("judged").get<int64_t>(), rate.at("seconds").get<double>(), verdicts);
  if (repeated.at("times") > 0)
    text += fmt::format(
        "  repeated judgements {:>5} of {}  within {:.1f} % of their median {:.2f} us (from {:.2f} to {:.2f}, spread {:.1f} %)\n",
        repeated.at("agree").get<int64_t>(), repeated.at("times").get<int64_t>(), 100 * repeated.at("share").get<double>(),
        repeated.at("median_us").get<double>(), repeated.at("least_us").get<double>(), repeated.at("most_us").get<double>(),
        100 * repeated.at("spread").get<double>());
  for (const Json& copy : result.at("copies"))
    text += fmt::format("  copy of {:>5.1f} MB     {:>8.3f}  of the system's: ours {:.2f} us, memcpy {:.2f} us\n",
                        copy.at("bytes").get<double>() * 1e-6, copy.at("ratio").get<double>(), copy.at("ours_us").get<double>(),
                        copy.at("memcpy_us").get<double>());
  return text;
}

Exit judge_rate(const Options& options) {
  const std::string device = device_or_here(options.request.device);
  if (device != "cpu" && device != "cuda") throw Error("there is no judge for the device '" + device + "'", "use --device cpu or cuda");
  listen_for_stop();
  const SystemClock clock;
  const auto progress = report::make_progress(report::style_for(stderr, false), stderr, clock, "judge rate");
  const Json result = measure(device, options.minutes.value_or(default_minutes), *progress);
  fmt::print("{}", options.json ? result.dump() + "\n" : judge_rate_text(result));
  return stop_requested() ? Exit::interrupted : Exit::done;
}

}  // namespace ak::cli
