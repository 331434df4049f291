// A place in a model that a family's kernel can take, and the tasks that come of it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/json.h"
#include "graph/family.h"
#include "kernel/task.h"

namespace ak::graph {

/// A match (docs/formats/graph.md).
struct Region {
  std::string family, spelling, graph;
  Dtype dtype = Dtype::float32;
  std::vector<std::string> nodes;             // in the graph's order
  std::map<std::string, std::string> inputs;  // tensor of the contract -> node
  std::map<std::string, std::string> outputs;
  std::set<std::string> constants;  // inputs that are the same in every forward
  std::map<std::string, int64_t> dims;
  std::map<std::string, std::vector<int64_t>> strides;  // in the contract's order
  std::map<std::string, kernel::Scalar> scalars;
  std::map<std::string, int64_t> options;
  std::string task;  // id
};

Json to_json(const Region& region);

/// Median times of nodes in a forward: profile.json (docs/formats/worker.md).
struct Profile {
  struct NodeTime {
    double us = 0;
    int64_t calls = 1;
  };
  double total_us = 0;
  std::map<std::string, NodeTime, std::less<>> nodes;  // by "graph/node"
};

/// errors: not of this format.
Profile parse_profile(const Json& json);

/// The contract of a region with its one workload binding. A tensor of role weight that is not constant there has the role data.
kernel::Task make_task(const Region& region, const Family& family);

/// A task with what it costs the model.
struct ProfiledTask {
  kernel::Task task;
  double us_per_call = 0;
  double share = 0;                // of the model's time, 0 to 1
  std::vector<std::string> nodes;  // "graph/node", of all its regions
  std::vector<size_t> regions;     // positions in the list given

  /// The field `profile` of task.json.
  Json profile_json() const;
};

/// One task for all regions with the same id, their calls added up; the largest share first.
std::vector<ProfiledTask> extract_tasks(const std::vector<Region>& regions, const Families& families, const Profile& profile);

}  // namespace ak::graph
