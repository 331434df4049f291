// What can be made again stays out: fixtures, views, logs. The journal decides which of two states is further: it only grows.
#include "store/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/toml.h"
#include "store/archive.h"
#include "store/journal.h"

namespace ak::store {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> single_files = {"run.toml",     "graph.json",    "patterns.json",
                                                          "profile.json", "journal.jsonl", "verification.json"};
constexpr std::array<std::string_view, 2> folders = {"tasks", "bundles"};
constexpr std::string_view modules_folder = "modules/";
constexpr int64_t archive_overhead = 1 << 18, overhead_of_a_file = 4096;  // of the database, at most

/// What goes first where the state is too large; nothing: it never goes.
enum class Rank { module, history, bundle, never };

Rank rank_of(const std::string& name, const std::set<std::string>& incumbents) {
  if (name.starts_with(modules_folder)) return Rank::module;
  if (name.find("/history/") != std::string::npos && !incumbents.contains(name.substr(0, name.rfind('.')))) return Rank::history;
  return name.starts_with("bundles/") ? Rank::bundle : Rank::never;
}

/// `tasks/<id>/history/NNNN` of each incumbent.
std::set<std::string> incumbents_of(const std::string& journal) {
  std::map<std::string, std::string> last;
  size_t valid_bytes = 0;
  for (const Json& record : parse_journal(journal, valid_bytes)) {
    if (record.value("type", "") != "trial" || record.value("verdict", "") != "kept") continue;
    const std::string task = record.at("task");
    last[task] = fmt::format("tasks/{}/history/{:04}", task, record.at("experiment").get<int64_t>());
  }
  std::set<std::string> names;
  for (const auto& [task, name] : last) names.insert(name);
  return names;
}

std::map<std::string, Packed> pack_run(const fs::path& directory) {
  std::map<std::string, Packed> files;
  const auto add = [&](const fs::path& path) { files[path.lexically_relative(directory).generic_string()] = pack(read_file(path)); };
  for (const std::string_view name : single_files) {
    if (fs::exists(directory / name)) add(directory / name);
  }
  for (const std::string_view folder : folders) {
    if (!fs::exists(directory / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(directory / folder)) {
      if (entry.is_regular_file()) add(entry.path());
    }
  }
  return files;
}

int64_t size_of(const std::map<std::string, Packed>& files) {
  int64_t size = archive_overhead;
  for (const auto& [name, packed] : files) size += static_cast<int64_t>(name.size() + packed.data.size()) + overhead_of_a_file;
  return size;
}

/// A name that stays below the directory it is unpacked to.
bool is_safe(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
}

std::string file_and_class(const std::string& model) {
  return model.substr(model.rfind('/') == std::string::npos ? 0 : model.rfind('/') + 1);
}

/// run.toml with `model` for its own, where both end in the same.
std::string with_model(const std::string& toml, const std::string& model) {
  Json request = parse_toml(toml, "run.toml");
  if (model.empty() || file_and_class(request.value("model", "")) != file_and_class(model)) return toml;
  request["model"] = model;
  return format_toml(request);
}

}  // namespace

std::vector<std::string> write_state(const fs::path& run_directory, const fs::path& file, const std::vector<fs::path>& modules) {
  std::map<std::string, Packed> files = pack_run(run_directory);
  for (const fs::path& module : modules) files[std::string(modules_folder) + module.filename().string()] = pack(read_file(module));
  const std::set<std::string> incumbents = incumbents_of(read_file(run_directory / "journal.jsonl"));
  std::vector<std::string> left_out;
  for (const Rank rank : {Rank::module, Rank::history, Rank::bundle}) {
    if (size_of(files) <= largest_state) break;
    const size_t before = files.size();
    std::erase_if(files, [&](const auto& entry) { return rank_of(entry.first, incumbents) == rank; });
    constexpr std::array<std::string_view, 3> names = {"compiled kernels", "kernels that were kept once", "bundles"};
    if (files.size() < before) left_out.emplace_back(names[static_cast<size_t>(rank)]);
  }
  if (size_of(files) > largest_state)
    throw Error(fmt::format("the state of {} is larger than {} MiB", run_directory.string(), largest_state >> 20),
                "the run directory itself has everything: copy it");
  const fs::path fresh = file.string() + ".new";
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  fs::remove(fresh);
  write_archive(fresh, files);
  fs::rename(fresh, file);
  return left_out;
}

void read_state(const fs::path& file, const fs::path& run_directory, const fs::path& module_directory, const std::string& model) {
  if (!fs::exists(file)) return;
  const auto files = read_archive(file);
  if (!files.contains("journal.jsonl") || !files.contains("run.toml"))
    throw Error(file.string() + " is no state of a run", "name another with --state");
  const std::string journal = unpack(files.at("journal.jsonl"));
  const std::string present = read_file_if_exists(run_directory / "journal.jsonl").value_or("");
  if (present.starts_with(journal)) return;
  if (!journal.starts_with(present))
    throw Error(fmt::format("the run in {} and the state file {} went different ways", run_directory.string(), file.string()),
                "name another directory with --run-dir to go on from the file, or another file with --state");
  for (const auto& [name, packed] : files) {
    if (!is_safe(name)) throw Error(file.string() + " holds the name " + name, "it was not written by this program");
    if (name == "journal.jsonl") continue;
    if (name.starts_with(modules_folder)) {
      const fs::path module = module_directory / name.substr(modules_folder.size());
      if (!fs::exists(module)) write_file(module, unpack(packed));
    } else {
      write_file(run_directory / name, name == "run.toml" ? with_model(unpack(packed), model) : unpack(packed));
    }
  }
  write_file(run_directory / "journal.jsonl", journal);  // last: with it, all the rest is there
}

}  // namespace ak::store
