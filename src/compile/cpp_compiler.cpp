// The first program that understands the kernels' header, and its options.
#include "compile/cpp_compiler.h"

#include <fmt/format.h>

#include <cstdlib>

#include "core/error.h"
#include "core/file.h"
#include "core/process.h"

namespace ak::compile {
namespace {

namespace fs = std::filesystem;

// docs/formats/kernel-file.md. Never -ffast-math.
constexpr const char* kernel_flags[] = {"-O3",
                                        "-march=native",
                                        "-std=c++20",
                                        "-fno-exceptions",
                                        "-fno-rtti",
                                        "-ffp-contract=fast",
                                        "-fno-math-errno",
                                        "-fno-trapping-math",
                                        "-fPIC",
                                        "-fmax-errors=20",
                                        "-fdiagnostics-color=never"};
constexpr const char* link_flags[] = {"-static-libstdc++", "-static-libgcc", "-Wl,--as-needed", "-Wl,-z,defs", "-lm"};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// What -march=native stands for here, as the driver tells its compiler proper.
std::string resolved_target(const fs::path& program) {
  return run_child({.arguments = {program.string(), "-march=native", "-###", "-E", "-x", "c++", "/dev/null"}}, 10).output;
}

bool understands_header(const fs::path& program, const fs::path& include_directory, std::string& log) {
  TemporaryDirectory directory("autokernel-compiler-");
  write_file(directory.path() / "probe.cpp", "#include <autokernel/cpu.h>\nstatic_assert(sizeof(ak::float16) == 2);\n");
  const CommandResult result = run_child(
      {.arguments = {program.string(), "-std=c++20", "-march=native", "-fsyntax-only", "-I" + include_directory.string(), "probe.cpp"}}, 20,
      directory.path());
  log = result.output;
  return result.status.success();
}

std::vector<std::string> candidates(const std::string& program) {
  if (!program.empty()) return {program};
  std::vector<std::string> names;
  if (const char* chosen = std::getenv("CXX"); chosen != nullptr && *chosen != '\0') names.emplace_back(chosen);
  names.insert(names.end(), {"g++", "g++-14", "g++-13", "g++-12", "clang++"});
  return names;
}

/// The compiler in the sandbox of autokernel-judge: a source can ask for any file (#include, .incbin), and gets the system's and our
/// headers.
std::vector<std::string> confined(const fs::path& program, const fs::path& include_directory, const fs::path& directory,
                                  const Limits& limits) {
  const fs::path judge = executable_path().parent_path() / "autokernel-judge";
  if (!fs::exists(judge)) return {program.string()};
  const std::string prefix = fs::canonical(program).parent_path().parent_path(), memory = std::to_string(limits.memory_bytes);
  return {judge, "--confine", "--read", prefix, "--read", include_directory, "--write", directory, "--memory", memory, "--", program};
}

}  // namespace

std::vector<std::string> CppCompiler::sandbox() const {
  const TemporaryDirectory directory("autokernel-compiler-");
  std::vector<std::string> arguments = confined("/bin/sh", include_directory_, directory.path(), {});
  arguments.insert(arguments.end(), {"-c", "echo $AUTOKERNEL_SANDBOX"});
  return split_words(run_limited({.arguments = std::move(arguments)}, {}, directory.path()).output);
}

CppCompiler::CppCompiler(fs::path program, fs::path include_directory, const fs::path& cache_directory)
    : Compiler(cache_directory, "kernel.cpp", ".so"), program_(std::move(program)), include_directory_(std::move(include_directory)) {
  version_ = first_line(run_child({.arguments = {program_.string(), "--version"}}, 10).output);
  identity_ = version_ + resolved_target(program_) + content_of_headers(include_directory_);
  for (const char* flag : kernel_flags) identity_ += flag;
  for (const char* flag : link_flags) identity_ += flag;
  shown_relative_ = {include_directory_};
}

CppCompiler CppCompiler::find(const fs::path& include_directory, const fs::path& cache_directory, const std::string& program) {
  std::string tried;
  for (const std::string& name : candidates(program)) {
    const auto path = find_program(name);
    std::string log;
    if (!path) {
      tried += fmt::format("{}: not found; ", name);
    } else if (!understands_header(*path, include_directory, log)) {
      tried += fmt::format("{}: {}; ", name, first_line(log));
    } else {
      return {*path, include_directory, cache_directory};
    }
  }
  throw Error("no C++ compiler that can compile kernels (" + tried.substr(0, tried.size() - 2) + ")",
              "install g++ 12 or later, or name one in CXX");
}

std::vector<std::string> CppCompiler::flags() { return {std::begin(kernel_flags), std::end(kernel_flags)}; }

CommandResult CppCompiler::run(const Source& source, const fs::path& directory, const std::string& module_name,
                               const Limits& limits) const {
  std::vector<std::string> arguments = confined(program_, include_directory_, directory, limits);
  arguments.insert(arguments.end(), std::begin(kernel_flags), std::end(kernel_flags));
  arguments.push_back("-shared");
  arguments.push_back("-I" + include_directory_.string());
  for (const auto& [name, value] : source.macros) arguments.push_back("-D" + name + "=" + value);
  arguments.insert(arguments.end(), {"kernel.cpp", "-o", module_name});
  arguments.insert(arguments.end(), std::begin(link_flags), std::end(link_flags));
  return run_limited({.arguments = std::move(arguments), .environment = {{"CCACHE_DISABLE", "1"}}}, limits, directory);
}

}  // namespace ak::compile
