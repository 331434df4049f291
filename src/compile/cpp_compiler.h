// The system's C++ compiler for kernel.cpp: found once, kept small by limits, its results cached by content.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ak::compile {

using Macros = std::vector<std::pair<std::string, std::string>>;

/// One translation unit: a kernel file's text and the macros of kernel::macros.
struct Source {
  std::string text;
  Macros macros;
};

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

/// Compiles to shared objects in `<cache>/<hash>.so`. Safe to use from several threads.
class CppCompiler {
 public:
  /// `program` empty: $CXX, else g++, else clang++, whichever first understands the kernels' header.
  /// errors: no compiler that does; the text says what was tried.
  static CppCompiler find(const std::filesystem::path& include_directory, const std::filesystem::path& cache_directory,
                          const std::string& program = {});

  /// errors: the cache cannot be written.
  Result compile(const Source& source, const Limits& limits = {}) const;
  /// The same for many, `threads` at a time; in order.
  std::vector<Result> compile(std::span<const Source> sources, int threads, const Limits& limits = {}) const;

  /// "g++ (Debian 12.2.0-14) 12.2.0".
  const std::string& version() const { return version_; }
  const std::filesystem::path& program() const { return program_; }

 private:
  CppCompiler() = default;
  std::string key(const Source& source) const;
  std::string readable(std::string log) const;

  std::filesystem::path program_, include_directory_, cache_directory_;
  std::string version_, identity_;  // identity_: whatever else decides the code that comes out
};

}  // namespace ak::compile
