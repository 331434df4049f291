// Triton for kernel.py: a warm Python process that forks a confined child for each compile.
#pragma once

#include <memory>

#include "compile/compiler.h"
#include "compile/triton_server.h"

namespace ak::compile {

/// Compiles to modules of cubins with what launching them takes (docs/formats/triton.md). No GPU is needed.
class TritonCompiler final : public Compiler {
 public:
  /// `architecture`: "sm_90".
  /// errors: see TritonServer.
  TritonCompiler(const std::filesystem::path& cache_directory, std::string architecture);
  std::vector<std::string> sandbox() const override { return server_->sandbox(); }

 private:
  CommandResult run(const Source& source, const std::filesystem::path& directory, const std::string& module_name,
                    const Limits& limits) const override;

  std::string architecture_;
  std::unique_ptr<TritonServer> server_;
};

}  // namespace ak::compile
