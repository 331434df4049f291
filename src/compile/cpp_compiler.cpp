// A child in a directory of its own writes the shared object; a rename publishes it.
#include "compile/cpp_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/process.h"

namespace ak::compile {
namespace {

namespace fs = std::filesystem;

constexpr size_t longest_log_bytes = 8192;
// docs/formats/kernel-file.md. Never -ffast-math.
constexpr const char* flags[] = {"-O3",
                                 "-march=native",
                                 "-std=c++20",
                                 "-fno-exceptions",
                                 "-fno-rtti",
                                 "-ffp-contract=fast",
                                 "-fno-math-errno",
                                 "-fno-trapping-math",
                                 "-fPIC",
                                 "-shared",
                                 "-fmax-errors=20",
                                 "-fdiagnostics-color=never"};
constexpr const char* link_flags[] = {"-static-libstdc++", "-static-libgcc", "-Wl,--as-needed", "-Wl,-z,defs", "-lm"};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

CommandResult run(std::vector<std::string> arguments, double seconds, const fs::path& directory = {}, const Limits& limits = {}) {
  ProcessOptions options;
  options.arguments = std::move(arguments);
  options.directory = directory;
  options.environment = {{"LC_ALL", "C"}, {"TMPDIR", directory.empty() ? fs::temp_directory_path().string() : directory.string()}};
  options.cpu_seconds = static_cast<int64_t>(limits.seconds) + 1;
  options.memory_bytes = limits.memory_bytes;
  options.file_bytes = limits.file_bytes;
  return run_command(options, std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

/// What -march=native stands for here, as the driver tells its compiler proper.
std::string resolved_target(const fs::path& program) {
  return run({program.string(), "-march=native", "-###", "-E", "-x", "c++", "/dev/null"}, 10).output;
}

std::string content_of_headers(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string content;
  for (const fs::path& file : files) content += file.lexically_relative(directory).string() + '\0' + read_file(file) + '\0';
  return content;
}

bool understands_header(const fs::path& program, const fs::path& include_directory, std::string& log) {
  TemporaryDirectory directory("autokernel-compiler-");
  write_file(directory.path() / "probe.cpp", "#include <autokernel/cpu.h>\nstatic_assert(sizeof(ak::float16) == 2);\n");
  const CommandResult result =
      run({program.string(), "-std=c++20", "-march=native", "-fsyntax-only", "-I" + include_directory.string(), "probe.cpp"}, 20,
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

}  // namespace

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
      CppCompiler compiler;
      compiler.program_ = *path;
      compiler.include_directory_ = include_directory;
      compiler.cache_directory_ = cache_directory;
      compiler.version_ = first_line(run({path->string(), "--version"}, 10).output);
      compiler.identity_ = compiler.version_ + resolved_target(*path) + content_of_headers(include_directory);
      for (const char* flag : flags) compiler.identity_ += flag;
      for (const char* flag : link_flags) compiler.identity_ += flag;
      return compiler;
    }
  }
  throw Error("no C++ compiler that can compile kernels (" + tried.substr(0, tried.size() - 2) + ")",
              "install g++ 12 or later, or name one in CXX");
}

std::string CppCompiler::key(const Source& source) const {
  std::string all = identity_ + '\0' + source.text;
  for (const auto& [name, value] : source.macros) all += '\0' + name + '=' + value;
  return content_hash(all);
}

std::string CppCompiler::readable(std::string log) const {
  const std::string directory = include_directory_.string() + "/";
  for (size_t at = log.find(directory); at != std::string::npos; at = log.find(directory, at)) log.erase(at, directory.size());
  if (log.size() <= longest_log_bytes) return log;
  const size_t end = log.rfind('\n', longest_log_bytes);
  return log.substr(0, end == std::string::npos ? longest_log_bytes : end) + "\n… (cut)";
}

Result CppCompiler::compile(const Source& source, const Limits& limits) const {
  const auto start = std::chrono::steady_clock::now();
  Result result;
  result.module = cache_directory_ / (key(source) + ".so");
  if (fs::exists(result.module)) {
    result.compiled = result.from_cache = true;
    return result;
  }
  fs::create_directories(cache_directory_);
  const TemporaryDirectory directory("build-", cache_directory_);
  write_file(directory.path() / "kernel.cpp", source.text);
  std::vector<std::string> arguments = {program_.string()};
  arguments.insert(arguments.end(), std::begin(flags), std::end(flags));
  arguments.push_back("-I" + include_directory_.string());
  for (const auto& [name, value] : source.macros) arguments.push_back("-D" + name + "=" + value);
  arguments.insert(arguments.end(), {"kernel.cpp", "-o", "kernel.so"});
  arguments.insert(arguments.end(), std::begin(link_flags), std::end(link_flags));
  const CommandResult command = run(std::move(arguments), limits.seconds, directory.path(), limits);
  result.log = readable(command.output);
  if (command.status.timed_out) result.log += fmt::format("\nthe compiler was stopped after {:g} s", limits.seconds);
  if (command.status.success()) {
    fs::rename(directory.path() / "kernel.so", result.module);
    result.compiled = true;
  } else if (result.log.empty()) {
    result.log = "the compiler ended with " + command.status.text();
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::vector<Result> CppCompiler::compile(std::span<const Source> sources, int threads, const Limits& limits) const {
  std::vector<Result> results(sources.size());
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < sources.size(); i = next++) {
      try {
        results[i] = compile(sources[i], limits);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> pool;
  for (int i = 0; i < std::max(1, threads); ++i) pool.emplace_back(work);
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
  return results;
}

}  // namespace ak::compile
