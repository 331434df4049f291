// Tab-separated, one line a trial. Tabs and line ends inside a description become spaces.
#include "store/results.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace ak::store {
namespace {

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
  return text;
}

// The correctness column, by verdict (docs/formats/judge.md).
std::string correctness(const std::string& verdict) {
  if (verdict == "kept" || verdict == "slower") return "PASS";
  if (verdict == "timed_out") return "TIMEOUT";
  if (verdict == "crashed" || verdict == "does_not_compile" || verdict == "does_not_fit" || verdict == "out_of_memory") return "CRASH";
  return "FAIL";
}

std::string number(double value, int decimals) { return value > 0 ? fmt::format("{:.{}f}", value, decimals) : "0"; }

}  // namespace

const std::vector<std::string>& result_columns() {
  static const std::vector<std::string> columns = {"experiment",   "tag",        "kernel_type",        "throughput_tflops",
                                                   "latency_us",   "pct_peak",   "speedup_vs_pytorch", "correctness",
                                                   "peak_vram_mb", "description"};
  return columns;
}

std::string results_header() { return fmt::format("{}\n", fmt::join(result_columns(), "\t")); }

std::string results_row(const TaskState& task, const Baseline& baseline) {
  std::string kinds;
  for (const auto& [kind, us] : baseline.kinds_us) kinds += fmt::format(" {} {:.2f} us", kind, us);
  return fmt::format("0\t{}\t{}\t0\t{}\t0\t1.000\tPASS\t0\tbaseline:{}\n", task.id, task.family, number(baseline.eager_us, 3), kinds);
}

std::string results_row(const TaskState& task, const Trial& trial) {
  if (trial.verdict == "failed_environment") return {};
  const std::string verdict = trial.rule.empty() ? trial.verdict : trial.verdict + "(" + trial.rule + ")";
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", trial.experiment, task.id, task.family, number(trial.tflops, 4),
                     number(trial.median_us, 3), number(trial.percent_of_peak, 2), number(trial.speedup_vs_eager, 3),
                     correctness(trial.verdict), number(trial.peak_memory_mb, 1), one_line(verdict + ": " + trial.note));
}

}  // namespace ak::store
