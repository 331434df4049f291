// The problems are Python files, so Python works on them; it starts `autokernel run` for each search.
#include "cli/kernelbench.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "bridge/python.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/file.h"
#include "judge/judge_process.h"

namespace ak::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t default_experiments = 100;
constexpr const char* default_directory = "autokernel-runs/kernelbench";

std::string settled_backend(const std::string& backend) {
  if (backend == "auto") return device_or_here(backend);
  static const std::set<std::string> known = {"cpu", "cuda", "triton", "both"};
  if (!known.contains(backend)) throw Error("there is no backend '" + backend + "'", "use --backend cpu, cuda, triton, both or auto");
  return backend;
}

std::string settled_dtype(const std::string& name) {
  const auto dtype = find_dtype(name);
  if (dtype != Dtype::float32 && dtype != Dtype::float16 && dtype != Dtype::bfloat16)
    throw Error("KernelBench has no evaluation in " + name, "use --dtype float32, float16 or bfloat16");
  return std::string(name_of(*dtype));
}

Json request_of(const Options& options) {
  const KernelbenchOptions& asked = options.kernelbench;
  return {{"verb", asked.verb},
          {"source", asked.source},
          {"level", asked.level},
          {"problems", asked.problems},
          {"run_dir", options.run_directory.empty() ? default_directory : options.run_directory.string()},
          {"backend", settled_backend(options.request.backend)},
          {"precision", settled_dtype(options.request.dtype)},
          {"experiments", options.experiments.value_or(default_experiments)},
          {"evaluation_s", asked.evaluation_s},
          {"program", fs::read_symlink("/proc/self/exe").string()},
          {"json", options.json}};
}

}  // namespace

Exit kernelbench(Options& options) {
  bridge::become_python("autokernel.kernelbench", {request_of(options).dump()},
                        {{"AUTOKERNEL_HOME", home_directory().string()}, {"AUTOKERNEL_JUDGE", judge::judge_beside_program().string()}});
}

}  // namespace ak::cli
