// A compile is a request to the server.
#include "compile/triton_compiler.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::compile {
namespace {

constexpr int64_t longest_log_bytes = 64 << 10;

/// Whatever of the Python part decides what comes out.
std::string content_of_compiler() {
  std::string content;
  for (const char* name : {"compile.py", "descriptors.py", "source.py"})
    content += read_file(home_directory() / "python" / "autokernel" / "triton_backend" / name);
  return content;
}

ExitStatus status_of(const Json& reply) {
  ExitStatus status;
  if (reply.contains("code")) status.code = reply["code"];
  if (reply.contains("signal")) status.signal = reply["signal"];
  status.timed_out = reply.value("timed_out", false);
  return status;
}

}  // namespace

TritonCompiler::TritonCompiler(const std::filesystem::path& cache_directory, std::string architecture)
    : Compiler(cache_directory, "kernel.py", ".triton"), architecture_(std::move(architecture)), server_(std::make_unique<TritonServer>()) {
  version_ = "Triton " + server_->version();
  identity_ = version_ + architecture_ + content_of_compiler();
}

CommandResult TritonCompiler::run(const Source& source, const std::filesystem::path& directory, const std::string& module_name,
                                  const Limits& limits) const {
  Json specification = Json::parse(source.specification);
  specification["architecture"] = architecture_;
  const auto reply = server_->ask({{"directory", std::filesystem::absolute(directory).string()},
                                   {"source", "kernel.py"},
                                   {"module", module_name},
                                   {"specification", std::move(specification)},
                                   {"seconds", limits.seconds},
                                   {"memory_bytes", limits.memory_bytes},
                                   {"file_bytes", limits.file_bytes},
                                   {"log_bytes", longest_log_bytes}});
  if (!reply) return {ExitStatus{.code = 1}, "the Triton compiler ended before it answered"};
  return {status_of(*reply), reply->value("log", std::string())};
}

}  // namespace ak::compile
