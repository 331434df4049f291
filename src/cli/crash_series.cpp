// Once around to warm up, then a snapshot of what this process holds, the series, and the same snapshot again.
#include "cli/crash_series.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/toolchain.h"
#include "core/error.h"
#include "core/file.h"
#include "core/process.h"
#include "device/cuda/facts.h"
#include "judge/self_test.h"

namespace ak::cli {
namespace {

namespace fs = std::filesystem;
using judge::Verdict;

constexpr int trials_a_twin = 10;
constexpr double most_growth_mb = 32, most_device_growth_mb = 64;  // caches of the allocator and of the driver

int64_t descendants_of(pid_t ancestor) {
  int64_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0 || parent_of(process) != ancestor) continue;
    count += 1 + descendants_of(process);
  }
  return count;
}

double resident_mb() {
  std::istringstream sizes(read_file("/proc/self/statm"));
  int64_t total = 0, resident = 0;
  sizes >> total >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) * 1e-6;
}

/// Of the driver's first GPU, by its own tool, which may number them otherwise; 0 on the CPU.
double device_mb(const std::string& device) {
  if (device != "cuda") return 0;
  const CommandResult result =
      run_command({.arguments = {"nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", device::cuda::bus_id(0)}},
                  std::chrono::seconds(20));
  if (!result.status.success()) throw Error("nvidia-smi does not say how much memory is used: " + result.output);
  return std::strtod(result.output.c_str(), nullptr);
}

struct Holdings {
  int64_t files = 0;
  double memory_mb = 0, device_mb = 0;

  static Holdings now(const std::string& device) {
    return {std::distance(fs::directory_iterator("/proc/self/fd"), {}), resident_mb(), cli::device_mb(device)};
  }
};

struct Tally {
  int64_t trials = 0, as_expected = 0, twins = 0, twins_kept = 0;
};

bool ends_badly(const judge::Pair& pair) {
  return pair.verdict == Verdict::crashed || pair.verdict == Verdict::timed_out || pair.verdict == Verdict::out_of_memory;
}

std::vector<const judge::Pair*> deadly_pairs(const judge::SelfTest& suite) {
  std::vector<const judge::Pair*> pairs;
  for (const judge::Pair& pair : suite.pairs()) {
    if (ends_badly(pair)) pairs.push_back(&pair);
  }
  if (pairs.empty()) throw Error("the self-test has no candidate that crashes on this device");
  return pairs;
}

void judge_one(judge::SelfTest& suite, const judge::Pair& pair, Tally& tally) {
  const judge::Judgement planted = suite.judge(pair, true);
  ++tally.trials;
  tally.as_expected += judge::caught(pair, planted) ? 1 : 0;
  if (!judge::caught(pair, planted))
    fmt::print(stderr, "{}: expected {}, got {} {}\n", pair.name, judge::expected_text(pair), judge::verdict_text(planted),
               planted.evidence.dump());
  if (tally.trials % trials_a_twin != 0) return;
  ++tally.twins;
  tally.twins_kept += suite.judge(pair, false).verdict == Verdict::kept ? 1 : 0;
}

Tally judge_series(judge::SelfTest& suite, int64_t trials) {
  const std::vector<const judge::Pair*> pairs = deadly_pairs(suite);
  Tally tally;
  for (int64_t i = 0; i < trials; ++i) judge_one(suite, *pairs[static_cast<size_t>(i) % pairs.size()], tally);
  return tally;
}

}  // namespace

std::string self_test_device(const Options& options) {
  const std::string device = options.request.device == "auto" ? "cpu" : options.request.device;
  if (device != "cpu" && device != "cuda") throw Error("the self-test has no device '" + device + "'", "use --device cpu or cuda");
  return device;
}

Exit crash_series(const Options& options) {
  const std::string device = self_test_device(options);
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<compile::Compiler> compiler = make_compiler(kernel::parse_backend(device));
  const Json opening = judge_opening(device, *compiler);
  const auto open = [&] {
    return std::make_unique<judge::SelfTest>(home_directory() / "playbook" / "self_test", judge::judge_beside_program(), *compiler,
                                             opening);
  };
  auto suite = open();
  judge_series(*suite, static_cast<int64_t>(deadly_pairs(*suite).size()));
  suite.reset();
  const Holdings before = Holdings::now(device);
  suite = open();
  const Tally tally = judge_series(*suite, options.crashes);
  suite.reset();
  const Holdings after = Holdings::now(device);
  const int64_t processes_left = descendants_of(::getpid()), files_left = after.files - before.files;
  const double growth_mb = after.memory_mb - before.memory_mb, device_growth_mb = after.device_mb - before.device_mb;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{}\n", nlohmann::ordered_json{{"trials", tally.trials},
                                            {"as_expected", tally.as_expected},
                                            {"twins", tally.twins},
                                            {"twins_kept", tally.twins_kept},
                                            {"processes_left", processes_left},
                                            {"files_left", files_left},
                                            {"memory_growth_mb", growth_mb},
                                            {"device_memory_growth_mb", device_growth_mb},
                                            {"seconds", seconds.count()}}
                         .dump());
  const bool clean = processes_left == 0 && files_left == 0 && growth_mb <= most_growth_mb && device_growth_mb <= most_device_growth_mb;
  return clean && tally.as_expected == tally.trials && tally.twins_kept == tally.twins ? Exit::done : Exit::failed;
}

}  // namespace ak::cli
