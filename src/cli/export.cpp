// The engine evaluates plans and compiles; what is written, and in which form, is the Python part's matter.
#include "cli/export.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "bridge/python.h"
#include "cli/toolchain.h"
#include "compile/cpp_compiler.h"
#include "compile/cuda_compiler.h"
#include "core/architecture.h"
#include "core/error.h"
#include "core/file.h"
#include "core/process.h"
#include "device/cuda/facts.h"
#include "kernel/launch_plan.h"
#include "store/records.h"

namespace ak::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto writing_timeout = 20min;  // the operators of many kernels are compiled, and measured

/// Tasks with a kernel that is worth exporting: the one that was named, or those whose kernel is in the model.
std::vector<std::string> exported_tasks(Session& session, const std::string& only) {
  const store::Run& run = session.run();
  if (!only.empty()) {
    if (!run.state(only).incumbent)
      throw Error("no kernel of " + only + " was kept", "search it first: `autokernel optimize " + only + "`, or edit and `bench` it");
    return {only};
  }
  std::vector<std::string> tasks;
  for (const std::string& id : run.task_ids()) {
    if (run.state(id).incumbent && fs::exists(session.file("bundles") / id / "bundle.json")) tasks.push_back(id);
  }
  if (tasks.empty())
    throw Error("the run in " + run.directory().string() + " has no kernel that beats its baseline",
                "search longer, run `autokernel verify`, or export a single task by its name");
  return tasks;
}

Json compile_winner(Session& session, const kernel::Task& task, const kernel::KernelFile& file) {
  const auto compiled = session.compiler(file.backend()).compile({file.text(), kernel::macros(file, task, file.defaults())});
  if (!compiled.compiled) throw Error("the kernel of " + task.id + " does not compile any more", "the compiler's message: " + compiled.log);
  return compiled.module.string();
}

/// {scratch: its dtype}: a pointer of a Triton kernel has one.
Json scratch_dtypes(const kernel::KernelFile& file, const kernel::Task& task) {
  Json dtypes = Json::object();
  for (const kernel::Scratch& each : file.scratch()) dtypes[each.name] = name_of(dtype_of(each, task));
  return dtypes;
}

/// Triton compiles a package's kernels again, where they are used.
Json plan_with_constexprs(const kernel::ConcretePlan& plan) {
  Json json = kernel::to_json(plan);
  for (size_t i = 0; i < plan.launches.size(); ++i) json["launches"][i]["constexprs"] = plan.launches[i].constexprs;
  for (size_t i = 0; i < plan.prepares.size(); ++i) json["prepare"][i]["constexprs"] = plan.prepares[i].constexprs;
  return json;
}

Json describe(Session& session, const std::string& id) {
  const kernel::Task task = session.run().task(id);
  const store::TaskState& state = session.run().state(id);
  const kernel::KernelFile file = kernel::KernelFile::read(session.run().best_path(id));
  const Bindings& facts = session.settings().device_facts;
  const auto workers = facts.find("workers");
  const bool on_gpu = file.backend() != kernel::Backend::cpu;
  const std::string target = on_gpu ? compile::cuda_target(device::cuda::architecture(0)) : host_architecture();
  const kernel::ConcretePlan plan = make_concrete(file, task, task.workload.front(), file.defaults(), facts);
  return {{"task", kernel::to_json(task)},
          {"backend", kernel::name_of(file.backend())},
          {"architecture", target},
          {"kernel_file", kernel::file_name(file.backend())},
          {"kernel_text", file.text()},
          {"point", file.defaults()},
          {"macros", kernel::macros(file, task, file.defaults())},
          {"plan", plan_with_constexprs(plan)},
          {"scratch_dtypes", scratch_dtypes(file, task)},
          {"workers", workers == facts.end() ? 1 : workers->second},
          {"module", file.backend() == kernel::Backend::triton ? Json() : compile_winner(session, task, file)},
          {"trial", store::to_json(*state.incumbent)},
          {"baseline", state.baseline ? store::to_json(id, *state.baseline) : Json()}};
}

Json compiler_of(const std::string& backend, const fs::path& headers) {
  const auto compiler = compile::CppCompiler::find(headers, cache_directory() / "compile");
  return {{"program", compiler.program().string()},
          {"flags", backend == "cpu" ? compile::CppCompiler::flags() : std::vector<std::string>()}};
}

}  // namespace

Json export_request(Session& session, const Options& options, const std::string& only) {
  if (session.is_null_device()) throw Error("a run on the null device has no real kernel", "use --device cpu or cuda");
  const std::vector<std::string> ids = exported_tasks(session, only);
  session.progress().phase("collect the kernels");
  Json tasks = Json::array();
  for (const std::string& id : ids) tasks.push_back(describe(session, id));
  for (const Json& task : tasks) {
    if (task.at("backend") != tasks.front().at("backend"))
      throw Error("the run's kernels are for several backends, and a package is for one", "export its tasks one at a time");
  }
  const fs::path home = home_directory();
  const std::string backend = session.run().request().backend;
  return {{"to", options.to},
          {"directory", fs::absolute(options.export_directory).lexically_normal().string()},
          {"name", options.name},
          {"push", options.push},
          {"run_dir", fs::absolute(session.run().directory()).string()},
          {"families", (home / "kernels").string()},
          {"include", (home / "kernels" / "include").string()},
          {"license_file", (home / "LICENSE").string()},
          {"compiler", compiler_of(backend, home / "kernels" / "include")},
          {"architecture", tasks.front().at("architecture")},
          {"tasks", tasks}};
}

void check_export(const Options& options) {
  if (options.to != "hf" && options.to != "torch") throw Error("there is no export to '" + options.to + "'", "use --to hf or --to torch");
  static const std::regex name("[a-z][-a-z0-9]*[a-z0-9]");
  if (!options.name.empty() && !std::regex_match(options.name, name))
    throw Error(
        "'" + options.name + "' is no name of a package",
        "a name has lower-case letters, digits and dashes, begins with a letter and ends with a letter or digit: --name my-softmax");
  static const std::regex repository("[A-Za-z0-9][-._A-Za-z0-9]*/[A-Za-z0-9][-._A-Za-z0-9]*");
  if (!options.push.empty() && options.to != "hf") throw Error("--push goes with --to hf", "leave out --push");
  if (!options.push.empty() && !std::regex_match(options.push, repository))
    throw Error("'" + options.push + "' is no repository of the Hub", "write it like --push my-organisation/my-softmax");
  if (fs::exists(options.export_directory) && !fs::is_directory(options.export_directory))
    throw Error(options.export_directory.string() + " is not a directory", "name a new directory");
  if (fs::exists(options.export_directory) && !fs::is_empty(options.export_directory))
    throw Error(options.export_directory.string() + " is not empty", "name a new directory, or empty this one");
}

Json write_export(const Json& request) {
  const TemporaryDirectory scratch("autokernel-export-");
  write_json(scratch.path() / "request.json", request);
  const fs::path result = scratch.path() / "result.json";
  const CommandResult command = run_command({.arguments = {bridge::find_python().string(), "-m", "autokernel.export",
                                                           (scratch.path() / "request.json").string(), result.string()},
                                             .environment = bridge::python_environment()},
                                            writing_timeout);
  if (!fs::exists(result)) throw Error("the export ended with " + command.status.text(), command.output);
  Json written = read_json(result);
  if (written.contains("error")) throw Error(written["error"].value("message", ""), written["error"].value("what_to_do", ""));
  return written;
}

std::string export_text(const Json& written) {
  std::string text = fmt::format("{} in {}\n", written.at("name").get<std::string>(), written.at("directory").get<std::string>());
  for (const Json& kernel : written.at("kernels")) {
    text += fmt::format("  {:<32} {:.2f}x of PyTorch's own ({:.2f} to {:.2f}), called as exported\n", kernel.at("task").get<std::string>(),
                        kernel.at("speedup").get<double>(), kernel.at("ci_low").get<double>(), kernel.at("ci_high").get<double>());
  }
  for (const Json& note : written.at("notes")) text += "  " + note.get<std::string>() + "\n";
  return text + "next: " + written.at("next").get<std::string>() + "\n";
}

}  // namespace ak::cli
