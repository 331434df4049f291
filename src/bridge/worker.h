// The PyTorch worker as the engine sees it: the verbs of docs/formats/worker.md with types.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "kernel/task.h"

namespace ak::bridge {

/// What the worker says of itself when it starts.
struct Greeting {
  std::string python, torch;
  std::vector<std::string> devices, capabilities;
  int64_t threads = 1;
};

struct LoadRequest {
  std::string model;
  std::vector<int64_t> input_shape;   // empty: the model's own inputs
  std::string dtype, device = "cpu";  // dtype empty: the model's own
  int64_t seed = 0;
};

struct TensorInfo {
  std::string dtype;
  std::vector<int64_t> shape;
};

struct LoadedModel {
  int64_t parameters = 0;
  std::vector<TensorInfo> inputs, output;
  std::vector<std::string> warnings;
  std::string kind;
};

struct CaptureResult {
  std::string capture;  // export | dynamo
  std::string reason;   // why not export; empty where it was
  int64_t graphs = 0, nodes = 0;
};

struct PatternsResult {
  struct SpellingError {
    std::string family, spelling, message;
  };
  int64_t patterns = 0;
  std::vector<SpellingError> errors;
};

struct ProfileResult {
  double total_us = 0;
  int64_t nodes = 0;
};

struct FixtureFiles {
  std::filesystem::path inputs, expected;
  int64_t bytes = 0;
};

struct BaselineRequest {
  kernel::Task task;
  kernel::Binding binding;
  int64_t seed = 0;
  std::vector<std::string> kinds = {"eager", "library", "compile"};
  int64_t rounds = 20, flush_bytes = 0;
  std::string device;  // empty: the loaded model's
};

/// Samples of one kind of baseline, or why there are none.
struct BaselineTimes {
  std::vector<double> samples_us;
  std::string error;
};

/// Told what the worker is doing; `total` is 0 where it does not know.
using Progress = std::function<void(const std::string& text, int64_t done, int64_t total)>;

/// Answers requests on a model, one at a time. Fakes implement request() alone.
class Worker {
 public:
  virtual ~Worker() = default;

  /// Send one request and wait for its result.
  /// errors: the user's (their traceback is in the text, as is), the environment's, a fault of the worker, its death, its silence.
  virtual Json request(const std::string& verb, const Json& arguments) = 0;

  LoadedModel load(const LoadRequest& wanted);
  /// Write graph.json to `path`.
  CaptureResult capture(const std::filesystem::path& path);
  /// Write patterns.json to `path`.
  PatternsResult patterns(const std::filesystem::path& families, const std::vector<std::string>& dtypes, const std::filesystem::path& path);
  /// Write profile.json to `path`.
  ProfileResult profile(int64_t iterations, const std::filesystem::path& path);
  /// Make the inputs and expected outputs of a case (docs/formats/task.md) in `directory`. `device`: where they are computed; empty: on
  /// that of the loaded model.
  FixtureFiles fixtures(const kernel::Task& task, const Json& test_case, const std::filesystem::path& directory,
                        const std::string& device = {});
  std::map<std::string, BaselineTimes> baseline(const BaselineRequest& wanted);
  /// Compile these kinds of baselines of tasks' first workloads, for the caches that `baseline` reads in this process and others.
  void compile_ahead(const std::vector<kernel::Task>& tasks, const std::vector<std::string>& kinds, int64_t seed,
                     const std::string& device);
  /// Write verification.json to `path`, and return its content.
  Json verify(const std::filesystem::path& run, const std::vector<std::string>& exclude, int64_t rounds, const std::filesystem::path& path);

  void set_progress(Progress progress) { progress_ = std::move(progress); }

 protected:
  void report(const std::string& text, int64_t done, int64_t total) const {
    if (progress_) progress_(text, done, total);
  }

 private:
  Progress progress_;
};

}  // namespace ak::bridge
