// The verbs, each from its arguments to its result.
#include "judge/server.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>

#include "core/error.h"
#include "device/cpu/facts.h"
#include "judge/comparison.h"
#include "judge/cpu_machine.h"
#include "judge/cuda_machine.h"
#include "judge/strangers.h"

namespace ak::judge {

namespace cpu = device::cpu;

namespace {

constexpr double least_run_seconds = 2, slowest_flops = 2e8, slowest_bytes_per_s = 1e8;  // a launch slower than this is given up
constexpr double floor_factor = 0.9;
constexpr int floor_attempts = 5;
constexpr int64_t least_floor_bytes = 1 << 20;  // below, a launch costs more than the memory
// A candidate that cheats in half of the timed launches is missed once in 4096 times.
constexpr size_t least_replays = 12;
constexpr std::chrono::milliseconds longest_replay(500);
constexpr int watched_launches = 4;
constexpr int64_t twice_checked_bytes = 32 << 20;
// Waking up, forming a team and waiting for the clock's start, awake for a moment, cost 0.1 to 0.7 ms of CPU time around a launch, the more
// the busier the machine is.
constexpr double tolerated_outside_us = 700, idle_factor = 2, outside_share = 0.1;
constexpr int stopped_attempts = 4;
constexpr double tolerated_ahead_us = 25, ahead_share = 0.1, waking_factor = 1.25;
constexpr TimingRules beside_itself{.minimum_gain = 0.5};

Json verdict_json(const Finding& finding) {
  Json result = {{"verdict", name_of(finding.verdict)}, {"evidence", finding.evidence}};
  if (!finding.rule.empty()) result["rule"] = finding.rule;
  return result;
}

CaseData load_case(const Json& arguments) {
  return CaseData::load(kernel::task_from_json(arguments.at("task")), arguments.at("case"), arguments.at("inputs").get<std::string>(),
                        arguments.at("expected").get<std::string>());
}

Json to_json(const device::KernelUse& use) {
  return {{"kernel", use.kernel},
          {"registers", use.registers},
          {"local_bytes", use.local_bytes},
          {"static_shared_bytes", use.static_shared_bytes},
          {"dynamic_shared_bytes", use.dynamic_shared_bytes},
          {"blocks_per_sm", use.blocks_per_sm},
          {"occupancy", use.occupancy}};
}

Json evidence_of(const Timing& timing, const Bench& bench) {
  Json evidence = {{"samples_us", timing.samples_us}, {"disturbed", timing.disturbed}};
  for (const device::KernelUse& use : bench.uses()) evidence["kernels"].push_back(to_json(use));
  if (timing.second_clock_us != 0) evidence["second_clock_us"] = timing.second_clock_us;
  if (!timing.outside_us.empty()) evidence["outside_us"] = outside_us(timing);
  if (timing.incumbent_samples_us.empty()) return evidence;
  evidence["incumbent_samples_us"] = timing.incumbent_samples_us;
  evidence["speedup"] = timing.speedup;
  evidence["ci_low"] = timing.interval.low;
  evidence["ci_high"] = timing.interval.high;
  evidence["noise"] = timing.noise;
  return evidence;
}

/// A host that does nothing meanwhile, so that it cannot make the machine look slow.
class Standstill {
 public:
  explicit Standstill(device::Host& host) : host_(host) { host_.stop(); }
  ~Standstill() { host_.resume(); }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

 private:
  device::Host& host_;
};

}  // namespace

struct Server::Subject {
  std::filesystem::path module;
  kernel::ConcretePlan plan;

  static Subject from_json(const Json& json) { return {json.at("module").get<std::string>(), kernel::concrete_plan_from_json(json)}; }
};

Server::Server(std::filesystem::path executable) : executable_(std::move(executable)) {
  std::random_device device;
  std::seed_seq seeds{device(), device(), device(), device()};
  secrets_.seed(seeds);
}

void Server::serve(Channel& channel) {
  Json request;
  while (channel.receive(request) == Channel::Status::message) {
    Json reply = {{"id", request.value("id", 0)}};
    try {
      reply["result"] = answer(request.at("verb"), request.value("arguments", Json::object()));
    } catch (const Error& error) {
      reply["error"] = {{"kind", "environment"}, {"message", error.what()}, {"what_to_do", error.what_to_do()}};
    } catch (const Json::exception& error) {
      reply["error"] = {{"kind", "bug"}, {"message", error.what()}};
    }
    const bool ends = machine_ && machine_->lost();
    reply["ends"] = ends;
    const bool sent = channel.send(reply);
    if (ends) ::_exit(0);  // destructors would wait for a kernel that does not end
    if (!sent) return;
  }
}

Json Server::answer(const std::string& verb, const Json& arguments) {
  if (verb == "open") return open(arguments);
  if (!machine_) throw Error("the judge's first request is `open`");
  if (verb == "ceilings") return machine_->ceilings();
  if (verb == "floor") return floor(arguments);
  if (verb == "check") return check(arguments);
  if (verb == "time") return time(arguments);
  if (verb == "release") return release(arguments);
  if (verb == "null_candidates") return null_candidates(arguments);
  throw Error("the judge has no verb '" + verb + "'");
}

Json Server::open(const Json& arguments) {
  const Json limits = arguments.value("limits", Json::object());
  longest_run_seconds_ = limits.value("run_seconds", longest_run_seconds_);
  candidate_ = {};
  incumbent_ = {};
  machine_.reset();
  const std::string device = arguments.at("device");
  if (device == "cpu") {
    const int threads = std::clamp(arguments.value("threads", 0), 0, 4096);
    cpu::HostLimits host;
    host.load_seconds = limits.value("load_seconds", host.load_seconds);
    host.memory_bytes = limits.value("memory_bytes", host.memory_bytes);
    machine_ = std::make_unique<CpuMachine>(executable_, threads > 0 ? threads : cpu::available_cpus(), host, longest_run_seconds_);
  } else if (device == "cuda") {
    machine_ = std::make_unique<CudaMachine>(arguments.value("index", 0), arguments.at("builtin").get<std::string>(),
                                             arguments.value("family", ::getppid()));
  } else {
    throw Error("this judge has no device '" + device + "'");
  }
  Json facts = Json::object();
  for (const auto& [name, value] : machine_->facts()) facts[name] = value;
  return {{"facts", facts}, {"sandbox", machine_->sandbox()}, {"flush_bytes", machine_->flush_bytes()}};
}

std::optional<Finding> Server::ready(Slot& slot, const std::filesystem::path& module) {
  if (slot.host && slot.host->alive() && slot.module == module) return std::nullopt;
  slot.host = machine_->new_host(module);
  slot.module = module;
  const device::Outcome loaded = slot.host->load();
  if (loaded.ok()) return std::nullopt;
  slot = {};
  return finding_of(loaded);
}

double Server::timeout_seconds(const CaseData& data) const {
  const double expected = data.flops() / slowest_flops + static_cast<double>(data.read_bytes() + data.write_bytes()) / slowest_bytes_per_s;
  return std::min(longest_run_seconds_, least_run_seconds + expected);
}

Json Server::floor(const Json& arguments) {
  const int64_t read_bytes = arguments.at("read_bytes"), write_bytes = arguments.at("write_bytes");
  if (read_bytes < 0 || write_bytes < 0) throw Error("a floor is of 0 bytes or more");
  const Floors floors = machine_->floors(read_bytes, write_bytes);
  Json medians = Json::object();
  for (const auto& [means, floor] : floors) medians[means] = floor.median_us;
  return {{"us", least(floors, &Floor::median_us)}, {"by", std::move(medians)}};
}

std::optional<Finding> Server::check_once(Bench& bench, int workers) {
  bench.poison_outputs();
  if (auto finding = bench.launch(workers, machine_->has_spare_cpu(workers) ? Bench::Look::all_at_once : Bench::Look::all)) return finding;
  if (auto finding = bench.check_finished_later()) return finding;
  if (auto finding = bench.check_memory()) return finding;
  return bench.check_values();
}

Json Server::check(const Json& arguments) {
  const Subject subject = Subject::from_json(arguments.at("candidate"));
  const CaseData data = load_case(arguments);
  if (auto finding = ready(candidate_, subject.module)) return verdict_json(*finding);
  Bench bench(*candidate_.host, data, subject.plan);
  bench.set_timeout(timeout_seconds(data));
  // A kernel that looks at addresses is checked on the path that is timed, and on the other; of large data on one of them.
  const bool both = bench.allocates_coarsely() && data.read_bytes() + data.write_bytes() <= twice_checked_bytes;
  const int runs = std::clamp(arguments.value("runs", 1), both ? 2 : 1, 16), allocated = runs > 1 ? 0 : static_cast<int>(secrets_() % 2);
  std::string first;
  for (int run = 0; run < runs; ++run) {
    const auto addresses = run == allocated ? Bench::Addresses::as_allocated : Bench::Addresses::any;
    if (auto finding = bench.place(secrets_(), addresses)) return verdict_json(*finding);
    const bool alone = bench.workers() > 1 && run > 0 && run % 2 == 0;  // on one thread
    if (auto finding = check_once(bench, alone ? 1 : bench.workers())) return verdict_json(*finding);
    const std::string hash = bench.outputs_hash();
    if (run == 0) first = hash;
    if (hash != first) {
      const char* what = alone ? "other bits on one thread" : "other bits at other addresses";
      return verdict_json({Verdict::nondeterministic, {{"message", what}}, {}});
    }
  }
  return {{"verdict", "pass"}, {"evidence", {{"arena_bytes", bench.total_bytes()}, {"us", bench.last_us()}}}};
}

std::optional<Finding> Server::warm_up(Bench& bench) {
  if (auto finding = check_once(bench, bench.workers())) return finding;
  const std::string first = bench.outputs_hash();
  if (auto finding = launch_once(bench)) return finding;
  if (bench.outputs_hash() != first) return Finding{Verdict::nondeterministic, {{"message", "other bits in the next run"}}, {}};
  return std::nullopt;
}

std::optional<Finding> Server::launch_once(Bench& bench) {
  bench.poison_outputs();
  if (auto finding = bench.launch(bench.workers())) return finding;
  return bench.check_memory();
}

std::optional<Finding> Server::replay(const Subject& subject, const CaseData& data, Timing& timing) {
  Slot fresh;
  if (auto finding = ready(fresh, subject.module)) return finding;
  Bench bench(*fresh.host, data, subject.plan);
  bench.set_timeout(timeout_seconds(data));
  std::vector<TimedLaunch> launches(timing.acquitting.begin(), timing.acquitting.end());
  std::ranges::shuffle(timing.launches, secrets_);
  const auto tells_most = [](const TimedLaunch& each) { return each.perturbation.few > 0; };
  std::stable_partition(timing.launches.begin(), timing.launches.end(), tells_most);
  std::ranges::copy(timing.launches, std::back_inserter(launches));
  const size_t least = timing.acquitting.size() + least_replays * static_cast<size_t>(timing.measurements);
  const auto end = std::chrono::steady_clock::now() + longest_replay;
  for (size_t i = 0; i < launches.size() && (i < least || std::chrono::steady_clock::now() < end); ++i) {
    const TimedLaunch& timed = launches[i];
    std::string hashes[2];
    for (std::string& hash : hashes) {
      if (auto finding = bench.place(secrets_())) return finding;  // what is remembered by address is of no use
      bench.perturb(timed.perturbation);
      bench.poison_outputs();
      if (auto finding = bench.launch(bench.workers())) return finding;
      hash = bench.outputs_hash();
      if (auto finding = bench.check_memory()) return finding;
      if (hashes[0] == timed.outputs_hash) break;
    }
    if (hashes[0] == timed.outputs_hash) continue;
    if (hashes[0] != hashes[1]) return Finding{Verdict::nondeterministic, {{"message", "other bits in the next run"}}, {}};
    return Finding{Verdict::cheating,
                   {{"message", "a timed launch gave another answer than a fresh process does for the same inputs"}},
                   "remembered answer"};
  }
  return std::nullopt;
}

std::optional<Finding> Server::measure_again(Bench& bench, Timing& timing) {
  Timing again = PairedTimer(*machine_, secrets_).measure(bench, {});
  if (again.failure) return again.failure;
  count_slower(timing, std::move(again));
  return std::nullopt;
}

std::optional<double> Server::waking_time() {
  const Standstill nothing_else_runs(*candidate_.host);
  return machine_->waking_us();
}

std::optional<Finding> Server::below_floor(Bench& bench, const CaseData& data, Timing& timing) {
  if (data.read_bytes() + data.write_bytes() < least_floor_bytes) return std::nullopt;
  double floor = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < floor_attempts; ++attempt) {  // the fastest copy, the slowest candidate: others slow either down
    if (attempt > 0) {
      if (auto finding = measure_again(bench, timing)) return finding;
    }
    const Standstill nothing_else_runs(*candidate_.host);
    floor = std::min(floor, least(machine_->floors(data.read_bytes(), data.write_bytes()), &Floor::fastest_us));
    if (median(timing.samples_us) >= floor_factor * floor) return std::nullopt;
  }
  return Finding{Verdict::cheating, {{"floor_us", floor}, {"samples_us", timing.samples_us}}, "below the floor"};
}

/// Work that is done ahead of the clock, or left for after it, takes CPU time all the same.
std::optional<Finding> Server::works_outside(Bench& bench, Timing& timing) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt > 0) {
      if (auto finding = measure_again(bench, timing)) return finding;
    }
    const double taken_us = outside_us(timing), share = outside_share * std::ranges::min(timing.samples_us) * bench.workers();
    if (taken_us <= tolerated_outside_us + share) return std::nullopt;
    const Standstill nothing_else_runs(*candidate_.host);
    const double idle_us = std::max(machine_->idle_outside_us().value_or(taken_us), tolerated_outside_us);
    if (taken_us <= idle_factor * idle_us + share) return std::nullopt;
    if (attempt > 0)
      return Finding{Verdict::cheating,
                     {{"message", "the candidate's threads worked while the clock stood still"},
                      {"outside_us", taken_us},
                      {"idle_outside_us", idle_us},
                      {"samples_us", timing.samples_us}},
                     "work outside the clock"};
  }
  return std::nullopt;
}

/// Where the inputs change while it stands still, a candidate that works ahead of the clock is slower than it is else. Others on the
/// machine slow down some launches, but never speed one up.
std::optional<Finding> Server::works_ahead(const Subject& subject, const CaseData& data, Bench& bench, Timing& timing) {
  std::vector<StoppedLaunch> stopped;
  double waking_us = 0;
  const auto limit_us = [&](double us) { return (1 + ahead_share) * us + waking_factor * waking_us + tolerated_ahead_us; };
  const auto stopped_us = [&] { return stopped[PairedTimer::enough_stopped - 1].us; };
  const double first_us = median(timing.samples_us);
  for (int attempt = 0; attempt < stopped_attempts; ++attempt) {
    if (attempt > 0) {
      if (auto finding = measure_again(bench, timing)) return finding;
    }
    const std::optional<double> waking = waking_time();
    if (!waking) return std::nullopt;
    waking_us = std::max(waking_us, *waking);
    const double most_us = limit_us(median(timing.samples_us));
    if (auto finding = PairedTimer(*machine_, secrets_).time_stopped(bench, most_us, stopped)) return finding;
    if (stopped_us() > most_us) continue;
    timing.acquitting.assign(stopped.begin(), stopped.begin() + PairedTimer::enough_stopped);
    if (stopped_us() <= limit_us(first_us)) return std::nullopt;
    return gave_up(subject, data, bench, limit_us);
  }
  return Finding{Verdict::cheating,
                 {{"message", "the candidate is slower where its inputs change while it stands still: it works ahead of the clock"},
                  {"us", median(timing.samples_us)},
                  {"stopped_us", stopped_us()},
                  {"waking_us", waking_us}},
                 "work outside the clock"};
}

/// Whether a candidate that has become slower since it was first stopped is faster in a process that never was: others on the machine slow
/// down both.
std::optional<Finding> Server::gave_up(const Subject& subject, const CaseData& data, Bench& stopped,
                                       const std::function<double(double)>& limit_us) {
  Slot fresh;
  if (auto finding = ready(fresh, subject.module)) return finding;
  Bench unaware(*fresh.host, data, subject.plan);
  unaware.set_timeout(timeout_seconds(data));
  const uint64_t addresses = secrets_();
  for (Bench* each : {&unaware, &stopped}) {
    if (auto finding = each->place(addresses, Bench::Addresses::as_allocated)) return finding;
  }
  if (auto finding = warm_up(unaware)) return finding;
  if (auto finding = PairedTimer(*machine_, secrets_).measure(unaware, {}).failure) return finding;  // as many launches as at first
  const Timing timing = PairedTimer(*machine_, secrets_).compare(unaware, stopped, beside_itself);
  if (timing.failure) return timing.failure;
  if (timing.incumbent_failure) return timing.incumbent_failure;
  if (!timing.faster || median(timing.incumbent_samples_us) <= limit_us(median(timing.samples_us))) return std::nullopt;
  return Finding{Verdict::cheating,
                 {{"message", "the candidate is slower since it was stopped than where it never was: it worked ahead of the clock"},
                  {"us", median(timing.incumbent_samples_us)},
                  {"unaware_us", median(timing.samples_us)}},
                 "work outside the clock"};
}

std::optional<Finding> Server::doubt(const Subject& subject, const CaseData& data, Bench& bench, Timing& timing) {
  if (auto finding = below_floor(bench, data, timing)) return finding;
  if (auto finding = works_outside(bench, timing)) return finding;
  if (auto finding = works_ahead(subject, data, bench, timing)) return finding;
  if (auto finding = PairedTimer(*machine_, secrets_).watch(bench, watched_launches)) return finding;
  return replay(subject, data, timing);
}

Json Server::time_alone(const Subject& subject, const CaseData& data, Bench& bench, const TimingRules& rules) {
  Timing timing = PairedTimer(*machine_, secrets_).measure(bench, rules);
  if (timing.failure) return verdict_json(*timing.failure);
  if (auto finding = doubt(subject, data, bench, timing)) return verdict_json(*finding);
  return {{"verdict", "kept"}, {"evidence", evidence_of(timing, bench)}, {"median_us", median(timing.samples_us)}};
}

Json Server::time(const Json& arguments) {
  return measure_alone([&] { return machine_->strangers(); }, [&] { return time_once(arguments); });
}

Json Server::time_once(const Json& arguments) {
  const Subject subject = Subject::from_json(arguments.at("candidate"));
  const CaseData data = load_case(arguments);
  const TimingRules rules{arguments.value("minimum_gain", 0.01), arguments.value("maximum_seconds", 1.0)};
  if (auto finding = ready(candidate_, subject.module)) return verdict_json(*finding);
  Bench bench(*candidate_.host, data, subject.plan);
  bench.set_timeout(timeout_seconds(data));
  const uint64_t addresses = secrets_();
  if (auto finding = bench.place(addresses, Bench::Addresses::as_allocated)) return verdict_json(*finding);
  if (auto finding = warm_up(bench)) return verdict_json(*finding);
  if (arguments.at("incumbent").is_null()) return time_alone(subject, data, bench, rules);

  const Subject other = Subject::from_json(arguments["incumbent"]);
  std::optional<Finding> excuse = ready(incumbent_, other.module);
  if (excuse)
    return verdict_json(
        {Verdict::failed_environment, {{"message", "the incumbent does not load"}, {"incumbent", verdict_json(*excuse)}}, {}});
  Bench incumbent(*incumbent_.host, data, other.plan);
  incumbent.set_timeout(timeout_seconds(data));
  excuse = incumbent.place(addresses, Bench::Addresses::as_allocated);
  if (!excuse) excuse = launch_once(incumbent);  // its values were checked when it was kept
  Timing timing;
  if (!excuse) {
    timing = PairedTimer(*machine_, secrets_).compare(bench, incumbent, rules);
    excuse = timing.incumbent_failure;
  }
  if (excuse)
    return verdict_json({Verdict::failed_environment, {{"message", "the incumbent fails"}, {"incumbent", verdict_json(*excuse)}}, {}});
  if (timing.failure) return verdict_json(*timing.failure);
  if (timing.faster) {
    if (auto finding = doubt(subject, data, bench, timing)) return verdict_json(*finding);
  }
  const char* verdict = timing.faster && clears(timing, rules) ? "kept" : "slower";
  return {{"verdict", verdict}, {"evidence", evidence_of(timing, bench)}, {"median_us", median(timing.samples_us)}};
}

Json Server::release(const Json& arguments) {
  const std::filesystem::path module = arguments.at("module").get<std::string>();
  if (candidate_.module == module) candidate_ = {};
  return Json::object();
}

Json Server::null_candidates(const Json& arguments) {
  const CaseData data = load_case(arguments);
  Json other_arguments = arguments;
  std::optional<CaseData> other;
  if (arguments.contains("other")) {
    other_arguments["inputs"] = arguments["other"].at("inputs");
    other_arguments["expected"] = arguments["other"].at("expected");
    other = load_case(other_arguments);
  }
  return {{"passing", passing_null_candidates(data, other ? &*other : nullptr)}};
}

}  // namespace ak::judge
