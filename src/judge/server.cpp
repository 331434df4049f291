// The verbs, each from its arguments to its result.
#include "judge/server.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "device/cpu/facts.h"
#include "judge/comparison.h"

namespace ak::judge {

namespace cpu = device::cpu;

namespace {

constexpr double least_run_seconds = 2, slowest_flops = 2e8, slowest_bytes_per_s = 1e8;  // a launch slower than this is given up
constexpr double floor_factor = 0.9;
constexpr int64_t least_floor_bytes = 1 << 20;  // below, a launch costs more than the memory
constexpr int floor_samples = 9, ceiling_samples = 9, launch_samples = 31;
// A candidate that cheats in half of the timed launches is missed once in 4096 times.
constexpr size_t least_replays = 12;
constexpr std::chrono::milliseconds longest_replay(500);
constexpr int watched_launches = 4;
constexpr size_t least_clean_samples = 5;
constexpr int64_t ceiling_bytes = 128 << 20, read_part_bytes = 64 << 10;
constexpr int64_t multiply_rounds = 100'000, multiply_flops = 2 * 16 * 16 * multiply_rounds, shares_per_worker = 8;

Json verdict_json(const Finding& finding) {
  Json result = {{"verdict", name_of(finding.verdict)}, {"evidence", finding.evidence}};
  if (!finding.rule.empty()) result["rule"] = finding.rule;
  return result;
}

cpu::LaunchEntry builtin_launch(const char* name, int64_t blocks, int32_t arguments) {
  cpu::LaunchEntry entry{};
  std::copy_n(name, std::char_traits<char>::length(name), entry.kernel);
  entry.blocks = blocks;
  entry.argument_count = arguments;
  entry.scratch_offset = -1;
  return entry;
}

cpu::ArgumentEntry integer(int64_t value) { return {cpu::ArgumentEntry::integer, 0, value}; }
cpu::ArgumentEntry pointer(int64_t offset) { return {cpu::ArgumentEntry::arena_pointer, 0, offset}; }

int64_t page_aligned(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

CaseData load_case(const Json& arguments) {
  return CaseData::load(kernel::task_from_json(arguments.at("task")), arguments.at("case"), arguments.at("inputs").get<std::string>(),
                        arguments.at("expected").get<std::string>());
}

Json evidence_of(const Timing& timing) {
  Json evidence = {{"samples_us", timing.samples_us}, {"disturbed", timing.disturbed}};
  if (timing.incumbent_samples_us.empty()) return evidence;
  evidence["incumbent_samples_us"] = timing.incumbent_samples_us;
  evidence["speedup"] = timing.speedup;
  evidence["ci_low"] = timing.interval.low;
  evidence["ci_high"] = timing.interval.high;
  evidence["noise"] = timing.noise;
  return evidence;
}

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
      reply["error"] = {{"kind", "environment"}, {"message", error.what()}};
    } catch (const Json::exception& error) {
      reply["error"] = {{"kind", "bug"}, {"message", error.what()}};
    }
    if (!channel.send(reply)) return;
  }
}

Json Server::answer(const std::string& verb, const Json& arguments) {
  if (verb == "open") return open(arguments);
  if (!flusher_) throw Error("the judge's first request is `open`");
  if (verb == "ceilings") return ceilings();
  if (verb == "floor") return floor(arguments);
  if (verb == "check") return check(arguments);
  if (verb == "time") return time(arguments);
  if (verb == "release") return release(arguments);
  if (verb == "null_candidates") return null_candidates(arguments);
  throw Error("the judge has no verb '" + verb + "'");
}

Json Server::open(const Json& arguments) {
  if (arguments.at("device") != "cpu") throw Error("this judge has no device '" + arguments.at("device").get<std::string>() + "'");
  workers_ = std::clamp(arguments.value("threads", 0), 0, 4096);
  if (workers_ == 0) workers_ = cpu::available_cpus();
  if (arguments.contains("limits")) {
    const Json& limits = arguments["limits"];
    limits_.load_seconds = limits.value("load_seconds", limits_.load_seconds);
    limits_.memory_bytes = limits.value("memory_bytes", limits_.memory_bytes);
    longest_run_seconds_ = limits.value("run_seconds", longest_run_seconds_);
  }
  candidate_ = {};
  incumbent_ = {};
  builtin_.reset();
  flusher_ = std::make_unique<Flusher>(cpu::flush_bytes(), cpu::available_cpus());
  const int32_t reached = builtin_host().sandbox();
  Json sandbox = Json::array();
  if ((reached & cpu::sandbox_limits) != 0) sandbox.push_back("limits");
  if ((reached & cpu::sandbox_calls) != 0) sandbox.push_back("calls");
  if ((reached & cpu::sandbox_files) != 0) sandbox.push_back("files");
  Json facts = Json::object();
  for (const auto& [name, value] : cpu::facts(workers_)) facts[name] = value;
  return {{"facts", facts}, {"sandbox", sandbox}, {"flush_bytes", flusher_->bytes()}};
}

std::unique_ptr<cpu::Host> Server::new_host(const std::optional<std::filesystem::path>& module) const {
  return std::make_unique<cpu::Host>(executable_, module, workers_, limits_);
}

cpu::Host& Server::builtin_host() {
  if (!builtin_ || !builtin_->alive()) {
    builtin_ = new_host(std::nullopt);
    const cpu::Outcome loaded = builtin_->load();
    if (!loaded.ok())
      throw Error("the candidate host does not start: " + (loaded.text.empty() ? std::string("it gave no sign of life") : loaded.text));
  }
  return *builtin_;
}

std::optional<Finding> Server::ready(Slot& slot, const std::filesystem::path& module) {
  if (slot.host && slot.host->alive() && slot.module == module) return std::nullopt;
  slot.host = new_host(module);
  slot.module = module;
  const cpu::Outcome loaded = slot.host->load();
  if (loaded.ok()) return std::nullopt;
  slot = {};
  return finding_of(loaded);
}

double Server::timeout_seconds(const CaseData& data) const {
  const double expected = data.flops() / slowest_flops + static_cast<double>(data.read_bytes() + data.write_bytes()) / slowest_bytes_per_s;
  return std::min(longest_run_seconds_, least_run_seconds + expected);
}

double Server::cold_us(const cpu::Program& program, int samples) {
  cpu::Host& host = builtin_host();
  std::vector<double> all, clean;
  cpu::Outcome outcome = host.install(program);
  for (int i = 0; i <= 3 * samples && static_cast<int>(clean.size()) < samples && outcome.ok(); ++i) {
    if (i > 0) flusher_->flush();
    outcome = host.launch(workers_, longest_run_seconds_);
    if (i == 0) continue;
    all.push_back(outcome.us);
    if (is_clean(outcome.us, outcome.waited_us)) clean.push_back(outcome.us);
  }
  if (!outcome.ok()) throw Error("a built-in kernel fails: " + outcome.text);
  // Where other work disturbs nearly every launch, the fastest is nearest to the truth: a floor that is too high accuses the honest.
  return clean.size() >= least_clean_samples ? median(clean) : std::ranges::min(all);
}

double Server::floor_us(int64_t read_bytes, int64_t write_bytes, int samples) {
  const int64_t source = 0, target = page_aligned(read_bytes) + 4096, blocks = workers_ * shares_per_worker;
  const int64_t total = target + page_aligned(write_bytes);
  std::ranges::fill(builtin_host().arena(total), std::byte{1});
  double best = 0;
  for (const char* name : {"builtin.copy", "builtin.stream"}) {
    cpu::Program program;
    program.arguments = {pointer(source), integer(read_bytes), pointer(target), integer(write_bytes), integer(blocks)};
    program.launches = {builtin_launch(name, blocks, 5)};
    const double us = cold_us(program, samples);
    best = best == 0 ? us : std::min(best, us);
    if (write_bytes == 0) break;
  }
  return best;
}

Json Server::floor(const Json& arguments) {
  const int64_t read_bytes = arguments.at("read_bytes"), write_bytes = arguments.at("write_bytes");
  if (read_bytes < 0 || write_bytes < 0) throw Error("a floor is of 0 bytes or more");
  return {{"us", floor_us(read_bytes, write_bytes, floor_samples)}};
}

Json Server::ceilings() {
  cpu::Program nothing;
  nothing.launches = {builtin_launch("builtin.empty", workers_, 0)};
  const double launch_us = cold_us(nothing, launch_samples);

  std::ranges::fill(builtin_host().arena(ceiling_bytes), std::byte{1});
  cpu::Program reading;
  reading.arguments = {pointer(0), integer(ceiling_bytes)};
  reading.launches = {builtin_launch("builtin.read", ceiling_bytes / read_part_bytes, 2)};
  const double read_us = cold_us(reading, ceiling_samples), copy_us = floor_us(ceiling_bytes / 2, ceiling_bytes / 2, ceiling_samples);

  cpu::Program multiplying;
  multiplying.arguments = {integer(multiply_rounds)};
  multiplying.launches = {builtin_launch("builtin.multiply", workers_ * shares_per_worker, 1)};
  const double flops = static_cast<double>(multiply_flops * workers_ * shares_per_worker) / (cold_us(multiplying, ceiling_samples) * 1e-6);
  return {{"copy_bytes_per_s", static_cast<double>(ceiling_bytes) / (copy_us * 1e-6)},
          {"read_bytes_per_s", static_cast<double>(ceiling_bytes) / (read_us * 1e-6)},
          {"flops_per_s", {{"float32", flops}, {"float16", flops}, {"bfloat16", flops}, {"float64", flops / 2}}},
          {"launch_us", launch_us}};
}

std::optional<Finding> Server::check_once(Bench& bench, int workers) {
  bench.poison_outputs();
  const bool spare_cpu = workers < cpu::available_cpus();  // else it would be taken from a worker
  if (auto finding = bench.launch(workers, spare_cpu ? Bench::Look::all_at_once : Bench::Look::all)) return finding;
  if (auto finding = bench.check_finished_later()) return finding;
  if (auto finding = bench.check_memory()) return finding;
  return bench.check_values();
}

Json Server::check(const Json& arguments) {
  const Subject subject = Subject::from_json(arguments.at("candidate"));
  const CaseData data = load_case(arguments);
  const int runs = std::clamp(arguments.value("runs", 1), 1, 16);
  if (auto finding = ready(candidate_, subject.module)) return verdict_json(*finding);
  Bench bench(*candidate_.host, data, subject.plan);
  bench.set_timeout(timeout_seconds(data));
  std::string first;
  for (int run = 0; run < runs; ++run) {
    if (auto finding = bench.place(secrets_())) return verdict_json(*finding);
    const bool alone = run > 0 && run % 2 == 0;  // on one thread
    if (auto finding = check_once(bench, alone ? 1 : workers_)) return verdict_json(*finding);
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
  if (auto finding = check_once(bench, workers_)) return finding;
  const std::string first = bench.outputs_hash();
  if (auto finding = check_once(bench, workers_)) return finding;
  if (bench.outputs_hash() != first) return Finding{Verdict::nondeterministic, {{"message", "other bits in the next run"}}, {}};
  return std::nullopt;
}

std::optional<Finding> Server::replay(const Subject& subject, const CaseData& data, Timing& timing) {
  Slot fresh;
  if (auto finding = ready(fresh, subject.module)) return finding;
  Bench bench(*fresh.host, data, subject.plan);
  bench.set_timeout(timeout_seconds(data));
  if (auto finding = bench.place(secrets_())) return finding;
  std::ranges::shuffle(timing.launches, secrets_);
  const auto end = std::chrono::steady_clock::now() + longest_replay;
  for (size_t i = 0; i < timing.launches.size() && (i < least_replays || std::chrono::steady_clock::now() < end); ++i) {
    const TimedLaunch& timed = timing.launches[i];
    std::string hashes[2];
    for (std::string& hash : hashes) {
      bench.perturb(timed.seed);
      bench.poison_outputs();
      if (auto finding = bench.launch(workers_)) return finding;
      hash = bench.outputs_hash();
      if (auto finding = bench.check_memory()) return finding;
      if (hashes[0] == timed.outputs_hash) break;
      if (auto finding = bench.place(secrets_())) return finding;
    }
    if (hashes[0] == timed.outputs_hash) continue;
    if (hashes[0] != hashes[1]) return Finding{Verdict::nondeterministic, {{"message", "other bits in the next run"}}, {}};
    return Finding{Verdict::cheating,
                   {{"message", "a timed launch gave another answer than a fresh process does for the same inputs"}},
                   "remembered answer"};
  }
  return std::nullopt;
}

std::optional<Finding> Server::below_floor(Bench& bench, const CaseData& data, Timing& timing) {
  if (data.read_bytes() + data.write_bytes() < least_floor_bytes) return std::nullopt;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const double floor = floor_us(data.read_bytes(), data.write_bytes(), floor_samples);
    if (attempt > 0) {
      Timing again = PairedTimer(*flusher_, secrets_).measure(bench, {});
      if (again.failure) return again.failure;
      timing.samples_us = again.samples_us;
    }
    if (median(timing.samples_us) >= floor_factor * floor) return std::nullopt;
    if (attempt > 0) return Finding{Verdict::cheating, {{"floor_us", floor}, {"samples_us", timing.samples_us}}, "below the floor"};
  }
  return std::nullopt;
}

Json Server::time_alone(const Subject& subject, const CaseData& data, Bench& bench, const TimingRules& rules) {
  Timing timing = PairedTimer(*flusher_, secrets_).measure(bench, rules);
  std::optional<Finding> finding = timing.failure;
  if (!finding) finding = below_floor(bench, data, timing);
  if (!finding) finding = PairedTimer(*flusher_, secrets_).watch(bench, watched_launches);
  if (!finding) finding = replay(subject, data, timing);
  if (finding) return verdict_json(*finding);
  return {{"verdict", "kept"}, {"evidence", evidence_of(timing)}, {"median_us", median(timing.samples_us)}};
}

Json Server::time(const Json& arguments) {
  const Subject subject = Subject::from_json(arguments.at("candidate"));
  const CaseData data = load_case(arguments);
  const TimingRules rules{arguments.value("minimum_gain", 0.01), arguments.value("maximum_seconds", 1.0)};
  if (auto finding = ready(candidate_, subject.module)) return verdict_json(*finding);
  Bench bench(*candidate_.host, data, subject.plan);
  bench.set_timeout(timeout_seconds(data));
  const uint64_t addresses = secrets_();
  if (auto finding = bench.place(addresses)) return verdict_json(*finding);
  if (auto finding = warm_up(bench)) return verdict_json(*finding);
  if (arguments.at("incumbent").is_null()) return time_alone(subject, data, bench, rules);

  const Subject other = Subject::from_json(arguments["incumbent"]);
  std::optional<Finding> excuse = ready(incumbent_, other.module);
  if (excuse)
    return verdict_json(
        {Verdict::failed_environment, {{"message", "the incumbent does not load"}, {"incumbent", verdict_json(*excuse)}}, {}});
  Bench incumbent(*incumbent_.host, data, other.plan);
  incumbent.set_timeout(timeout_seconds(data));
  excuse = incumbent.place(addresses);
  if (!excuse) excuse = warm_up(incumbent);
  Timing timing;
  if (!excuse) {
    timing = PairedTimer(*flusher_, secrets_).compare(bench, incumbent, rules);
    excuse = timing.incumbent_failure;
  }
  if (excuse)
    return verdict_json({Verdict::failed_environment, {{"message", "the incumbent fails"}, {"incumbent", verdict_json(*excuse)}}, {}});
  if (timing.failure) return verdict_json(*timing.failure);
  const double middle = median(timing.samples_us);
  const Json evidence = evidence_of(timing);
  if (!timing.faster) return {{"verdict", "slower"}, {"evidence", evidence}, {"median_us", middle}};
  if (auto finding = below_floor(bench, data, timing)) return verdict_json(*finding);
  if (auto finding = PairedTimer(*flusher_, secrets_).watch(bench, watched_launches)) return verdict_json(*finding);
  if (auto finding = replay(subject, data, timing)) return verdict_json(*finding);
  return {{"verdict", "kept"}, {"evidence", evidence}, {"median_us", middle}};
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
