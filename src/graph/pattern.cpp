// patterns.json to patterns with positions instead of names.
#include "graph/pattern.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/error.h"

namespace ak::graph {
namespace {

bool is_tensor(const Value& value) { return value.kind == Value::Kind::node || value.kind == Value::Kind::input; }

/// `add` (unscaled) and `mul` of two tensors.
bool may_commute(const PatternNode& node) {
  if (node.op != "aten.add.Tensor" && node.op != "aten.mul.Tensor") return false;
  int64_t tensors = 0;
  for (const auto& [name, value] : node.arguments) {
    if (name == "self" || name == "other") {
      tensors += is_tensor(value) ? 1 : 0;
    } else if (name == "alpha" && !(value.is_number() && value.number() == 1)) {
      return false;
    }
  }
  return tensors == 2;
}

class Reader {
 public:
  Reader(const Json& json, const Families& families) : json_(json) {
    pattern_.family = json.at("family").get<std::string>();
    pattern_.spelling = json.at("spelling").get<std::string>();
    where_ = "pattern " + pattern_.family + "/" + pattern_.spelling;
    const auto found = families.find(pattern_.family);
    if (found == families.end())
      throw Error(where_ + ": there is no family of this name", "make the patterns again from the same families");
    family_ = &found->second;
  }

  Pattern read() {
    pattern_.dtype = parse_dtype(json_.at("dtype").get<std::string>());
    pattern_.options = family_->options;
    if (json_.contains("options")) {
      for (const auto& [name, value] : json_.at("options").items()) pattern_.options[name] = value.get<int64_t>();
    }
    for (const Json& input : json_.at("inputs")) add_input(input);
    for (const Json& node : json_.at("nodes")) add_node(node);
    for (const Json& output : json_.at("outputs")) add_output(output);
    check_tensors();
    check_reachable();
    return std::move(pattern_);
  }

 private:
  const FamilyTensor& contract_tensor(const std::string& name) const {
    const FamilyTensor* tensor = family_->find_tensor(name);
    if (tensor == nullptr) throw Error(where_ + ": the family has no tensor '" + name + "'");
    return *tensor;
  }

  TensorLabels labels(const Json& json, const std::string& name) const {
    return {json.at("labels").get<std::vector<std::string>>(), contract_tensor(name), where_ + ", labels of " + name};
  }

  void add_input(const Json& json) {
    const std::string name = json.at("name");
    if (!inputs_.emplace(name, static_cast<int64_t>(pattern_.inputs.size())).second)
      throw Error(where_ + ": the input '" + name + "' is there twice");
    pattern_.inputs.push_back({name, parse_dtype(json.at("dtype").get<std::string>()), labels(json, name)});
  }

  void add_node(const Json& json) {
    PatternNode node{json.at("name"), json.at("op"), {}, false};
    const auto resolve = [&](Value::Kind kind, const std::string& name) {
      const auto& known = kind == Value::Kind::node ? nodes_ : inputs_;
      const auto found = known.find(name);
      if (found == known.end()) throw Error(where_ + ", node " + node.name + ": reads '" + name + "', which nothing makes");
      return found->second;
    };
    node.arguments = parse_arguments(json.at("args"), resolve, where_ + ", node " + node.name);
    for (const auto& [argument, value] : node.arguments) check_scalars(value);
    node.commutes = may_commute(node);
    if (!nodes_.emplace(node.name, static_cast<int64_t>(pattern_.nodes.size())).second)
      throw Error(where_ + ": the node '" + node.name + "' is there twice");
    pattern_.nodes.push_back(std::move(node));
  }

  void check_scalars(const Value& value) const {
    if (value.kind == Value::Kind::scalar && !family_->scalars.contains(value.text))
      throw Error(where_ + ": the family has no scalar '" + value.text + "'");
    for (const Value& item : value.items) check_scalars(item);
  }

  void add_output(const Json& json) {
    const std::string name = json.at("name");
    if (!json.contains("node")) throw Error(where_ + ": the output '" + name + "' is an input as it came");
    const auto found = nodes_.find(json.at("node").get<std::string>());
    if (found == nodes_.end()) throw Error(where_ + ": the output '" + name + "' is made by no node");
    pattern_.outputs.push_back({name, found->second, labels(json, name)});
  }

  /// What the contract has, the pattern has, and nothing else.
  void check_tensors() const {
    if (pattern_.outputs.empty()) throw Error(where_ + ": no outputs");
    for (const FamilyTensor& tensor : family_->tensors) {
      bool there = inputs_.contains(tensor.name) && tensor.role != kernel::Role::output;
      for (const PatternOutput& output : pattern_.outputs)
        there = there || (output.name == tensor.name && tensor.role == kernel::Role::output);
      const bool wanted = !family_->is_absent(tensor, pattern_.options);
      if (there == wanted) continue;
      throw Error(where_ + ": the spelling " + (there ? "has" : "lacks") + " the tensor '" + tensor.name + "', which its options " +
                  (wanted ? "ask for" : "leave out"));
    }
  }

  /// Every node leads to an output, and every input is read.
  void check_reachable() const {
    std::vector<bool> reached(pattern_.nodes.size()), read(pattern_.inputs.size());
    for (const PatternOutput& output : pattern_.outputs) reached[static_cast<size_t>(output.node)] = true;
    for (size_t i = pattern_.nodes.size(); i-- > 0;) {
      if (!reached[i]) throw Error(where_ + ": the node '" + pattern_.nodes[i].name + "' leads to no output");
      for (const auto& [name, value] : pattern_.nodes[i].arguments) {
        for_each_tensor(
            value, [&](const Value& used) { (used.kind == Value::Kind::node ? reached : read)[static_cast<size_t>(used.index)] = true; });
      }
    }
    for (size_t i = 0; i < read.size(); ++i) {
      if (!read[i]) throw Error(where_ + ": no node reads the input '" + pattern_.inputs[i].name + "'");
    }
  }

  const Json& json_;
  const Family* family_ = nullptr;
  std::string where_;
  Pattern pattern_;
  std::unordered_map<std::string, int64_t> inputs_, nodes_;
};

}  // namespace

std::vector<Pattern> parse_patterns(const Json& json, const Families& families) {
  try {
    std::vector<Pattern> patterns;
    const Json& list = json.is_array() ? json : json.at("patterns");
    if (!list.is_array()) throw Error("patterns.json: patterns must be an array");
    for (const Json& pattern : list) patterns.push_back(Reader(pattern, families).read());
    return patterns;
  } catch (const Json::exception& error) {
    throw Error(std::string("patterns.json is malformed: ") + error.what());
  }
}

}  // namespace ak::graph
