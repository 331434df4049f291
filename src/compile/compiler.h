// What turns a kernel file into a module: a child process with limits, its results cached by content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/expression.h"
#include "core/process.h"
#include "kernel/launch_plan.h"

namespace ak::compile {

using Macros = std::vector<std::pair<std::string, std::string>>;

/// One translation unit: a kernel file's text, and what it is compiled for.
struct Source {
  std::string text;
  Macros macros;              // of kernel::macros; C++ and CUDA
  std::string specification;  // of kernel::triton_specification; Triton
};

/// Of a candidate for a binding of its task, which decides nothing but for Triton.
/// errors: as kernel::make_concrete, for Triton.
Source source_of(const kernel::KernelFile& file, const kernel::Task& task, const kernel::Point& point, const kernel::Binding& binding,
                 const Bindings& device_facts);

struct Result {
  bool compiled = false;
  std::filesystem::path module;  // of the cache, where it compiled
  std::string log;               // the compiler's messages, cut to a readable length; paths relative to the file
  bool from_cache = false;
  double seconds = 0;
};

struct Limits {
  double seconds = 60;
  int64_t memory_bytes = int64_t{4} << 30, file_bytes = int64_t{256} << 20;
};

/// Compiles to modules in `<cache>/<hash>.<ending>`. Safe to use from several threads.
class Compiler {
 public:
  virtual ~Compiler() = default;

  /// errors: the cache cannot be written.
  Result compile(const Source& source, const Limits& limits = {}) const;
  /// The same for many, `threads` at a time; in order.
  std::vector<Result> compile(std::span<const Source> sources, int threads, const Limits& limits = {}) const;

  /// From now on no source whose specification names `feature` compiles, for `reason`. Before other threads compile.
  void refuse(std::string feature, std::string reason) { refused_.emplace_back(std::move(feature), std::move(reason)); }

  /// What decides the module, as a hash: its name in the cache.
  std::string key(const Source& source) const;

  /// "g++ (Debian 12.2.0-14) 12.2.0", "NVRTC 13.2".
  const std::string& version() const { return version_; }
  /// What confines a compile, of files, calls and limits, as a child finds out that is confined as one.
  virtual std::vector<std::string> sandbox() const = 0;

 protected:
  /// `cache`: of all compilers; `ending` of a module's file name.
  Compiler(std::filesystem::path cache, std::string source_name, std::string ending)
      : cache_directory_(std::move(cache)), source_name_(std::move(source_name)), ending_(std::move(ending)) {}

  std::string version_, identity_;                     // identity_: whatever else decides the code that comes out
  std::vector<std::filesystem::path> shown_relative_;  // include directories that a log names files of without

 private:
  /// What the child compiles: `source_name_`.
  virtual std::string translation_unit(const Source& source) const { return source.text; }
  /// Make `module_name` in `directory`, which holds the translation unit, within the limits.
  virtual CommandResult run(const Source& source, const std::filesystem::path& directory, const std::string& module_name,
                            const Limits& limits) const = 0;

  std::string readable(std::string log) const;
  /// Why a source is refused; empty where it is not.
  std::string refusal(const Source& source) const;

  std::filesystem::path cache_directory_;
  std::string source_name_, ending_;
  std::vector<std::pair<std::string, std::string>> refused_;  // feature, reason
};

/// Every file below a directory with its name, for an identity.
std::string content_of_headers(const std::filesystem::path& directory);

/// Run a compiler's program in `directory` (empty: ours), messages in English, processor time and the size of files limited.
CommandResult run_limited(ProcessOptions options, const Limits& limits, const std::filesystem::path& directory);

/// The words of what a child says.
std::vector<std::string> split_words(const std::string& text);

/// Run a compiler's program in `directory` (empty: ours), messages in English.
CommandResult run_child(ProcessOptions options, double seconds, const std::filesystem::path& directory = {});

}  // namespace ak::compile
