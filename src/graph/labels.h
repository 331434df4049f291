// Labels: how the dims of a model's tensor become the dims of a contract.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/expression.h"
#include "graph/family.h"
#include "graph/graph.h"

namespace ak::graph {

/// One label: "*M" (leading dims that collapse), "1" (a dim of size 1), "N" (a dim) or "D/2" (an expression of dims).
struct Label {
  enum class Kind { leading, one, dim, expression } kind = Kind::dim;
  std::string text;  // without the star
  Expression expression;
};

/// The labels of one tensor, tied to the dims of the contract.
class TensorLabels {
 public:
  /// errors: a label that the contract's shape has not, a star that is not first; with `where`.
  TensorLabels(const std::vector<std::string>& labels, const FamilyTensor& tensor, const std::string& where);

  /// Bind the dims that labels name. False where the rank is wrong, a dim has another size already, or leading dims differ (but for ones in
  /// front).
  bool bind(const TensorMeta& tensor, Bindings& dims, std::map<std::string, std::vector<int64_t>>& leading) const;
  /// Whether the sizes that are expressions are what they should be, now that all dims are bound.
  bool agrees(const TensorMeta& tensor, const Bindings& names) const;
  /// Strides in the contract's order; 0 for a dim that the tensor is broadcast over. A dim of size 1 gets the stride that it has in a
  /// contiguous tensor. Nothing where leading dims do not collapse.
  std::optional<std::vector<int64_t>> strides(const TensorMeta& tensor, const Bindings& names) const;

 private:
  size_t leading_rank(const TensorMeta& tensor) const { return tensor.shape.size() - (labels_.size() - (has_leading_ ? 1 : 0)); }

  std::vector<Label> labels_;
  std::vector<int64_t> of_contract_;  // for each dim of the contract the label, or -1
  std::vector<Expression> contract_shape_;
  bool has_leading_ = false;
};

/// `sizes` without the ones in front: what broadcasting compares.
std::vector<int64_t> without_leading_ones(const std::vector<int64_t>& sizes);

}  // namespace ak::graph
