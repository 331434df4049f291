// Short ways to write graphs, families and patterns in tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "graph/match.h"

namespace ak::graph {

inline Json at(const std::string& name) { return {{"node", name}}; }
inline Json in(const std::string& name) { return Json{{"input", name}}; }

/// graph.json of one graph, node by node. Each adder returns the node's name.
class GraphBuilder {
 public:
  using Sizes = std::vector<int64_t>;

  std::string placeholder(const std::string& name, const Sizes& shape, const std::string& kind = "input",
                          const std::string& dtype = "float32", const Sizes& strides = {}) {
    nodes_.push_back({{"name", name}, {"op", "placeholder"}, {"kind", kind}, {"target", name}, {"out", {tensor(shape, dtype, strides)}}});
    return name;
  }
  std::string parameter(const std::string& name, const Sizes& shape) { return placeholder(name, shape, "parameter"); }

  /// `op` lacks its "aten."; args are JSON text or an object.
  std::string op(const std::string& name, const std::string& op, const Json& args, const Sizes& shape, const Sizes& strides = {},
                 const std::string& dtype = "float32") {
    nodes_.push_back({{"name", name},
                      {"op", op.find(':') == std::string::npos ? "aten." + op : op},
                      {"args", args},
                      {"out", {tensor(shape, dtype, strides)}}});
    return name;
  }
  std::string mul(const std::string& name, const Json& a, const Json& b, const Sizes& shape) {
    return op(name, "mul.Tensor", {{"self", a}, {"other", b}}, shape);
  }
  std::string add(const std::string& name, const Json& a, const Json& b, const Sizes& shape) {
    return op(name, "add.Tensor", {{"self", a}, {"other", b}, {"alpha", 1}}, shape);
  }
  void output(const std::vector<std::string>& names) {
    Json values = Json::array();
    for (const std::string& name : names) values.push_back(at(name));
    nodes_.push_back({{"name", "output"}, {"op", "output"}, {"args", {{"values", values}}}});
  }

  Json& nodes() { return nodes_; }
  Json json() const { return {{"schema", "autokernel.graph/1"}, {"graphs", {{{"name", "g0"}, {"nodes", nodes_}}}}}; }
  std::vector<Graph> graphs() const { return parse_graphs(json()); }

 private:
  static Json tensor(const Sizes& shape, const std::string& dtype, const Sizes& strides) {
    return {{"dtype", dtype}, {"shape", shape}, {"strides", strides.empty() ? kernel::contiguous_strides(shape) : strides}};
  }
  Json nodes_ = Json::array();
};

/// A family of float32 tensors: {name, role, shape, optional or ""}.
struct TensorSpec {
  std::string name, role;
  std::vector<std::string> shape;
  std::string optional = {};
};

inline Families family_of(const std::string& name, const std::vector<TensorSpec>& tensors, const std::string& more = {}) {
  std::string text =
      "name = \"" + name + "\"\nsummary = \"s\"\ndtypes = [\"float32\"]\nflops = \"1\"\nbytes = \"sizeof(T)\"\n" + more + "\n";
  for (const TensorSpec& tensor : tensors) {
    text += "[[tensor]]\nname = \"" + tensor.name + "\"\nrole = \"" + tensor.role + "\"\nshape = " + Json(tensor.shape).dump() + "\n";
    if (!tensor.optional.empty()) text += "optional = \"" + tensor.optional + "\"\n";
  }
  text += "[[spelling]]\nfunction = \"s\"\nlabels = {}\n";
  return {{name, parse_family(text, name + "/family.toml")}};
}

/// patterns.json of one pattern; `inputs` are name and labels, `nodes` name, op (without "aten.") and args.
struct PatternText {
  std::string family, spelling = "s";
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs;
  struct NodeText {
    std::string name, op;
    Json args;
  };
  std::vector<NodeText> nodes;
  struct OutputText {
    std::string node;
    std::vector<std::string> labels;
    std::string name = "out";
  };
  std::vector<OutputText> outputs;
  Json options = Json::object();

  Json json() const {
    Json pattern = {{"family", family},        {"spelling", spelling},   {"dtype", "float32"},      {"options", options},
                    {"inputs", Json::array()}, {"nodes", Json::array()}, {"outputs", Json::array()}};
    for (const auto& [name, labels] : inputs) pattern["inputs"].push_back({{"name", name}, {"labels", labels}, {"dtype", "float32"}});
    for (const NodeText& node : nodes) pattern["nodes"].push_back({{"name", node.name}, {"op", "aten." + node.op}, {"args", node.args}});
    for (const OutputText& output : outputs)
      pattern["outputs"].push_back({{"node", output.node}, {"labels", output.labels}, {"name", output.name}});
    return pattern;
  }
};

inline std::vector<Pattern> patterns_of(const std::vector<PatternText>& texts, const Families& families) {
  Json list = Json::array();
  for (const PatternText& text : texts) list.push_back(text.json());
  return parse_patterns({{"patterns", list}}, families);
}

/// What an Error says; "no error" where none comes.
template <class Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ak::graph
