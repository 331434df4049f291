// family.toml to a contract; every name in it is checked here, so that no later step meets an unknown one.
#include "graph/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "graph/toml_reader.h"

namespace ak::graph {
namespace {

using kernel::Role;

const std::set<std::string, std::less<>> layouts = {"contiguous", "strided", "misaligned", "transposed"};

class Reader : TomlReader {
 public:
  Reader(std::string_view source, const std::string& origin) : TomlReader(source, origin) {}

  Family read() {
    check_keys(root(), "",
               {"name", "summary", "dtypes", "flops", "bytes", "tensor", "scalars", "options", "spelling", "stages", "tolerance"});
    family_.name = text(root(), "", "name");
    family_.summary = text(root(), "", "summary");
    read_dtypes();
    read_options();
    read_scalars();
    read_tensors();
    read_costs();
    read_spellings();
    read_stages();
    return std::move(family_);
  }

 private:
  void read_dtypes() {
    for (const std::string& name : texts(required(root(), "", "dtypes"), "dtypes")) family_.dtypes.push_back(dtype(name, "dtypes"));
    if (family_.dtypes.empty()) fail("dtypes", "must not be empty");
  }

  void read_options() {
    if (!root().contains("options")) return;
    check_table("options");
    for (const auto& [name, value] : root().at("options").items()) family_.options[name] = integer(value, "options." + name);
  }
  void read_scalars() {
    if (!root().contains("scalars")) return;
    check_table("scalars");
    for (const auto& [name, value] : root().at("scalars").items()) {
      if (!value.is_number()) fail("scalars." + name, "must be a number");
      family_.scalars[name] = value.is_number_integer() ? kernel::Scalar(value.get<int64_t>()) : kernel::Scalar(value.get<double>());
    }
  }
  void check_table(const std::string& key) const {
    if (!root().at(key).is_object()) fail(key, "must be a table");
  }

  void read_tensors() {
    const Json& tensors = array(required(root(), "", "tensor"), "tensor");
    bool has_output = false;
    for (size_t i = 0; i < tensors.size(); ++i) {
      family_.tensors.push_back(tensor(tensors[i], at("tensor", i)));
      has_output = has_output || family_.tensors.back().role == Role::output;
    }
    if (!has_output) fail("tensor", "no tensor has the role output");
  }
  FamilyTensor tensor(const Json& json, const std::string& path) {
    check_keys(json, path, {"name", "role", "shape", "dtype", "optional", "range", "ignored", "hides", "factors"});
    FamilyTensor tensor;
    tensor.name = text(json, path, "name");
    if (family_.find_tensor(tensor.name) != nullptr) fail(join(path, "name"), "the tensor '" + tensor.name + "' is there twice");
    try {
      tensor.role = kernel::parse_role(text(json, path, "role"));
    } catch (const Error& error) {
      fail(join(path, "role"), std::string(error.what()) + ": " + error.what_to_do());
    }
    for (const std::string& extent : texts(required(json, path, "shape"), join(path, "shape"))) {
      tensor.shape.push_back(Expression::parse(extent, where(join(path, "shape"))));
      for (const std::string& name : tensor.shape.back().names()) dims_.insert(name);
    }
    const std::string type = json.contains("dtype") ? text(json, path, "dtype") : tensor.role == Role::index ? "int64" : "T";
    if (type != "T") tensor.dtype = dtype(type, join(path, "dtype"));
    if (json.contains("optional")) tensor.optional = option_expression(text(json, path, "optional"), join(path, "optional"));
    if (json.contains("factors")) tensor.factors = option_expression(text(json, path, "factors"), join(path, "factors"));
    if (json.contains("range")) tensor.range = text(json, path, "range");
    if (json.contains("ignored")) tensor.ignored = scalar_name(text(json, path, "ignored"), join(path, "ignored"));
    if (json.contains("hides")) {
      if (!json.at("hides").is_boolean()) fail(join(path, "hides"), "true or false is needed");
      tensor.hides = json.at("hides");
    }
    return tensor;
  }
  std::string scalar_name(const std::string& name, const std::string& path) const {
    if (!family_.scalars.contains(name)) fail(path, "the family has no scalar '" + name + "'");
    return name;
  }
  Expression option_expression(const std::string& source, const std::string& path) const {
    Expression expression = Expression::parse(source, where(path));
    for (const std::string& name : expression.names()) {
      if (!family_.options.contains(name)) fail(path, "there is no option '" + name + "'");
    }
    return expression;
  }

  void read_costs() {
    for (const auto& [name, value] : family_.options) dims_.erase(name);
    family_.flops = cost("flops");
    family_.bytes = cost("bytes");
  }
  Expression cost(const std::string& key) const {
    Expression expression = Expression::parse(text(root(), "", key), where(key));
    for (const std::string& name : expression.names()) {
      if (!dims_.contains(name) && !family_.options.contains(name) && !family_.scalars.contains(name) && !name.starts_with("sizeof(")) {
        fail(key, "there is no dim or option '" + name + "'");
      }
    }
    return expression;
  }

  void read_spellings() {
    const Json& spellings = array(required(root(), "", "spelling"), "spelling");
    for (size_t i = 0; i < spellings.size(); ++i) family_.spellings.push_back(spelling(spellings[i], at("spelling", i)));
  }
  Spelling spelling(const Json& json, const std::string& path) const {
    check_keys(json, path, {"function", "labels", "scalars", "options", "sizes"});
    Spelling spelling;
    spelling.function = text(json, path, "function");
    const Json& labels = required(json, path, "labels");
    if (!labels.is_object()) fail(join(path, "labels"), "must be a table");
    for (const auto& [name, value] : labels.items()) {
      if (family_.find_tensor(name) == nullptr) fail(join(path, "labels." + name), "the family has no tensor '" + name + "'");
      spelling.labels[name] = texts(value, join(path, "labels." + name));
    }
    if (json.contains("scalars")) spelling.scalars = texts(json.at("scalars"), join(path, "scalars"));
    for (const std::string& name : spelling.scalars) scalar_name(name, join(path, "scalars"));
    if (json.contains("options")) {
      check_options(json.at("options"), join(path, "options"));
      for (const auto& [name, value] : json.at("options").items()) spelling.options[name] = integer(value, join(path, "options." + name));
    }
    return spelling;
  }
  void check_options(const Json& object, const std::string& path) const {
    if (!object.is_object()) fail(path, "must be a table");
    for (const auto& [key, value] : object.items()) {
      if (!family_.options.contains(key)) fail(join(path, key), "the family has no option '" + key + "'");
    }
  }

  void read_stages() {
    const Json stages = root().value("stages", Json::object());
    check_keys(stages, "stages", {"sweep", "edges", "stability"});
    family_.sweep = bindings(stages, "sweep");
    family_.edges = bindings(stages, "edges");
    if (stages.contains("stability")) family_.stability = texts(stages.at("stability"), "stages.stability");
    const Json tolerance = root().value("tolerance", Json::object());
    check_keys(tolerance, "tolerance", {"k"});
    if (!tolerance.contains("k")) return;
    if (!tolerance.at("k").is_number() || !(tolerance.at("k").get<double>() > 0)) fail("tolerance.k", "must be a number above 0");
    family_.tolerance_k = tolerance.at("k").get<double>();
  }
  std::vector<kernel::Binding> bindings(const Json& stages, const std::string& key) const {
    std::vector<kernel::Binding> result;
    const std::string path = "stages." + key;
    if (!stages.contains(key)) return result;
    for (const Json& entry : array(stages.at(key), path)) result.push_back(binding(entry, at(path, result.size())));
    return result;
  }
  kernel::Binding binding(const Json& json, const std::string& path) const {
    if (!json.is_object()) fail(path, "must be a table of dims");
    kernel::Binding binding;
    for (const auto& [name, value] : json.items()) {
      if (name == "layout") {
        binding.layout = text(json, path, "layout");
        if (!layouts.contains(binding.layout)) fail(join(path, name), "unknown layout '" + binding.layout + "'");
      } else if (!dims_.contains(name)) {
        fail(join(path, name), "no tensor has the dim '" + name + "'");
      } else {
        binding.dims[name] = integer(value, join(path, name));
        if (binding.dims[name] < 0) fail(join(path, name), "must not be negative");
      }
    }
    for (const std::string& name : dims_) {
      if (!binding.dims.contains(name)) fail(path, "lacks the dim '" + name + "'");
    }
    return binding;
  }

  Family family_;
  std::set<std::string, std::less<>> dims_;
};

}  // namespace

const FamilyTensor* Family::find_tensor(std::string_view tensor) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const FamilyTensor& each) { return each.name == tensor; });
  return found == tensors.end() ? nullptr : &*found;
}

bool Family::is_absent(const FamilyTensor& tensor, const std::map<std::string, int64_t>& of_contract) const {
  return tensor.optional && evaluate(*tensor.optional, of_contract) == 0;
}

bool Family::has_factors(const FamilyTensor& tensor, const std::map<std::string, int64_t>& of_contract) const {
  return tensor.factors && evaluate(*tensor.factors, of_contract) != 0;
}

int64_t Family::evaluate(const Expression& expression, const std::map<std::string, int64_t>& of_contract) const {
  Bindings names(options.begin(), options.end());
  for (const auto& [option, value] : of_contract) names[option] = value;
  return expression.evaluate(names);
}

Family parse_family(std::string_view text, const std::string& origin) { return Reader(text, origin).read(); }

Families load_families(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory))
    throw Error("there is no directory of families at " + directory.string(), "set AUTOKERNEL_HOME to a checkout or installation");
  Families families;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::filesystem::path path = entry.path() / "family.toml";
    const auto text = read_file_if_exists(path);
    if (!text) continue;
    Family family = parse_family(*text, path.string());
    if (family.name != entry.path().filename())
      throw Error(path.string() + ": the family is named '" + family.name + "', its folder '" + entry.path().filename().string() + "'");
    family.folder = entry.path();
    families.emplace(family.name, std::move(family));
  }
  return families;
}

}  // namespace ak::graph
