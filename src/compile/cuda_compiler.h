// NVRTC for kernel.cu: in a child, as a library that is opened at run time.
#pragma once

#include "compile/compiler.h"
#include "compile/cuda_toolkit.h"

namespace ak::compile {

/// What to compile for on a device of an architecture: "sm_90a" for "sm_90", with the features of that architecture alone where it has any,
/// so a cubin runs on no other.
std::string cuda_target(const std::string& architecture);

/// Compiles to cubins.
class CudaCompiler final : public Compiler {
 public:
  /// `judge`: the program to start with --nvrtc. `target`: as cuda_target() gives it.
  /// errors: NVRTC does not load; the text says why.
  CudaCompiler(std::filesystem::path judge, CudaToolkit toolkit, std::filesystem::path include_directory,
               const std::filesystem::path& cache_directory, std::string target);
  std::vector<std::string> sandbox() const override { return sandbox_; }

 private:
  /// Macros stand after CUDA's headers, since those have a T of their own.
  std::string translation_unit(const Source& source) const override;
  CommandResult run(const Source& source, const std::filesystem::path& directory, const std::string& module_name,
                    const Limits& limits) const override;

  std::filesystem::path judge_;
  CudaToolkit toolkit_;
  std::filesystem::path include_directory_;
  std::string target_;
  std::vector<std::string> sandbox_;
};

/// "NVRTC 13.2", and what confines a compile, as a child says that opens the library.
struct NvrtcFacts {
  std::string version;
  std::vector<std::string> sandbox;
};
/// errors: the library does not load.
NvrtcFacts nvrtc_facts(const std::filesystem::path& judge, const CudaToolkit& toolkit);

}  // namespace ak::compile
