// Binding of dims, and strides in the contract's order.
#include "graph/labels.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace ak::graph {
namespace {

bool is_name(const std::string& text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

Label parse_label(const std::string& text, const std::string& where) {
  Label label;
  label.text = without_spaces(text);
  if (label.text.starts_with("*")) {
    label.kind = Label::Kind::leading;
    label.text.erase(0, 1);
    if (!is_name(label.text)) throw Error(where + ": '" + text + "' does not name a dim after its star");
  } else if (label.text == "1") {
    label.kind = Label::Kind::one;
  } else if (!is_name(label.text)) {
    label.kind = Label::Kind::expression;
  }
  label.expression = Expression::parse(label.text, where);
  return label;
}

bool bind_dim(const std::string& name, int64_t size, Bindings& dims) { return dims.emplace(name, size).first->second == size; }

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

/// The one stride with which an index over all the dims walks them, or nothing.
std::optional<int64_t> collapsed_stride(const int64_t* shape, const int64_t* strides, size_t rank) {
  std::optional<int64_t> inner;  // stride of the innermost dim
  int64_t expected = 0;
  for (size_t i = rank; i-- > 0;) {
    if (shape[i] == 1) continue;
    if (inner && strides[i] != expected) return std::nullopt;
    if (!inner) inner = strides[i];
    expected = strides[i] * shape[i];
  }
  return inner.value_or(0);
}

}  // namespace

std::vector<int64_t> without_leading_ones(const std::vector<int64_t>& sizes) {
  return {std::find_if(sizes.begin(), sizes.end(), [](int64_t size) { return size != 1; }), sizes.end()};
}

TensorLabels::TensorLabels(const std::vector<std::string>& labels, const FamilyTensor& tensor, const std::string& where)
    : contract_shape_(tensor.shape) {
  for (const std::string& text : labels) labels_.push_back(parse_label(text, where));
  has_leading_ = !labels_.empty() && labels_[0].kind == Label::Kind::leading;
  of_contract_.assign(tensor.shape.size(), -1);
  for (size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i].kind == Label::Kind::leading && i > 0) throw Error(where + ": '*" + labels_[i].text + "' is not the first label");
    bool found = labels_[i].kind == Label::Kind::one;
    for (size_t dim = 0; dim < tensor.shape.size() && !found; ++dim) {
      if (of_contract_[dim] >= 0 || without_spaces(tensor.shape[dim].text()) != labels_[i].text) continue;
      of_contract_[dim] = static_cast<int64_t>(i);
      found = true;
    }
    if (!found) throw Error(where + ": the contract's shape of " + tensor.name + " has no dim '" + labels_[i].text + "' left");
  }
}

bool TensorLabels::bind(const TensorMeta& tensor, Bindings& dims, std::map<std::string, std::vector<int64_t>>& leading) const {
  const size_t fixed = labels_.size() - (has_leading_ ? 1 : 0);
  if (tensor.shape.size() < fixed || (!has_leading_ && tensor.shape.size() != fixed)) return false;
  const size_t first = tensor.shape.size() - fixed;
  if (has_leading_) {
    const std::vector<int64_t> sizes(tensor.shape.begin(), tensor.shape.begin() + static_cast<std::ptrdiff_t>(first));
    const auto& known = leading.emplace(labels_[0].text, sizes).first->second;
    if (without_leading_ones(known) != without_leading_ones(sizes)) return false;
    if (!bind_dim(labels_[0].text, product(sizes), dims)) return false;
  }
  for (size_t i = 0; i < fixed; ++i) {
    const Label& label = labels_[i + (has_leading_ ? 1 : 0)];
    const int64_t size = tensor.shape[first + i];
    if (label.kind == Label::Kind::one && size != 1) return false;
    if (label.kind == Label::Kind::dim && !bind_dim(label.text, size, dims)) return false;
  }
  return true;
}

bool TensorLabels::agrees(const TensorMeta& tensor, const Bindings& names) const {
  for (size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i].kind != Label::Kind::expression) continue;
    if (tensor.shape[tensor.shape.size() - labels_.size() + i] != labels_[i].expression.evaluate(names)) return false;
  }
  return true;
}

std::optional<std::vector<int64_t>> TensorLabels::strides(const TensorMeta& tensor, const Bindings& names) const {
  std::vector<int64_t> shape;
  for (const Expression& extent : contract_shape_) shape.push_back(extent.evaluate(names));
  const std::vector<int64_t> contiguous = kernel::contiguous_strides(shape);
  const size_t leading = has_leading_ ? leading_rank(tensor) : 0;
  const auto collapsed = collapsed_stride(tensor.shape.data(), tensor.strides.data(), leading);
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (!collapsed && !empty) return std::nullopt;
  std::vector<int64_t> result;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const int64_t label = of_contract_[dim];
    if (shape[dim] == 1 || empty) {
      result.push_back(contiguous[dim]);
    } else if (label < 0) {
      result.push_back(0);
    } else if (labels_[static_cast<size_t>(label)].kind == Label::Kind::leading) {
      result.push_back(*collapsed);
    } else {
      result.push_back(tensor.strides[tensor.shape.size() - labels_.size() + static_cast<size_t>(label)]);
    }
  }
  return result;
}

}  // namespace ak::graph
