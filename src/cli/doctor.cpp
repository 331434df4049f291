// Each check is one function that returns one finding; the list of them is the whole command.
#include "cli/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "bridge/python.h"
#include "bridge/worker.h"
#include "compile/cpp_compiler.h"
#include "compile/cuda_compiler.h"
#include "compile/triton_server.h"
#include "core/error.h"
#include "core/file.h"
#include "core/process.h"
#include "device/cuda/facts.h"
#include "device/cuda/nvml.h"
#include "judge/judge_process.h"

namespace ak::cli {
namespace {

using State = Finding::State;
using namespace std::chrono_literals;
namespace cuda = device::cuda;

Finding processor() {
  std::string model, flags;
  std::istringstream lines(read_file("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("model name", 0) == 0 && model.empty()) model = line.substr(line.find(':') + 2);
    if (line.rfind("flags", 0) == 0 && flags.empty()) flags = line + " ";
  }
  std::string vectors;
  for (const char* flag : {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (flags.find(std::string(" ") + flag + " ") != std::string::npos) vectors += (vectors.empty() ? "" : " ") + std::string(flag);
  }
  const bool fast = vectors.find("avx2") != std::string::npos;
  return {fast ? State::present : State::optional_missing, "processor",
          fmt::format("{}, {} threads, {}", model, std::thread::hardware_concurrency(), vectors.empty() ? "no AVX2" : vectors),
          fast ? "" : "kernels run without AVX2, but gains will be small"};
}

/// Of a compiler, by what confines its compiles.
Finding confined(const char* name, const std::string& found, const std::vector<std::string>& sandbox) {
  const bool full = sandbox.size() >= 3;
  return {full ? State::present : State::optional_missing, name,
          fmt::format("{}, confined by {}", found, sandbox.empty() ? "nothing" : fmt::format("{}", fmt::join(sandbox, ", "))),
          full ? "" : "a Linux kernel with Landlock (5.19 or later) and seccomp gives all of files, calls, limits"};
}

Finding cpp_compiler() {
  try {
    const auto compiler = compile::CppCompiler::find(home_directory() / "kernels" / "include", cache_directory() / "compile");
    return confined("C++ compiler", compiler.version(), compiler.sandbox());
  } catch (const Error& error) {
    return {State::missing, "C++ compiler", error.what(), error.what_to_do()};
  }
}

Finding python_packages() {
  constexpr const char* script =
      "import importlib.metadata as m,sys\nprint('python', sys.version.split()[0])\nfor p in ('torch','triton','transformers','numpy'):\n  "
      "try: print(p, m.version(p))\n"
      "  except m.PackageNotFoundError: pass\n";
  try {
    const auto python = bridge::find_python();
    const CommandResult result = run_command({.arguments = {python.string(), "-c", script}}, 20s);
    std::string detail = result.output;
    std::replace(detail.begin(), detail.end(), '\n', ' ');
    if (!result.status.success())
      return {State::missing, "Python", python.string() + ": " + detail, "set AUTOKERNEL_PYTHON to a Python 3.10 or newer"};
    if (detail.find("torch ") == std::string::npos)
      return {State::missing, "PyTorch", python.string() + " has no torch: " + detail,
              "`" + python.string() + " -m pip install torch`, or set AUTOKERNEL_PYTHON to one that has it"};
    return {State::present, "Python and PyTorch", detail + "(" + python.string() + ")", ""};
  } catch (const Error& error) {
    return {State::missing, "Python", error.what(), error.what_to_do()};
  }
}

Finding families() {
  try {
    const auto directory = home_directory() / "kernels";
    int64_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) count += std::filesystem::exists(entry.path() / "family.toml");
    return {count > 0 ? State::present : State::missing, "kernel families", fmt::format("{} in {}", count, directory.string()),
            count > 0 ? "" : "set AUTOKERNEL_HOME to a checkout or an installation"};
  } catch (const Error& error) {
    return {State::missing, "kernel families", error.what(), error.what_to_do()};
  }
}

Finding judge_program() {
  try {
    judge::JudgeProcess process(judge::judge_beside_program(), {{"device", "cpu"}});
    const auto levels = process.opened().at("sandbox").get<std::vector<std::string>>();
    const bool full = levels.size() == 3;
    return {full ? State::present : State::optional_missing, "judge and sandbox",
            fmt::format("candidates are confined by {}", fmt::join(levels, ", ")),
            full ? "" : "a Linux kernel with Landlock and seccomp gives all of limits, calls, files"};
  } catch (const Error& error) {
    return {State::missing, "judge", error.what(), error.what_to_do()};
  }
}

Finding python_sandbox() {
  const std::string judge = judge::judge_beside_program().string();
  const CommandResult result = run_command({.arguments = {judge, "--confine", "--", "/bin/sh", "-c", "echo $AUTOKERNEL_SANDBOX"}}, 20s);
  if (!result.status.success())
    return {State::missing, "sandbox for Python", result.output, "Python solutions cannot be judged without it"};
  const std::string levels = result.output.substr(0, result.output.find('\n'));
  const bool full = levels == "bubblewrap files calls limits";
  return {full ? State::present : State::optional_missing, "sandbox for Python",
          "solutions are confined by " + (levels.empty() ? "nothing" : levels),
          full ? ""
               : "bubblewrap (Debian: apt-get install bubblewrap) and a Linux with Landlock and seccomp give all of bubblewrap, files, "
                 "calls, limits"};
}

Finding cuda_driver() {
  try {
    const cuda::Driver& driver = cuda::driver();
    int version = 0;
    driver.cuDriverGetVersion(&version);
    char name[128] = "?";
    driver.cuDeviceGetName(name, sizeof name, 0);
    return {State::present, "CUDA driver and GPU",
            fmt::format("{} ({}), {} of them, driver for CUDA {}.{}", name, cuda::architecture(0), cuda::count(), version / 1000,
                        version % 1000 / 10),
            ""};
  } catch (const Error& error) {
    return {State::optional_missing, "CUDA driver and GPU", error.what(),
            "nothing to do on a machine without a GPU: the CPU is the target"};
  }
}

Finding nvml() {
  try {
    const auto library = cuda::Nvml::open(cuda::bus_id(0));
    if (!library)
      return {State::optional_missing, "NVML", "no libnvidia-ml.so.1 that knows the GPU", "other work on the GPU is not noticed"};
    return {State::present, "NVML",
            fmt::format("driver {}, {} processes on the GPU", library->driver_version(), library->processes().size()), ""};
  } catch (const Error&) {
    return {State::optional_missing, "NVML", "no GPU to ask about", "nothing to do on a machine without a GPU"};
  }
}

Finding nvrtc() {
  try {
    const auto toolkit = compile::CudaToolkit::find();
    const compile::NvrtcFacts facts = compile::nvrtc_facts(judge::judge_beside_program(), toolkit);
    return confined("CUDA compiler", fmt::format("{} ({})", facts.version, toolkit.nvrtc.string()), facts.sandbox);
  } catch (const Error& error) {
    return {State::optional_missing, "CUDA compiler", error.what(), error.what_to_do() + "; needed on a machine with a GPU only"};
  }
}

Finding triton() {
  try {
    const compile::TritonServer server;
    return confined("Triton", server.version() + ", compiles without a GPU", server.sandbox());
  } catch (const Error& error) {
    return {State::optional_missing, "Triton", error.what(), error.what_to_do() + "; needed for --backend triton only"};
  }
}

Finding shared_memory() {
  const bool writable = ::access("/dev/shm", W_OK) == 0;
  std::error_code ignored;
  const auto space = std::filesystem::space(writable ? "/dev/shm" : "/tmp", ignored);
  return {State::present, "shared memory",
          fmt::format("{} with {:.1f} GB free", writable ? "/dev/shm" : "/tmp", static_cast<double>(space.available) * 1e-9), ""};
}

Finding disk() {
  std::error_code ignored;
  const auto space = std::filesystem::space(std::filesystem::current_path(), ignored);
  const bool enough = space.available > 200'000'000;
  return {enough ? State::present : State::missing, "disk", fmt::format("{:.1f} GB free here", static_cast<double>(space.available) * 1e-9),
          enough ? "" : "free some space: a run needs about 100 MB"};
}

const char* mark(State state) {
  switch (state) {
    case State::present: return "ok      ";
    case State::optional_missing: return "optional";
    case State::missing: return "MISSING ";
  }
  return "";
}

}  // namespace

std::vector<Finding> examine_machine() {
  return {processor(),     cpp_compiler(), python_packages(), families(), judge_program(), python_sandbox(),
          shared_memory(), disk(),         cuda_driver(),     nvml(),     nvrtc(),         triton()};
}

bool healthy(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.state == State::missing; });
}

std::string doctor_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{}  {:<20} {}\n", mark(finding.state), finding.name, finding.detail);
    if (!finding.how_to_get.empty()) text += fmt::format("{:10}{:<20} → {}\n", "", "", finding.how_to_get);
  }
  return text + (healthy(findings) ? "\nReady: autokernel run MODEL\n" : "\nNot ready: see MISSING above.\n");
}

Json doctor_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    const char* state = finding.state == State::present ? "present" : finding.state == State::missing ? "missing" : "optional";
    list.push_back({{"name", finding.name}, {"state", state}, {"detail", finding.detail}, {"how_to_get", finding.how_to_get}});
  }
  return {{"healthy", healthy(findings)}, {"findings", std::move(list)}};
}

}  // namespace ak::cli
