// A child in a directory of its own writes the module; a rename publishes it.
#include "compile/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/file.h"
#include "core/hash.h"
#include "kernel/triton.h"

namespace ak::compile {
namespace {

namespace fs = std::filesystem;

constexpr size_t longest_log_bytes = 8192;

}  // namespace

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

CommandResult run_child(ProcessOptions options, double seconds, const fs::path& directory) {
  options.directory = directory;
  options.environment["LC_ALL"] = "C";
  options.environment["TMPDIR"] = directory.empty() ? fs::temp_directory_path().string() : directory.string();
  return run_command(options, std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

CommandResult run_limited(ProcessOptions options, const Limits& limits, const fs::path& directory) {
  options.cpu_seconds = static_cast<int64_t>(limits.seconds) + 1;
  options.file_bytes = limits.file_bytes;
  return run_child(std::move(options), limits.seconds, directory);
}

Source source_of(const kernel::KernelFile& file, const kernel::Task& task, const kernel::Point& point, const kernel::Binding& binding,
                 const Bindings& device_facts) {
  if (file.backend() != kernel::Backend::triton) return {file.text(), kernel::macros(file, task, point), {}};
  const kernel::ConcretePlan plan = kernel::make_concrete(file, task, binding, point, device_facts);
  return {file.text(), {}, kernel::triton_specification(file, task, point, plan).dump()};
}

std::string Compiler::key(const Source& source) const {
  std::string all = identity_ + '\0' + source.text + '\0' + source.specification;
  for (const auto& [name, value] : source.macros) all += '\0' + name + '=' + value;
  return content_hash(all);
}

std::string Compiler::readable(std::string log) const {
  for (const fs::path& directory : shown_relative_) {
    const std::string prefix = directory.string() + "/";
    for (size_t at = log.find(prefix); at != std::string::npos; at = log.find(prefix, at)) log.erase(at, prefix.size());
  }
  if (log.size() <= longest_log_bytes) return log;
  const size_t end = log.rfind('\n', longest_log_bytes);
  return log.substr(0, end == std::string::npos ? longest_log_bytes : end) + "\n… (cut)";
}

std::string Compiler::refusal(const Source& source) const {
  for (const auto& [feature, reason] : refused_) {
    if (source.specification.find(feature) != std::string::npos) return reason;
  }
  return {};
}

Result Compiler::compile(const Source& source, const Limits& limits) const {
  const auto start = std::chrono::steady_clock::now();
  Result result{.log = refusal(source)};
  if (!result.log.empty()) return result;
  result.module = cache_directory_ / (key(source) + ending_);
  if (fs::exists(result.module)) {
    result.compiled = result.from_cache = true;
    return result;
  }
  fs::create_directories(cache_directory_);
  const TemporaryDirectory directory("build-", cache_directory_);
  write_file(directory.path() / source_name_, translation_unit(source));
  const std::string module_name = "kernel" + ending_;
  const CommandResult command = run(source, directory.path(), module_name, limits);
  result.log = readable(command.output);
  if (command.status.timed_out) result.log += fmt::format("\nthe compiler was stopped after {:g} s", limits.seconds);
  if (command.status.success() && fs::is_regular_file(fs::symlink_status(directory.path() / module_name))) {
    fs::rename(directory.path() / module_name, result.module);
    result.compiled = true;
  } else if (result.log.empty()) {
    result.log = "the compiler ended with " + command.status.text();
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::vector<Result> Compiler::compile(std::span<const Source> sources, int threads, const Limits& limits) const {
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

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

}  // namespace ak::compile
