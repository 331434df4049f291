// The processes that serve a run, and the next run after it. Each is started when first needed.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bridge/process_worker.h"
#include "compile/compiler.h"
#include "judge/judge_process.h"
#include "search/task_search.h"

namespace ak::cli {

class Processes {
 public:
  /// `device`: cpu or cuda.
  explicit Processes(std::string device) : device_(std::move(device)) {}

  /// The worker, whatever model is loaded in it. `log`: where its standard error goes, of the run that has it started.
  bridge::ProcessWorker& worker(const std::filesystem::path& log);
  bool has_worker() const { return worker_ != nullptr; }
  /// Load a model unless it is loaded; returns what the loader warned of.
  std::vector<std::string> load(const bridge::LoadRequest& model);
  /// Whether `model` is what is loaded now.
  bool is_loaded(const bridge::LoadRequest& model) const { return worker_ && loaded_ == text_of(model); }

  /// patterns.json of the families in a dtype.
  struct Patterns {
    std::string text;
    std::vector<bridge::PatternsResult::SpellingError> errors;
  };
  /// Traced at the first call, by the worker, which runs by then.
  const Patterns& patterns(const std::string& dtype);
  bool has_patterns(const std::string& dtype) const { return patterns_.contains(dtype); }

  compile::Compiler& compiler(kernel::Backend backend);
  judge::JudgeProcess& judge();
  /// Of this machine, measured at the first call.
  const search::Ceilings& ceilings();
  /// Once: that modules of Triton are launched as they should. errors: they are not.
  void prove_triton();

 private:
  static std::string text_of(const bridge::LoadRequest& model);

  std::string device_;
  std::unique_ptr<bridge::ProcessWorker> worker_;
  std::optional<std::string> loaded_;
  std::map<std::string, Patterns> patterns_;
  std::map<kernel::Backend, std::unique_ptr<compile::Compiler>> compilers_;
  std::unique_ptr<judge::JudgeProcess> judge_;
  std::optional<search::Ceilings> ceilings_;
  bool triton_proved_ = false;
};

}  // namespace ak::cli
