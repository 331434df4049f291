// What a family's spelling looks like in a graph: patterns.json (docs/formats/graph.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/json.h"
#include "graph/family.h"
#include "graph/labels.h"
#include "graph/value.h"

namespace ak::graph {

struct PatternInput {
  std::string name;
  Dtype dtype = Dtype::float32;
  TensorLabels labels;
};

struct PatternNode {
  std::string name, op;
  Arguments arguments;    // node and input values hold positions in the pattern
  bool commutes = false;  // its two tensors may be the other way round
};

struct PatternOutput {
  std::string name;
  int64_t node = 0;
  TensorLabels labels;
};

struct Pattern {
  std::string family, spelling;
  Dtype dtype = Dtype::float32;
  std::map<std::string, int64_t> options;
  std::vector<PatternInput> inputs;
  std::vector<PatternNode> nodes;  // topological order
  std::vector<PatternOutput> outputs;
};

/// Read patterns.json: an object with `patterns`, or their array.
/// errors: malformed JSON, an unknown family, labels that do not fit the contract, a node that leads to no output; with family and
/// spelling.
std::vector<Pattern> parse_patterns(const Json& json, const Families& families);

}  // namespace ak::graph
