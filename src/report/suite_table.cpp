// The kernel's own ratio stands in every row, also where it loses: what a plan would keep there is another question.
#include "report/suite_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace ak::report {
namespace {

const std::vector<std::string> usual_kinds = {"eager", "library", "compile", "compile_max_autotune"};

/// What a row says of the kernel: as confirmed, else as the search timed it.
struct Ours {
  double us = 0, best_us = 0, floor_us = 0, speedup = 0;
  std::optional<double> ci_low, ci_high;
};

std::optional<Ours> ours_of(const store::TaskState& state) {
  if (!state.incumbent || !state.baseline || state.incumbent->median_us <= 0) return std::nullopt;
  if (const store::Confirmation* known = state.confirmed())
    return Ours{known->kernel_us, known->baseline_us, known->floor_us, known->speedup, known->ci_low, known->ci_high};
  const double us = state.incumbent->median_us;
  return Ours{us, state.baseline->best_us, state.baseline->floor_us, state.baseline->best_us / us, std::nullopt, std::nullopt};
}

/// The usual kinds, and those that some row has beside them.
std::vector<std::string> kinds_of(const std::vector<SuiteLine>& lines) {
  std::vector<std::string> kinds = usual_kinds;
  for (const SuiteLine& line : lines) {
    if (!line.state.baseline) continue;
    for (const auto& [kind, us] : line.state.baseline->kinds_us) {
      if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
    }
  }
  return kinds;
}

std::string number(std::optional<double> value, int decimals) {
  return value && *value > 0 && std::isfinite(*value) ? fmt::format("{:.{}f}", *value, decimals) : "-";
}

bool of_several_backends(const std::vector<SuiteLine>& lines) {
  return std::ranges::any_of(lines, [&](const SuiteLine& line) { return line.state.backend != lines.front().state.backend; });
}

std::string row(const SuiteLine& line, const std::vector<std::string>& kinds, bool with_backend) {
  const auto& baseline = line.state.baseline;
  const std::optional<Ours> ours = ours_of(line.state);
  std::string text = fmt::format("{}\t{}\t{}", line.family, line.shape, line.dtype);
  if (with_backend) text += fmt::format("\t{}", kernel::name_of(line.state.backend));
  for (const std::string& kind : kinds) {
    const bool there = baseline && baseline->kinds_us.contains(kind);
    text += "\t" + (there ? number(baseline->kinds_us.at(kind), 2) : "-");
  }
  text +=
      fmt::format("\t{}\t{}", baseline ? baseline->best_kind : "-", baseline ? number(ours ? ours->best_us : baseline->best_us, 2) : "-");
  if (ours) {
    text += fmt::format("\t{}\t{}\t{}\t{}\t{}\t{}", number(ours->us, 2), number(ours->floor_us, 2), number(ours->us / ours->floor_us, 3),
                        number(ours->speedup, 3), number(ours->ci_low, 3), number(ours->ci_high, 3));
  } else {
    text += fmt::format("\t-\t{}\t-\t-\t-\t-", baseline ? number(baseline->floor_us, 2) : "-");
  }
  return text + fmt::format("\t{}\n", line.state.trials.size());
}

struct Mean {
  double sum_of_logs = 0;
  size_t count = 0;
  std::optional<double> value() const {
    return count == 0 ? std::nullopt : std::optional(std::exp(sum_of_logs / static_cast<double>(count)));
  }
};

Mean mean_of(const std::vector<SuiteLine>& lines) {
  Mean mean;
  for (const SuiteLine& line : lines) {
    const std::optional<Ours> ours = ours_of(line.state);
    if (!ours || ours->speedup <= 0) continue;
    mean.sum_of_logs += std::log(ours->speedup);
    ++mean.count;
  }
  return mean;
}

}  // namespace

std::string suite_tsv(const std::vector<SuiteLine>& lines) {
  const std::vector<std::string> kinds = kinds_of(lines);
  const bool with_backend = of_several_backends(lines);
  std::string text = std::string("family\tshape\tdtype") + (with_backend ? "\tbackend" : "");
  for (const std::string& kind : kinds) text += "\t" + kind;
  text += "\tbest_kind\tbest\tours\tfloor\tours/floor\tbest/ours\tci_low\tci_high\ttrials\n";
  for (const SuiteLine& line : lines) text += row(line, kinds, with_backend);
  const Mean mean = mean_of(lines);
  return text + fmt::format("geometric mean of best/ours over {} of {} rows\t{}\n", mean.count, lines.size(), number(mean.value(), 3));
}

std::string suite_text(const SuiteLine& line) {
  const std::string name = fmt::format("{} {} {}", line.family, line.shape, line.dtype);
  const std::optional<Ours> ours = ours_of(line.state);
  if (!ours) return name + ": no kernel yet";
  return fmt::format("{}: {:.2f} us, {:.3f} of the floor, {} takes {:.3f} of ours", name, ours->us, ours->us / ours->floor_us,
                     line.state.baseline->best_kind, ours->speedup);
}

Json suite_json(const std::vector<SuiteLine>& lines) {
  Json rows = Json::array();
  for (const SuiteLine& line : lines) {
    Json entry = {{"family", line.family},
                  {"shape", line.shape},
                  {"dtype", line.dtype},
                  {"task", line.state.id},
                  {"backend", kernel::name_of(line.state.backend)},
                  {"trials", line.state.trials.size()}};
    if (line.state.baseline) entry["baselines_us"] = line.state.baseline->kinds_us;
    if (line.state.baseline) entry["best_kind"] = line.state.baseline->best_kind;
    if (const auto ours = ours_of(line.state)) {
      entry.update({{"best_us", ours->best_us}, {"ours_us", ours->us}, {"floor_us", ours->floor_us}, {"speedup", ours->speedup}});
      if (ours->ci_low) entry.update({{"ci_low", *ours->ci_low}, {"ci_high", *ours->ci_high}});
      entry["point"] = line.state.incumbent->point;
    }
    rows.push_back(std::move(entry));
  }
  const Mean mean = mean_of(lines);
  return {{"rows", rows}, {"geometric_mean", mean.value() ? Json(*mean.value()) : Json()}, {"with_kernel", mean.count}};
}

}  // namespace ak::report
