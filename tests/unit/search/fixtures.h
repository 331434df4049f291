// A kernel file with tunables whose best point is known, and the history of a simulated search.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "kernel/kernel_file.h"
#include "kernel/task.h"
#include "search/proposer.h"

namespace ak::search::testing {

inline std::string kernel_text(const std::string& tune) {
  return "/*autokernel\nfamily = \"rmsnorm\"\nbackend = \"cpu\"\n\n[tune]\n" + tune +
         "\n\n[[launch]]\nkernel = \"rows\"\ngrid = [\"M\"]\nargs = [\"x\", \"out\", \"M\", \"N\"]\n*/\nvoid rows();\n";
}

inline const std::string four_tunables = R"(UNROLL = { values = [1, 2, 4, 8], default = 1, tier = 3 }
ROWS   = { values = [1, 2, 4, 8, 16], default = 1, tier = 1 }
BLOCK  = { values = [16, 32, 64, 128], default = 16, tier = 1 }
VEC    = { values = [4, 8, 16], default = 4, tier = 2 }
require = ["ROWS * VEC <= M"])";

inline kernel::Task small_task() {
  return kernel::task_from_json(
      {{"schema", "autokernel.task/1"},
       {"id", "rmsnorm_12345678"},
       {"family", "rmsnorm"},
       {"dtype", "float32"},
       {"scalars", Json::object()},
       {"options", Json::object()},
       {"flops", "4*M*N"},
       {"bytes", "2*M*N*sizeof(T)"},
       {"workload", {{{"dims", {{"M", 100}, {"N", 96}}}, {"calls", 3}}, {{"dims", {{"M", 64}, {"N", 96}}}, {"calls", 1}}}},
       {"tensors",
        {{{"name", "x"}, {"role", "data"}, {"dtype", "float32"}, {"shape", {"M", "N"}}},
         {{"name", "out"}, {"role", "output"}, {"dtype", "float32"}, {"shape", {"M", "N"}}}}}});
}

inline Space small_space(int highest_tier = 6) {
  return Space(kernel::KernelFile::parse(kernel_text(four_tunables), "kernel.cpp"), small_task(), {}, highest_tier);
}

/// A separable cost with its optimum at ROWS 8, BLOCK 64, VEC 8, UNROLL 2.
inline double separable_us(const kernel::Point& point) {
  const auto part = [&](const char* name, double best) { return std::abs(std::log2(static_cast<double>(point.at(name)) / best)); };
  return 100 + 20 * part("ROWS", 8) + 10 * part("BLOCK", 64) + 5 * part("VEC", 8) + 2 * part("UNROLL", 2);
}

/// Judges proposals by `cost` until the proposer has none left or `limit` is reached; keeps what is faster.
template <typename Cost>
std::vector<store::Trial> simulate(Proposer& proposer, const Space& space, int limit, Cost cost) {
  std::vector<store::Trial> trials;
  double best = INFINITY;
  for (int i = 0; i < limit; ++i) {
    const History history(space, trials);
    const auto proposal = proposer.next(history);
    if (!proposal) break;
    store::Trial trial;
    trial.experiment = i + 1;
    trial.point = proposal->point;
    trial.proposer = proposal->proposer;
    trial.note = proposal->note;
    trial.median_us = cost(proposal->point);
    trial.verdict = trial.median_us < best ? "kept" : "slower";
    trial.kernel_hash = kernel_hash(space.file(), proposal->point);
    best = std::min(best, trial.median_us);
    trials.push_back(std::move(trial));
  }
  return trials;
}

}  // namespace ak::search::testing
