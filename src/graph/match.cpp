// A pattern is laid over the graph from its first output backwards: each pair of a pattern node and a graph node is a goal that binds the
// two and makes goals of their arguments. Where two tensors may be swapped, or a further output may lie elsewhere, the state is copied and
// both ways are tried. What needs all dims (expressions of sizes, strides, users outside) is checked when every node has its place; if it
// fails there, the search goes on.
#include "graph/match.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "core/error.h"

namespace ak::graph {
namespace {

using Kind = Value::Kind;

struct Goal {
  int64_t pattern = 0, graph = 0;  // nodes
};

struct Comparison {
  const Value* pattern;
  const Value* graph;
};

struct State {
  std::vector<int64_t> nodes, inputs;  // of the pattern: the graph's node, or -1
  std::map<std::string, Value, std::less<>> scalars;
  std::vector<Goal> goals;
  std::vector<Comparison> deferred;  // until the dims are known
};

/// A region, and its nodes as positions.
struct Found {
  Region region;
  std::vector<int64_t> nodes;
};

bool equal_numbers(const Value& a, const Value& b) {
  if (a.kind == Kind::integer && b.kind == Kind::integer) return a.integer == b.integer;
  return a.number() == b.number() || (std::isnan(a.number()) && std::isnan(b.number()));
}

bool says_nothing(const Value& value) { return value.kind == Kind::other || value.kind == Kind::null; }

bool has_leading(const Value& list) {
  return std::any_of(list.items.begin(), list.items.end(), [](const Value& item) { return item.kind == Kind::leading; });
}

using Leading = std::map<std::string, std::vector<int64_t>>;

/// Whether integers are what expressions say, from `pattern_at` and `graph_at` on.
bool lists_agree(const Value& pattern, size_t pattern_at, const Value& graph, size_t graph_at, const Bindings& names,
                 const Leading& leading);

bool agrees(const Value& pattern, const Value& graph, const Bindings& names, const Leading& leading) {
  if (pattern.kind == Kind::list) return graph.kind == Kind::list && lists_agree(pattern, 0, graph, 0, names, leading);
  if (graph.kind != Kind::integer) return false;
  if (pattern.kind == Kind::integer) return pattern.integer == graph.integer;
  return pattern.kind == Kind::expression && pattern.expression.evaluate(names) == graph.integer;
}

bool lists_agree(const Value& pattern, size_t pattern_at, const Value& graph, size_t graph_at, const Bindings& names,
                 const Leading& leading) {
  if (pattern_at == pattern.items.size()) return graph_at == graph.items.size();
  const Value& first = pattern.items[pattern_at];
  if (first.kind != Kind::leading) {
    return graph_at < graph.items.size() && agrees(first, graph.items[graph_at], names, leading) &&
           lists_agree(pattern, pattern_at + 1, graph, graph_at + 1, names, leading);
  }
  const auto known = leading.find(first.text);
  if (known == leading.end()) return false;
  std::vector<int64_t> sizes;
  for (size_t end = graph_at;; ++end) {
    if (without_leading_ones(sizes) == without_leading_ones(known->second) &&
        lists_agree(pattern, pattern_at + 1, graph, end, names, leading))
      return true;
    if (end == graph.items.size() || graph.items[end].kind != Kind::integer) return false;
    sizes.push_back(graph.items[end].integer);
  }
}

class Matcher {
 public:
  Matcher(const Graph& graph, const Pattern& pattern, const Family& family) : graph_(graph), pattern_(pattern), family_(family) {}

  std::vector<Found> run() const {
    std::vector<Found> found;
    const int64_t root = pattern_.outputs[0].node;
    for (const int64_t candidate : candidates(root)) {
      State state;
      state.nodes.assign(pattern_.nodes.size(), -1);
      state.inputs.assign(pattern_.inputs.size(), -1);
      state.goals.push_back({root, candidate});
      if (auto match = solve(std::move(state))) found.push_back(std::move(*match));
    }
    return found;
  }

 private:
  const Node& graph_node(int64_t index) const { return graph_.nodes[static_cast<size_t>(index)]; }
  const PatternNode& pattern_node(int64_t index) const { return pattern_.nodes[static_cast<size_t>(index)]; }

  const std::vector<int64_t>& candidates(int64_t node) const {
    static const std::vector<int64_t> none;
    const auto found = graph_.by_op.find(pattern_node(node).op);
    return found == graph_.by_op.end() ? none : found->second;
  }

  std::optional<Found> solve(State state) const {
    while (!state.goals.empty()) {
      const Goal goal = state.goals.back();
      state.goals.pop_back();
      int64_t& bound = state.nodes[static_cast<size_t>(goal.pattern)];
      if (bound >= 0) {
        if (bound != goal.graph) return std::nullopt;
        continue;
      }
      if (pattern_node(goal.pattern).op != graph_node(goal.graph).op) return std::nullopt;
      bound = goal.graph;
      if (pattern_node(goal.pattern).commutes) {
        State swapped = state;
        if (unify_arguments(state, goal, false)) {
          if (auto found = solve(std::move(state))) return found;
        }
        if (!unify_arguments(swapped, goal, true)) return std::nullopt;
        state = std::move(swapped);
      } else if (!unify_arguments(state, goal, false)) {
        return std::nullopt;
      }
    }
    for (const PatternOutput& output : pattern_.outputs) {
      if (state.nodes[static_cast<size_t>(output.node)] < 0) return solve_elsewhere(state, output.node);
    }
    return finish(state);
  }

  /// Another output that no bound node leads to: any node of its operator may be it, the nearest first.
  std::optional<Found> solve_elsewhere(const State& state, int64_t node) const {
    const int64_t near = state.nodes[static_cast<size_t>(pattern_.outputs[0].node)];
    std::vector<int64_t> places = candidates(node);
    std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) { return std::abs(a - near) < std::abs(b - near); });
    for (const int64_t place : places) {
      if (std::find(state.nodes.begin(), state.nodes.end(), place) != state.nodes.end()) continue;
      State attempt = state;
      attempt.goals.push_back({node, place});
      if (auto found = solve(std::move(attempt))) return found;
    }
    return std::nullopt;
  }

  bool unify_arguments(State& state, const Goal& goal, bool swapped) const {
    const Arguments& wanted = pattern_node(goal.pattern).arguments;
    const Node& node = graph_node(goal.graph);
    if (wanted.size() != node.arguments.size()) return false;
    for (const auto& [name, value] : wanted) {
      const bool swaps = swapped && (name == "self" || name == "other");
      const Value* given = node.argument(!swaps ? std::string_view(name) : name == "self" ? "other" : "self");
      if (given == nullptr || !unify(state, value, *given)) return false;
    }
    return true;
  }

  bool unify(State& state, const Value& wanted, const Value& given) const {
    switch (wanted.kind) {
      case Kind::node:
        if (given.kind != Kind::node) return false;
        state.goals.push_back({wanted.index, given.index});
        return true;
      case Kind::input: return given.kind == Kind::node && bind_input(state, wanted.index, given.index);
      case Kind::scalar:
        return given.is_number() && std::isfinite(given.number()) &&
               equal_numbers(state.scalars.emplace(wanted.text, given).first->second, given);
      case Kind::expression:
        if (given.kind != Kind::integer) return false;
        state.deferred.push_back({&wanted, &given});
        return true;
      case Kind::list: return given.kind == Kind::list && unify_list(state, wanted, given);
      case Kind::integer:
      case Kind::real: return given.is_number() && equal_numbers(wanted, given);
      case Kind::null:
      case Kind::other: return says_nothing(given);
      case Kind::boolean: return given.kind == Kind::boolean && wanted.boolean == given.boolean;
      case Kind::text:
      case Kind::dtype: return given.kind == wanted.kind && wanted.text == given.text;
      case Kind::symbol:
      case Kind::leading: return false;
    }
    return false;
  }

  bool unify_list(State& state, const Value& wanted, const Value& given) const {
    if (has_leading(wanted)) {
      state.deferred.push_back({&wanted, &given});
      return true;
    }
    if (wanted.items.size() != given.items.size()) return false;
    for (size_t i = 0; i < wanted.items.size(); ++i) {
      if (!unify(state, wanted.items[i], given.items[i])) return false;
    }
    return true;
  }

  bool bind_input(State& state, int64_t input, int64_t node) const {
    int64_t& bound = state.inputs[static_cast<size_t>(input)];
    if (bound >= 0) return bound == node;
    const TensorMeta* tensor = graph_node(node).tensor();
    if (tensor == nullptr || tensor->dtype != pattern_.inputs[static_cast<size_t>(input)].dtype) return false;
    bound = node;
    return true;
  }

  /// Everything has its place: check what could not be checked before.
  std::optional<Found> finish(const State& state) const {
    Found found;
    found.nodes = state.nodes;
    std::sort(found.nodes.begin(), found.nodes.end());
    found.nodes.erase(std::unique(found.nodes.begin(), found.nodes.end()), found.nodes.end());
    if (!is_closed(state, found.nodes)) return std::nullopt;
    try {
      if (!bind_shapes(state, found.region) || !bind_scalars(state, found.region)) return std::nullopt;
    } catch (const Error&) {
      return std::nullopt;  // an expression that has no value for these sizes
    }
    describe(state, found);
    return found;
  }

  /// Inner values are used inside only, outputs outside only after the whole region, and no input is made inside.
  bool is_closed(const State& state, const std::vector<int64_t>& nodes) const {
    const auto inside = [&](int64_t node) { return std::binary_search(nodes.begin(), nodes.end(), node); };
    for (const int64_t input : state.inputs) {
      if (inside(input)) return false;
    }
    std::set<int64_t> outputs;
    for (const PatternOutput& output : pattern_.outputs) outputs.insert(state.nodes[static_cast<size_t>(output.node)]);
    for (const int64_t node : nodes) {
      for (const int64_t user : graph_node(node).users) {
        if (!inside(user) && (!outputs.contains(node) || user < nodes.back())) return false;
      }
    }
    return true;
  }

  bool bind_shapes(const State& state, Region& region) const {
    std::vector<std::pair<const TensorLabels*, const TensorMeta*>> tensors;
    std::vector<std::string> tensor_names;
    for (size_t i = 0; i < pattern_.inputs.size(); ++i) {
      tensors.emplace_back(&pattern_.inputs[i].labels, graph_node(state.inputs[i]).tensor());
      tensor_names.push_back(pattern_.inputs[i].name);
    }
    for (const PatternOutput& output : pattern_.outputs) {
      tensors.emplace_back(&output.labels, graph_node(state.nodes[static_cast<size_t>(output.node)]).tensor());
      tensor_names.push_back(output.name);
    }
    Bindings dims;
    Leading leading;
    for (const auto& [labels, tensor] : tensors) {
      if (tensor == nullptr || !labels->bind(*tensor, dims, leading)) return false;
    }
    bind_the_rest(dims);
    Bindings names = dims;
    for (const auto& [name, value] : pattern_.options) names[name] = value;
    for (const auto& [labels, tensor] : tensors) {
      if (!labels->agrees(*tensor, names)) return false;
    }
    for (const auto& [wanted, given] : state.deferred) {
      if (!graph::agrees(*wanted, *given, names, leading)) return false;
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      auto strides = tensors[i].first->strides(*tensors[i].second, names);
      if (!strides) return false;
      region.strides[tensor_names[i]] = std::move(*strides);
    }
    region.dims = {dims.begin(), dims.end()};
    return true;
  }

  /// A dim of the contract that no label of the spelling names is 1, also one that only absent tensors have.
  void bind_the_rest(Bindings& dims) const {
    for (const FamilyTensor& tensor : family_.tensors) {
      for (const Expression& extent : tensor.shape) {
        for (const std::string& name : extent.names()) {
          if (!family_.options.contains(name)) dims.emplace(name, 1);
        }
      }
    }
  }

  /// The family's defaults, and what the pattern bound in their types.
  bool bind_scalars(const State& state, Region& region) const {
    region.scalars = family_.scalars;
    for (const auto& [name, value] : state.scalars) {
      kernel::Scalar& scalar = region.scalars.at(name);
      if (std::holds_alternative<double>(scalar)) {
        scalar = value.number();
      } else if (value.kind == Kind::integer) {
        scalar = value.integer;
      } else {
        return false;
      }
    }
    return true;
  }

  void describe(const State& state, Found& found) const {
    Region& region = found.region;
    region.family = pattern_.family;
    region.spelling = pattern_.spelling;
    region.graph = graph_.name;
    region.dtype = pattern_.dtype;
    region.options = pattern_.options;
    for (const int64_t node : found.nodes) region.nodes.push_back(graph_node(node).name);
    for (size_t i = 0; i < pattern_.inputs.size(); ++i) {
      region.inputs[pattern_.inputs[i].name] = graph_node(state.inputs[i]).name;
      if (graph_.is_constant(state.inputs[i])) region.constants.insert(pattern_.inputs[i].name);
    }
    for (const PatternOutput& output : pattern_.outputs)
      region.outputs[output.name] = graph_node(state.nodes[static_cast<size_t>(output.node)]).name;
  }

  const Graph& graph_;
  const Pattern& pattern_;
  const Family& family_;
};

/// Of one graph and family: the first of the same nodes, and those inside another apart.
struct OfFamily {
  std::vector<Found> largest;
  std::vector<std::pair<Found, size_t>> inside;  // with the one that holds it
};

OfFamily part_contained(std::vector<Found> all) {
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.nodes.size() > b.nodes.size(); });
  OfFamily result;
  std::map<int64_t, std::vector<size_t>> holders;  // node -> the largest regions that have it
  for (Found& each : all) {
    const std::vector<size_t>& near = holders[each.nodes.front()];
    const auto holder = std::find_if(near.begin(), near.end(), [&](size_t i) {
      return std::includes(result.largest[i].nodes.begin(), result.largest[i].nodes.end(), each.nodes.begin(), each.nodes.end());
    });
    if (holder != near.end()) {
      result.inside.emplace_back(std::move(each), *holder);
      continue;
    }
    for (const int64_t node : each.nodes) holders[node].push_back(result.largest.size());
    result.largest.push_back(std::move(each));
  }
  return result;
}

using Ends = std::map<int64_t, std::set<std::string>>;  // last node -> the families that have a region with it

/// Whether a region of another family ends, before this one begins, with what its holder has more: then both go together, or the holder
/// alone (a product that adds a residual and a norm, or a product and a norm that adds it).
bool is_alternative(const Found& inside, const Found& holder, const std::string& family, const Ends& ends) {
  return std::ranges::any_of(holder.nodes, [&](int64_t node) {
    const auto ending = ends.find(node);
    return node < inside.nodes.front() && ending != ends.end() && ending->second.size() > ending->second.count(family);
  });
}

}  // namespace

std::vector<Region> match_pattern(const Graph& graph, const Pattern& pattern, const Family& family) {
  std::vector<Region> regions;
  for (Found& found : Matcher(graph, pattern, family).run()) regions.push_back(std::move(found.region));
  return regions;
}

std::vector<Region> match(const std::vector<Graph>& graphs, const std::vector<Pattern>& patterns, const Families& families) {
  std::vector<Region> regions;
  for (const Graph& graph : graphs) {
    std::map<std::string, std::vector<Found>> by_family;
    for (const Pattern& pattern : patterns) {
      const auto family = families.find(pattern.family);
      AK_CHECK(family != families.end(), "patterns are of the families that they were parsed with");
      for (Found& found : Matcher(graph, pattern, family->second).run()) by_family[pattern.family].push_back(std::move(found));
    }
    std::map<std::string, OfFamily> parted;
    for (auto& [name, found] : by_family) parted.emplace(name, part_contained(std::move(found)));
    Ends ends;
    for (const auto& [name, found] : parted) {
      for (const Found& each : found.largest) ends[each.nodes.back()].insert(name);
    }
    std::vector<Found> of_graph, alternatives;
    for (auto& [name, found] : parted) {
      std::vector<Found> of_family;
      for (auto& [each, holder] : found.inside) {
        if (is_alternative(each, found.largest[holder], name, ends)) of_family.push_back(std::move(each));
      }
      std::ranges::move(part_contained(std::move(of_family)).largest, std::back_inserter(alternatives));
    }
    for (auto& [name, found] : parted) std::ranges::move(found.largest, std::back_inserter(of_graph));
    std::ranges::move(alternatives, std::back_inserter(of_graph));
    std::stable_sort(of_graph.begin(), of_graph.end(), [](const Found& a, const Found& b) { return a.nodes.back() < b.nodes.back(); });
    for (Found& each : of_graph) {
      each.region.task = make_task(each.region, families.find(each.region.family)->second).id;
      regions.push_back(std::move(each.region));
    }
  }
  return regions;
}

}  // namespace ak::graph
