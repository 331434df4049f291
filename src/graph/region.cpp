// Regions to tasks, and the best set of regions that do not overlap.
#include "graph/region.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::graph {
namespace {

Json scalars_json(const std::map<std::string, kernel::Scalar>& scalars) {
  Json json = Json::object();
  for (const auto& [name, scalar] : scalars) json[name] = std::visit([](auto value) { return Json(value); }, scalar);
  return json;
}

kernel::Role role_in(const FamilyTensor& tensor, const Region& region) {
  const bool varies = tensor.role == kernel::Role::weight && region.inputs.contains(tensor.name) && !region.constants.contains(tensor.name);
  return varies ? kernel::Role::data : tensor.role;
}

double region_us(const Region& region, const Profile& profile) {
  double total = 0;
  for (const std::string& node : region.nodes) {
    const auto found = profile.nodes.find(region.graph + "/" + node);
    if (found != profile.nodes.end()) total += found->second.us;
  }
  return total;
}

int64_t region_calls(const Region& region, const Profile& profile) {
  int64_t calls = 1;
  for (const std::string& node : region.nodes) {
    const auto found = profile.nodes.find(region.graph + "/" + node);
    if (found != profile.nodes.end()) calls = std::max(calls, found->second.calls);
  }
  return calls;
}

}  // namespace

Json to_json(const Region& region) {
  return {{"family", region.family}, {"spelling", region.spelling}, {"graph", region.graph},     {"dtype", ak::name_of(region.dtype)},
          {"nodes", region.nodes},   {"inputs", region.inputs},     {"outputs", region.outputs}, {"constants", region.constants},
          {"dims", region.dims},     {"strides", region.strides},   {"options", region.options}, {"scalars", scalars_json(region.scalars)},
          {"task", region.task}};
}

Profile parse_profile(const Json& json) {
  try {
    if (json.at("schema") != "autokernel.profile/1")
      throw Error("profile.json is not of the format autokernel.profile/1", "profile the model again");
    Profile profile;
    profile.total_us = json.at("total_us").get<double>();
    for (const auto& [name, node] : json.at("nodes").items())
      profile.nodes[name] = {node.at("us").get<double>(), node.value("calls", int64_t{1})};
    return profile;
  } catch (const Json::exception& error) {
    throw Error(std::string("profile.json is malformed: ") + error.what());
  }
}

kernel::Task make_task(const Region& region, const Family& family) {
  kernel::Task task;
  task.family = family.name;
  task.spelling = region.spelling;
  task.dtype = region.dtype;
  for (const FamilyTensor& tensor : family.tensors) {
    task.tensors.push_back({tensor.name, role_in(tensor, region), tensor.dtype.value_or(region.dtype), tensor.shape,
                            family.is_absent(tensor, region.options), tensor.range, tensor.ignored, tensor.hides,
                            family.has_factors(tensor, region.options)});
  }
  task.scalars = family.scalars;
  for (const auto& [name, scalar] : region.scalars) task.scalars[name] = scalar;
  task.options = family.options;
  for (const auto& [name, value] : region.options) task.options[name] = value;
  kernel::Binding binding;
  binding.dims = region.dims;
  binding.strides = region.strides;
  task.workload = {binding};
  task.sweep = family.sweep;
  task.edges = family.edges;
  task.stability = family.stability;
  task.tolerance_k = family.tolerance_k;
  task.flops = family.flops;
  task.bytes = family.bytes;
  task.id = kernel::task_id(task);
  return task;
}

Json ProfiledTask::profile_json() const { return {{"us_per_call", us_per_call}, {"share", share}, {"nodes", nodes}}; }

std::vector<ProfiledTask> extract_tasks(const std::vector<Region>& regions, const Families& families, const Profile& profile) {
  std::vector<ProfiledTask> tasks;
  std::map<std::string, size_t> position_of;
  std::vector<double> total_us;
  for (size_t i = 0; i < regions.size(); ++i) {
    const Region& region = regions[i];
    const auto family = families.find(region.family);
    AK_CHECK(family != families.end(), "a region's family is among the families that it was matched with");
    kernel::Task task = make_task(region, family->second);
    const auto [found, is_new] = position_of.emplace(task.id, tasks.size());
    const int64_t calls = region_calls(region, profile);
    if (is_new) {
      task.workload[0].calls = 0;
      tasks.push_back({std::move(task), 0, 0, {}, {}});
      total_us.push_back(0);
    }
    ProfiledTask& entry = tasks[found->second];
    entry.task.workload[0].calls += calls;
    total_us[found->second] += region_us(region, profile) * static_cast<double>(calls);
    for (const std::string& node : region.nodes) entry.nodes.push_back(region.graph + "/" + node);
    entry.regions.push_back(i);
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].us_per_call = total_us[i] / static_cast<double>(tasks[i].task.workload[0].calls);
    tasks[i].share = profile.total_us > 0 ? total_us[i] / profile.total_us : 0;
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const ProfiledTask& a, const ProfiledTask& b) { return a.share > b.share; });
  return tasks;
}

}  // namespace ak::graph
