// The child's command line; what it does is in nvrtc_main.cpp.
#include "compile/cuda_compiler.h"

#include "core/error.h"
#include "core/file.h"

namespace ak::compile {
namespace {

namespace fs = std::filesystem;

// docs/formats/kernel-file.md. Never --use_fast_math.
constexpr const char* options[] = {"--std=c++20", "--fmad=true"};

/// Of CUDA's own headers, those that a kernel file may include decide the code, too.
std::string content_of_toolkit(const CudaToolkit& toolkit) {
  std::string content;
  for (const char* name : {"cuda_fp16.h", "cuda_fp16.hpp", "cuda_bf16.h", "cuda_bf16.hpp"})
    content += read_file_if_exists(toolkit.include_directories.front() / name).value_or("") + '\0';
  return content;
}

ProcessOptions nvrtc(const fs::path& judge, const CudaToolkit& toolkit) {
  return {.arguments = {judge.string(), "--nvrtc", toolkit.nvrtc.string()}};
}

}  // namespace

std::string cuda_target(const std::string& architecture) {
  constexpr size_t number = 3;  // after "sm_"
  return architecture + (std::stoi(architecture.substr(number)) >= 90 ? "a" : "");
}

NvrtcFacts nvrtc_facts(const fs::path& judge, const CudaToolkit& toolkit) {
  const CommandResult result = run_child(nvrtc(judge, toolkit), 20);
  if (!result.status.success())
    throw Error("NVRTC does not load: " + (result.output.empty() ? result.status.text() : result.output),
                "set AUTOKERNEL_CUDA_HOME to a CUDA toolkit 12 or 13");
  const size_t end = result.output.find('\n');
  return {result.output.substr(0, end), split_words(result.output.substr(end))};
}

CudaCompiler::CudaCompiler(fs::path judge, CudaToolkit toolkit, fs::path include_directory, const fs::path& cache_directory,
                           std::string target)
    : Compiler(cache_directory, "kernel.cu", ".cubin"),
      judge_(std::move(judge)),
      toolkit_(std::move(toolkit)),
      include_directory_(std::move(include_directory)),
      target_(std::move(target)) {
  NvrtcFacts facts = nvrtc_facts(judge_, toolkit_);
  version_ = std::move(facts.version);
  sandbox_ = std::move(facts.sandbox);
  identity_ = version_ + target_ + content_of_headers(include_directory_) + content_of_toolkit(toolkit_);
  for (const char* option : options) identity_ += option;
  shown_relative_ = {include_directory_};
  shown_relative_.insert(shown_relative_.end(), toolkit_.include_directories.begin(), toolkit_.include_directories.end());
}

std::string CudaCompiler::translation_unit(const Source& source) const {
  std::string text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n";
  for (const auto& [name, value] : source.macros) text += "#define " + name + " " + value + "\n";
  return text + "#line 1 \"kernel.cu\"\n" + source.text;
}

CommandResult CudaCompiler::run(const Source&, const fs::path& directory, const std::string& module_name, const Limits& limits) const {
  ProcessOptions child = nvrtc(judge_, toolkit_);
  child.arguments.insert(child.arguments.end(), {target_, module_name, include_directory_.string()});
  for (const fs::path& headers : toolkit_.include_directories) child.arguments.push_back(headers.string());
  child.arguments.emplace_back("--");
  child.arguments.insert(child.arguments.end(), std::begin(options), std::end(options));
  child.arguments.emplace_back("kernel.cu");
#if !defined(__SANITIZE_ADDRESS__)  // whose shadow is address space of its own
  child.memory_bytes = limits.memory_bytes;
#endif
  return run_limited(std::move(child), limits, directory);
}

}  // namespace ak::compile
