// The system's C++ compiler for kernel.cpp, found once.
#pragma once

#include "compile/compiler.h"

namespace ak::compile {

/// Compiles to shared objects.
class CppCompiler final : public Compiler {
 public:
  /// `program` empty: $CXX, else g++, else clang++, whichever first understands the kernels' header.
  /// errors: no compiler that does; the text says what was tried.
  static CppCompiler find(const std::filesystem::path& include_directory, const std::filesystem::path& cache_directory,
                          const std::string& program = {});

  const std::filesystem::path& program() const { return program_; }
  /// What kernels are compiled with, but for what makes a shared object of one.
  static std::vector<std::string> flags();
  std::vector<std::string> sandbox() const override;

 private:
  CppCompiler(std::filesystem::path program, std::filesystem::path include_directory, const std::filesystem::path& cache_directory);
  CommandResult run(const Source& source, const std::filesystem::path& directory, const std::string& module_name,
                    const Limits& limits) const override;

  std::filesystem::path program_, include_directory_;
};

}  // namespace ak::compile
