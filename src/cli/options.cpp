// From words to a request.
#include "cli/options.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "core/dtype.h"
#include "core/error.h"
#include "device/cuda/driver.h"

namespace ak::cli {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> parse_shape(const std::string& text) {
  std::vector<int64_t> shape;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int64_t extent = 0;
    const auto [next, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent <= 0 || (next < end && *next != ',')) {
      throw Error("--input-shape " + text + " is not a list of positive integers", "write it like 1,256");
    }
    shape.push_back(extent);
    at = next < end ? next + 1 : end;
  }
  return shape;
}

void settle_device(store::RunRequest& request) {
  static const std::map<std::string, std::string> device_of = {{"cpu", "cpu"}, {"cuda", "cuda"}, {"triton", "cuda"}, {"both", "cuda"}};
  const auto known = device_of.find(request.backend);
  if (known == device_of.end() && request.backend != "auto")
    throw Error("this version has no backend '" + request.backend + "'", "use --backend cpu, cuda, triton, both or auto");
  if (request.device == "auto") {
    request.device = known != device_of.end() ? known->second : device_or_here("auto");
  }
  if (request.device != "cpu" && request.device != "cuda" && request.device != "null")
    throw Error("unknown device '" + request.device + "'", "use cpu, cuda, null or auto");
  const std::string fitting = request.device == "cuda" ? "cuda" : "cpu";
  if (request.backend == "auto") request.backend = fitting;
  if (device_of.at(request.backend) != fitting)
    throw Error("kernels of the backend " + request.backend + " do not run on the device " + request.device,
                "use --backend " + fitting + ", or leave it out");
  if (request.device == "cuda") device::cuda::driver();  // else an error that says what is missing
}

fs::path newest_run(const fs::path& parent) {
  fs::path newest;
  fs::file_time_type time{};
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const fs::path journal = entry.path() / "journal.jsonl";
    if (!fs::exists(entry.path() / "graph.json") || !fs::exists(journal))
      continue;  // a run whose model never loaded is no run to go on with
    if (newest.empty() || fs::last_write_time(journal) > time) {
      newest = entry.path();
      time = fs::last_write_time(journal);
    }
  }
  return newest;
}

}  // namespace

std::string device_or_here(const std::string& device) {
  if (device != "auto") return device;
  return device::cuda::count() > 0 ? "cuda" : "cpu";
}

void settle_request(Options& options) {
  store::RunRequest& request = options.request;
  if (request.is_suite()) return settle_device(request);
  request.input_shape = parse_shape(options.input_shape);
  const auto dtype = find_dtype(request.dtype);
  if (dtype != Dtype::float32 && dtype != Dtype::float16 && dtype != Dtype::bfloat16) {
    throw Error("a model cannot run in " + request.dtype, "use float32, float16 or bfloat16");
  }
  request.dtype = name_of(*dtype);
  settle_device(request);
  const size_t colon = request.model.rfind(':');
  if (colon == std::string::npos || colon + 1 == request.model.size()) {
    throw Error("MODEL is '" + request.model + "'", "write file.py:Class, module:Class, hf:CONFIG_DIR or file.py:function");
  }
  const std::string source = request.model.substr(0, colon);
  if (source.ends_with(".py") && !fs::exists(source))
    throw Error("there is no file " + source, "MODEL is file.py:Class, module:Class, hf:CONFIG_DIR or file.py:function");
  if (source.ends_with(".py")) request.model = fs::absolute(source).lexically_normal().string() + request.model.substr(colon);
}

fs::path directory_for_request(const Options& options) {
  if (!options.run_directory.empty()) return options.run_directory;
  const fs::path directory = store::Run::default_directory(options.request);
  if (!options.fresh || !fs::exists(directory)) return directory;
  for (int number = 2;; ++number) {
    fs::path next = directory.string() + "-" + std::to_string(number);
    if (!fs::exists(next)) return next;
  }
}

fs::path existing_directory(const Options& options) {
  if (!options.run_directory.empty()) return options.run_directory;
  for (fs::path directory = fs::current_path(); directory != directory.parent_path(); directory = directory.parent_path()) {
    if (fs::exists(directory / "run.toml") && fs::exists(directory / "journal.jsonl")) return directory;
  }
  fs::path newest = newest_run("autokernel-runs");
  if (newest.empty())
    throw Error("there is no run here", "start one with `autokernel run MODEL` or `autokernel prepare MODEL`, or name one with --run-dir");
  return newest;
}

}  // namespace ak::cli
