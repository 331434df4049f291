// From names to compilers.
#include "cli/toolchain.h"

#include <nlohmann/json.hpp>

#include "compile/cpp_compiler.h"
#include "compile/cuda_compiler.h"
#include "compile/triton_compiler.h"
#include "core/error.h"
#include "device/cuda/facts.h"
#include "judge/judge_process.h"

namespace ak::cli {
namespace {

std::filesystem::path headers() { return home_directory() / "kernels" / "include"; }

}  // namespace

std::unique_ptr<compile::Compiler> make_compiler(kernel::Backend backend, const std::filesystem::path& cache) {
  if (backend == kernel::Backend::cpu) return std::make_unique<compile::CppCompiler>(compile::CppCompiler::find(headers(), cache));
  if (backend == kernel::Backend::triton) return std::make_unique<compile::TritonCompiler>(cache, device::cuda::architecture(0));
  return std::make_unique<compile::CudaCompiler>(judge::judge_beside_program(), compile::CudaToolkit::find(), headers(), cache,
                                                 compile::cuda_target(device::cuda::architecture(0)));
}

Json judge_opening(const std::string& device, const compile::Compiler& compiler) {
  if (device == "cpu") return {{"device", device}};
  const compile::Result builtin = compiler.compile({read_file(headers() / "judge" / "builtin.cu"), {}});
  if (!builtin.compiled) throw Error("the judge's own kernels do not compile: " + builtin.log, "`autokernel doctor` says what is here");
  return {{"device", device}, {"builtin", builtin.module.string()}};
}

}  // namespace ak::cli
