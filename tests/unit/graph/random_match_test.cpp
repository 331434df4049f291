// The matcher against a naive one, on seeded random graphs and on patterns cut out of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "builders.h"

namespace ak::graph {
namespace {

using Nodes = std::vector<std::string>;

constexpr int64_t size = 4;

/// Operators of one shape with few names, so that places look alike.
struct RandomGraph {
  explicit RandomGraph(std::mt19937& random, size_t count) {
    for (const char* name : {"i0", "i1", "i2"}) names.push_back(builder.placeholder(name, {size}));
    for (size_t i = 0; i < count; ++i) add(random, "n" + std::to_string(i));
    std::uniform_int_distribution<size_t> any(3, names.size() - 1);
    std::set<std::string> outputs = {names.back()};
    for (int i = 0; i < 2; ++i) outputs.insert(names[any(random)]);
    builder.output({outputs.begin(), outputs.end()});
  }

  /// Mostly the newest value with an input, so that inner values have few users.
  std::pair<std::string, std::string> pick_two(std::mt19937& random) const {
    const size_t near = names.size() - std::min<size_t>(names.size(), 4);
    const std::string newest = names.back(), input = names[random() % 3], recent = names[near + random() % (names.size() - near)];
    const std::string other = random() % 3 == 0 ? recent : input;
    return random() % 2 == 0 ? std::pair(newest, other) : std::pair(other, newest);
  }

  void add(std::mt19937& random, const std::string& name) {
    const auto [a, b] = pick_two(random);
    switch (random() % 4) {
      case 0: builder.op(name, "neg.default", {{"self", at(names.back())}}, {size}); break;
      case 1: builder.op(name, "sub.Tensor", {{"self", at(a)}, {"other", at(b)}, {"alpha", 1}}, {size}); break;
      case 2: builder.mul(name, at(a), at(b), {size}); break;
      default: builder.add(name, at(a), at(b), {size});
    }
    names.push_back(name);
  }

  GraphBuilder builder;
  Nodes names;
};

/// A connected part of the graph as a pattern: `root` and up to `limit` of what it is made of; what it reads from outside are inputs.
PatternText cut_pattern(const GraphBuilder& source, const std::string& root, size_t limit, std::mt19937& random, Families& families) {
  GraphBuilder copy = source;
  const Json nodes = copy.nodes();
  const auto find = [&](const std::string& name) {
    return *std::find_if(nodes.begin(), nodes.end(), [&](const Json& node) { return node.at("name") == name; });
  };
  std::set<std::string> inside = {root};
  Nodes frontier = {root};
  while (!frontier.empty() && inside.size() < limit) {
    const Json node = find(frontier.back());
    frontier.pop_back();
    for (const auto& [key, value] : node.at("args").items()) {
      if (!value.is_object() || random() % 5 == 0) continue;
      const std::string name = value.at("node");
      if (find(name).at("op") == "placeholder" || inside.size() >= limit || !inside.insert(name).second) continue;
      frontier.push_back(name);
    }
  }
  PatternText pattern{.family = "cut", .outputs = {{root, {"N"}}}};
  std::vector<TensorSpec> tensors;
  for (const Json& node : nodes) {
    if (!inside.contains(node.at("name"))) continue;
    Json args = node.at("args");
    for (auto& [key, value] : args.items()) {
      if (!value.is_object() || inside.contains(value.at("node"))) continue;
      const std::string input = "x_" + value.at("node").get<std::string>();
      if (std::none_of(pattern.inputs.begin(), pattern.inputs.end(), [&](const auto& each) { return each.first == input; })) {
        pattern.inputs.push_back({input, {"N"}});
        tensors.push_back({input, "data", {"N"}});
      }
      value = in(input);
    }
    const std::string op = node.at("op");
    pattern.nodes.push_back({node.at("name"), op.substr(5), args});
  }
  tensors.push_back({"out", "output", {"N"}});
  families = family_of("cut", tensors);
  return pattern;
}

/// Every way to lay the pattern over the graph: each choice of orders of the commuting nodes is expanded and tried by itself.
class NaiveMatcher {
 public:
  NaiveMatcher(const Json& nodes, const PatternText& pattern) : nodes_(nodes), pattern_(pattern) {}

  std::set<Nodes> run() const {
    std::set<Nodes> found;
    for (const Json& root : nodes_) {
      for (uint64_t orders = 0; orders < (uint64_t{1} << pattern_.nodes.size()); ++orders) {
        std::map<std::string, std::string> bound;
        if (!lay(pattern_.outputs[0].node, root.at("name"), orders, bound)) continue;
        if (const auto nodes = closed(root.at("name"), bound)) {
          found.insert(*nodes);
          break;  // one region a root
        }
      }
    }
    return found;
  }

 private:
  const Json& node(const std::string& name) const {
    return *std::find_if(nodes_.begin(), nodes_.end(), [&](const Json& each) { return each.at("name") == name; });
  }

  /// `bound`: pattern node or "input:name" -> graph node.
  bool lay(const std::string& wanted, const std::string& given, uint64_t orders, std::map<std::string, std::string>& bound) const {
    const auto [known, is_new] = bound.emplace(wanted, given);
    if (!is_new) return known->second == given;
    size_t index = 0;
    while (pattern_.nodes[index].name != wanted) ++index;
    const auto& part = pattern_.nodes[index];
    const Json& place = node(given);
    if (place.at("op") != "aten." + part.op) return false;
    const bool swaps = (part.op == "add.Tensor" || part.op == "mul.Tensor") && ((orders >> index) & 1) != 0;
    for (const auto& [key, value] : part.args.items()) {
      const Json& other = place.at("args").at(swaps && key == "self" ? "other" : swaps && key == "other" ? "self" : key);
      if (!value.is_object()) {
        if (value != other) return false;
      } else if (value.contains("input")) {
        const std::string input = value.at("input");
        if (bound.emplace("input:" + input, other.at("node")).first->second != other.at("node")) return false;
      } else if (!lay(value.at("node"), other.at("node"), orders, bound)) {
        return false;
      }
    }
    return true;
  }

  std::optional<Nodes> closed(const std::string& root, const std::map<std::string, std::string>& bound) const {
    std::set<std::string> inside;
    for (const auto& [name, place] : bound) {
      if (!name.starts_with("input:")) inside.insert(place);
    }
    for (const auto& [name, place] : bound) {
      if (name.starts_with("input:") && inside.contains(place)) return std::nullopt;
    }
    Nodes in_order;
    for (const Json& each : nodes_) {
      const std::string name = each.at("name");
      if (inside.contains(name)) {
        in_order.push_back(name);
        continue;
      }
      const std::string text = each.value("args", Json::object()).dump();
      for (const std::string& used : inside) {
        if (used != root && text.find("\"" + used + "\"") != std::string::npos) return std::nullopt;
      }
    }
    return in_order;
  }

  const Json& nodes_;
  const PatternText& pattern_;
};

TEST(RandomMatch, AgreesWithANaiveMatcher) {
  size_t total = 0, interior = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    RandomGraph made(random, 12 + random() % 30);
    Families families;
    const std::string root = "n" + std::to_string(random() % (made.names.size() - 3));
    const PatternText pattern = cut_pattern(made.builder, root, 1 + random() % 6, random, families);
    const Graph graph = made.builder.graphs().at(0);
    std::set<Nodes> found;
    for (const Region& region : match_pattern(graph, patterns_of({pattern}, families).at(0), families.at("cut")))
      found.insert(region.nodes);
    const std::set<Nodes> expected = NaiveMatcher(made.builder.nodes(), pattern).run();
    EXPECT_EQ(found, expected) << "seed " << seed << "\n" << pattern.json().dump() << "\n" << made.builder.json().dump();
    total += found.size();
    interior += static_cast<size_t>(std::count_if(found.begin(), found.end(), [](const Nodes& nodes) { return nodes.size() > 2; }));
  }
  EXPECT_GT(total, 300u) << "the test must find something to be one";
  EXPECT_GT(interior, 50u);
}

TEST(RandomMatch, NeitherDuplicatesNorContainedRegionsRemain) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    RandomGraph made(random, 60);
    Families families;
    const PatternText cut = cut_pattern(made.builder, made.names.back(), 4, random, families);
    const auto regions = match(made.builder.graphs(), patterns_of({cut, cut}, families), families);
    for (size_t i = 0; i < regions.size(); ++i) {
      for (size_t j = 0; j < regions.size(); ++j) {
        const std::set<std::string> a(regions[i].nodes.begin(), regions[i].nodes.end()),
            b(regions[j].nodes.begin(), regions[j].nodes.end());
        EXPECT_FALSE(i != j && std::includes(b.begin(), b.end(), a.begin(), a.end())) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace ak::graph
