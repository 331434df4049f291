// Both ends of a working copy: the engine makes it, `bench` inside it keeps it up to date.
#include "cli/working_copy.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/engine_socket.h"
#include "core/error.h"
#include "core/file.h"

namespace ak::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* marker = "working-copy.json";
constexpr const char* schema = "autokernel.working-copy/1";

/// The header of results.tsv and the rows of one task.
std::string rows_of(const store::Run& run, const std::string& task) {
  std::istringstream lines(read_file_if_exists(run.directory() / "results.tsv").value_or(""));
  std::string kept, line;
  while (std::getline(lines, line)) {
    if (kept.empty() || line.find("\t" + task + "\t") != std::string::npos) kept += line + "\n";
  }
  return kept;
}

std::string kernel_name(const store::Run& run, const std::string& task) { return run.kernel_path(task).filename().string(); }

std::string extents(const std::map<std::string, int64_t>& dims) {
  std::string text;
  for (const auto& [name, value] : dims) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  return text;
}

std::string tensor_row(const kernel::Task& task, const kernel::Tensor& tensor) {
  const kernel::Binding& binding = task.workload.front();
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", tensor.name, kernel::name_of(tensor.role), name_of(tensor.dtype),
                     tensor.absent ? "absent" : fmt::format("{}", fmt::join(task.shape(tensor, binding), " × ")),
                     tensor.absent ? "" : fmt::format("{}", fmt::join(task.strides(tensor, binding), ", ")));
}

std::string page(Session& session, const std::string& id, double minutes, int64_t rounds) {
  const kernel::Task task = session.run().task(id);
  const store::TaskState& state = session.run().state(id);
  const std::string file = kernel_name(session.run(), id);
  std::string text = fmt::format(
      "# {}\n\nMake `{}` faster: it is the one file to edit, and it must stay right. Judge every change:\n\n"
      "    autokernel bench {} --note \"what was changed, and why\"\n\n"
      "You have {} verdicts and {:g} minutes. Exit code 0: kept, and the file to build on. 3: judged and not kept, and the file is the "
      "best one again.\n"
      "`program.md` says how to go about it; of its commands only `bench` works here. What was tried is in `results.tsv`, the headers are "
      "in `include/`.\n\n"
      "## Contract\n\nFamily {}, {}, backend {}. {}.\n\n| tensor | role | dtype | shape | strides |\n|---|---|---|---|---|\n",
      id, file, id, rounds, minutes, task.family, name_of(task.dtype), session.run().request().backend,
      extents(task.workload.front().dims));
  for (const kernel::Tensor& tensor : task.tensors) text += tensor_row(task, tensor);
  text += "\nOptions:";
  for (const auto& [name, value] : task.options) text += fmt::format(" {} = {}", name, value);
  text += "\n\n## Where it stands\n\n";
  if (state.baseline) {
    for (const auto& [kind, us] : state.baseline->kinds_us) text += fmt::format("- PyTorch, {}: {:.2f} us\n", kind, us);
    text += fmt::format("- a device copy of the same bytes, or the roofline: {:.2f} us\n", state.baseline->floor_us);
  }
  if (state.incumbent) text += fmt::format("- the best kernel: {:.2f} us ({})\n", state.incumbent->median_us, state.incumbent->note);
  text += fmt::format("- it is {:.1f} % of the model's time\n", state.share_percent);
  return text;
}

void write_files(const fs::path& directory, const Json& files) {
  for (const auto& [name, text] : files.items()) write_file(directory / fs::path(name).filename(), text.get<std::string>());
}

}  // namespace

Json current_files(const store::Run& run, const std::string& task) {
  const std::string best = read_file(run.best_path(task));
  return {{kernel_name(run, task), best}, {run.best_path(task).filename().string(), best}, {"results.tsv", rows_of(run, task)}};
}

WorkingCopy make_working_copy(Session& session, const std::string& task, const fs::path& directory, double minutes, int64_t rounds) {
  const fs::path home = home_directory();
  fs::remove_all(directory);
  fs::create_directories(directory);
  WorkingCopy copy{directory, task, kernel_name(session.run(), task)};
  write_files(directory, current_files(session.run(), task));
  write_file(directory / "TASK.md", page(session, task, minutes, rounds));
  write_json(directory / marker, {{"schema", schema}, {"task", task}, {"kernel_file", copy.kernel_file}});
  fs::copy_file(home / "playbook" / "program.md", directory / "program.md");
  fs::create_directories(directory / "include");
  fs::copy(home / "kernels" / "include" / "autokernel", directory / "include" / "autokernel", fs::copy_options::recursive);
  return copy;
}

std::optional<WorkingCopy> working_copy(const Options& options) {
  const fs::path directory = options.run_directory.empty() ? fs::path(".") : options.run_directory;
  if (!fs::exists(directory / marker)) return std::nullopt;
  const Json json = read_json(directory / marker);
  return WorkingCopy{directory, json.value("task", ""), json.value("kernel_file", "")};
}

Json bench_in_working_copy(const WorkingCopy& copy, const Options& options) {
  const auto ask = [&](const Json& request) {
    const auto answer = ask_engine(copy.directory, request);
    if (!answer) throw Error("the engine of this working copy has ended", "stop here: nothing is judged any more");
    write_files(copy.directory, answer->at("files"));
    return *answer;
  };
  if (copy.task.rfind(options.task, 0) != 0)
    throw Error("this is the working copy of " + copy.task + ", not of " + options.task, "run `autokernel bench " + copy.task + "`");
  const auto text = read_file_if_exists(copy.directory / copy.kernel_file);
  if (!text) {
    ask({{"verb", "files"}});
    throw Error(copy.kernel_file + " was not here; the best one is back, and nothing was judged", "edit it and run the same command");
  }
  return ask({{"verb", "bench"}, {"arguments", {{"note", options.note}, {"tune", options.tune}, {"kernel_text", *text}}}}).at("bench");
}

}  // namespace ak::cli
