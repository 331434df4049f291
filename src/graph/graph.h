// The operators of a model as the worker captured them: graph.json (docs/formats/graph.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/json.h"
#include "graph/value.h"

namespace ak::graph {

/// A value of a node whose sizes and strides are all numbers.
struct TensorMeta {
  Dtype dtype = Dtype::float32;
  std::vector<int64_t> shape, strides;
};

/// One operator, placeholder or output.
struct Node {
  std::string name, op;
  std::string kind, target;  // of a placeholder: input | parameter | buffer | constant, and its path in the model
  std::string module, source;
  Arguments arguments;
  std::vector<std::optional<TensorMeta>> out;  // nothing where symbolic, not strided or of a dtype that no kernel has
  std::vector<int64_t> users;                  // positions of the nodes that read this one

  /// The one tensor that the node makes, if it makes one.
  const TensorMeta* tensor() const { return out.size() == 1 && out[0] ? &*out[0] : nullptr; }
  /// nullptr where the operator has no such argument.
  const Value* argument(std::string_view key) const;
};

/// Nodes in topological order.
struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::map<std::string, std::vector<int64_t>, std::less<>> by_op;  // positions, ascending

  /// Whether the node is a parameter, buffer or constant, or a view of one, that no operator writes.
  bool is_constant(int64_t node) const;
};

/// errors: not of this format, a node used before it is made, a name given twice, a missing or malformed field; with graph and node.
std::vector<Graph> parse_graphs(const Json& json);

}  // namespace ak::graph
