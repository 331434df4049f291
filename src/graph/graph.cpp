// graph.json to nodes with positions instead of names.
#include "graph/graph.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "kernel/task.h"

namespace ak::graph {
namespace {

std::optional<std::vector<int64_t>> numbers(const Json& json, const std::string& where) {
  if (!json.is_array()) throw Error(where + ": shape and strides must be arrays");
  std::vector<int64_t> result;
  for (const Json& entry : json) {
    if (entry.is_object() && entry.contains("symbol")) return std::nullopt;
    if (!entry.is_number_integer()) throw Error(where + ": a size or stride must be an integer, not " + entry.dump().substr(0, 50));
    result.push_back(entry.get<int64_t>());
    if (result.back() < 0) throw Error(where + ": a size or stride is negative");
  }
  return result;
}

/// Later steps multiply sizes and strides without a look at overflow.
void check_extent(const TensorMeta& tensor, const std::string& where) {
  int64_t elements = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    int64_t reach = 0;
    const int64_t size = std::max<int64_t>(tensor.shape[i], 1);
    if (__builtin_mul_overflow(elements, size, &elements) || __builtin_mul_overflow(tensor.strides[i], size, &reach)) {
      throw Error(where + ": a tensor of more than 2^63 elements");
    }
  }
}

std::optional<Dtype> known_dtype(const std::string& name) {
  try {
    return parse_dtype(name);
  } catch (const Error&) {
    return std::nullopt;  // complex and the like: no kernel has them, so no pattern asks for them
  }
}

std::optional<TensorMeta> parse_output(const Json& json, const std::string& where) {
  if (!json.is_object()) {
    if (json.is_number_integer()) return std::nullopt;  // a size computed in the graph
    throw Error(where + ": not an output: " + json.dump().substr(0, 50));
  }
  if (!json.contains("shape")) return std::nullopt;
  const auto dtype = known_dtype(json.at("dtype").get<std::string>());
  auto shape = numbers(json.at("shape"), where), strides = numbers(json.at("strides"), where);
  if (!dtype || !shape || !strides || shape->size() != strides->size()) return std::nullopt;
  TensorMeta tensor{*dtype, std::move(*shape), std::move(*strides)};
  check_extent(tensor, where);
  return tensor;
}

class Reader {
 public:
  Graph read(const Json& json) {
    graph_.name = json.at("name").get<std::string>();
    if (!json.at("nodes").is_array()) throw Error("graph " + graph_.name + ": nodes must be an array");
    for (const Json& node : json.at("nodes")) add(node);
    return std::move(graph_);
  }

 private:
  void add(const Json& json) {
    if (!json.is_object()) throw Error("graph " + graph_.name + ": a node must be an object");
    Node node;
    node.name = json.at("name").get<std::string>();
    const std::string where = "graph " + graph_.name + ", node " + node.name;
    node.op = json.at("op").get<std::string>();
    node.kind = json.value("kind", std::string());
    node.target = json.value("target", std::string());
    node.module = json.value("module", std::string());
    node.source = json.value("source", std::string());
    const auto resolve = [&](Value::Kind kind, const std::string& name) {
      const auto found = positions_.find(name);
      if (kind != Value::Kind::node || found == positions_.end())
        throw Error(where + ": reads '" + name + "', which no earlier node makes");
      return found->second;
    };
    if (json.contains("args")) node.arguments = parse_arguments(json.at("args"), resolve, where);
    if (json.contains("out")) {
      for (const Json& output : json.at("out")) node.out.push_back(parse_output(output, where));
    }
    const auto position = static_cast<int64_t>(graph_.nodes.size());
    if (!positions_.emplace(node.name, position).second) throw Error(where + ": the name is there twice");
    graph_.by_op[node.op].push_back(position);
    note_uses(node, position);
    graph_.nodes.push_back(std::move(node));
  }

  void note_uses(const Node& node, int64_t position) {
    std::set<int64_t> read;
    for (const auto& [name, value] : node.arguments) {
      for_each_tensor(value, [&](const Value& used) { read.insert(used.index); });
    }
    for (const int64_t used : read) graph_.nodes[static_cast<size_t>(used)].users.push_back(position);
  }

  Graph graph_;
  std::unordered_map<std::string, int64_t> positions_;
};

/// Operators that only look at their tensor in another way.
const std::set<std::string, std::less<>> view_operators = {"aten.transpose.int",     "aten.permute.default", "aten.expand.default",
                                                           "aten.unsqueeze.default", "aten.squeeze.default", "aten.squeeze.dim",
                                                           "aten.squeeze.dims",      "aten.select.int",      "aten.slice.Tensor",
                                                           "aten.narrow.default",    "aten.diagonal.default"};

bool is_contiguous(const TensorMeta& tensor) { return tensor.strides == kernel::contiguous_strides(tensor.shape); }

}  // namespace

const Value* Node::argument(std::string_view key) const {
  for (const auto& [argument, value] : arguments) {
    if (argument == key) return &value;
  }
  return nullptr;
}

bool Graph::is_constant(int64_t position) const {
  const Node& node = nodes[static_cast<size_t>(position)];
  for (const int64_t user : node.users) {
    if (nodes[static_cast<size_t>(user)].op.starts_with("inplace:")) return false;
  }
  if (node.op == "placeholder") return node.kind == "parameter" || node.kind == "buffer" || node.kind == "constant";
  if (node.op == "get_attr") return true;
  const bool reshapes = node.op == "aten.reshape.default";
  if (!reshapes && !view_operators.contains(node.op)) return false;
  const Value* viewed = node.argument(reshapes || node.argument("self") != nullptr ? "self" : "input");
  if (viewed == nullptr || viewed->kind != Value::Kind::node) return false;
  const TensorMeta* source = nodes[static_cast<size_t>(viewed->index)].tensor();
  if (reshapes && (source == nullptr || !is_contiguous(*source))) return false;  // it may be a copy, a new one each forward
  return is_constant(viewed->index);
}

std::vector<Graph> parse_graphs(const Json& json) {
  try {
    if (!json.is_object() || json.value("schema", std::string()) != "autokernel.graph/1") {
      throw Error("graph.json is not of the format autokernel.graph/1", "capture the model again with this version");
    }
    std::vector<Graph> graphs;
    if (!json.at("graphs").is_array()) throw Error("graph.json: graphs must be an array");
    for (const Json& graph : json.at("graphs")) graphs.push_back(Reader().read(graph));
    return graphs;
  } catch (const Json::exception& error) {
    throw Error(std::string("graph.json is malformed: ") + error.what());
  }
}

}  // namespace ak::graph
