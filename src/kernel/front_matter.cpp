// Every message names the file and the line, since a person or an agent edits these blocks all night.
#include "kernel/front_matter.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/dtype.h"
#include "core/error.h"

namespace ak::kernel {
namespace {

constexpr std::string_view cpp_marker = "/*autokernel";

bool is_upper_name(const std::string& name) {
  return !name.empty() && std::isupper(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; });
}

}  // namespace

FrontMatter::FrontMatter(const std::string& text, std::string origin) : text_(text), origin_(std::move(origin)) {
  locate();
  const std::string block = text_.substr(block_begin_, block_end_ - block_begin_);
  first_line_ = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(block_begin_), '\n');
  root_ = parse_toml(block, origin_, &spans_, first_line_);
}

void FrontMatter::locate() {
  const size_t comment = text_.find(cpp_marker);
  if (comment != std::string::npos) {
    block_begin_ = comment + cpp_marker.size();
    block_end_ = text_.find("*/", block_begin_);
    if (block_end_ == std::string::npos) throw Error(origin_ + ": the /*autokernel block is not closed with */");
    return;
  }
  for (const std::string_view quotes : {"\"\"\"autokernel\n", "'''autokernel\n"}) {
    const size_t docstring = text_.find(quotes);
    if (docstring == std::string::npos) continue;
    block_begin_ = docstring + quotes.size();
    block_end_ = text_.find(quotes.substr(0, 3), block_begin_);
    if (block_end_ == std::string::npos) throw Error(origin_ + ": the docstring that holds the autokernel block is not closed");
    return;
  }
  throw Error(origin_ + ":1: there is no autokernel block", "a kernel file opens with /*autokernel … */ (docs/formats/kernel-file.md)");
}

std::string FrontMatter::where(const std::string& path) const {
  const auto found = spans_.find(path);
  return origin_ + ":" + std::to_string(found != spans_.end() ? found->second.line : first_line_);
}

void FrontMatter::fail(const std::string& path, const std::string& what) const {
  throw Error(where(path) + ": " + (path.empty() ? "" : path + ": ") + what);
}

void FrontMatter::check_keys(const Json& object, const std::string& path, std::initializer_list<std::string_view> known) const {
  if (!object.is_object()) fail(path, "must be a table");
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) fail(path.empty() ? key : path + "." + key, "unknown key");
  }
}

const Json& FrontMatter::required(const Json& object, const std::string& path, const std::string& key) const {
  if (!object.is_object() || !object.contains(key)) fail(path, "needs the key '" + key + "'");
  return object.at(key);
}

std::string FrontMatter::text_of(const Json& value, const std::string& path) const {
  if (!value.is_string()) fail(path, "must be a string");
  return value.get<std::string>();
}

Expression FrontMatter::expression(const Json& value, const std::string& path) const {
  if (value.is_number_integer()) return Expression::parse(value.dump(), where(path));
  return Expression::parse(text_of(value, path), where(path));
}

Expression FrontMatter::flag(const Json& value, const std::string& path) const {
  return value.is_boolean() ? Expression::constant(value.get<bool>() ? 1 : 0) : expression(value, path);
}

std::vector<Expression> FrontMatter::expressions(const Json& value, const std::string& path, size_t maximum) const {
  if (!value.is_array() || value.empty() || value.size() > maximum)
    fail(path, "must be a list of 1 to " + std::to_string(maximum) + " expressions");
  std::vector<Expression> list;
  for (size_t i = 0; i < value.size(); ++i) list.push_back(expression(value[i], path + "[" + std::to_string(i) + "]"));
  return list;
}

Tunable FrontMatter::tunable(const std::string& name, const Json& value) const {
  const std::string path = "tune." + name;
  if (!is_upper_name(name)) fail(path, "a tunable has an upper-case name");
  check_keys(value, path, {"values", "default", "tier"});
  Tunable tunable{.name = name};
  const Json& values = required(value, path, "values");
  if (!values.is_array() || values.empty()) fail(path, "`values` must be a list of integers");
  for (const Json& each : values) {
    if (!each.is_number_integer()) fail(path, "`values` must be a list of integers");
    tunable.values.push_back(each.get<int64_t>());
  }
  const Json& default_value = required(value, path, "default");
  if (!default_value.is_number_integer()) fail(path + ".default", "must be an integer");
  tunable.default_value = default_value.get<int64_t>();
  if (std::find(tunable.values.begin(), tunable.values.end(), tunable.default_value) == tunable.values.end()) {
    fail(path + ".default", "the default " + std::to_string(tunable.default_value) + " is not one of `values`");
  }
  const Json tier = value.value("tier", Json(1));
  if (!tier.is_number_integer() || tier.get<int64_t>() < 1 || tier.get<int64_t>() > 6) fail(path, "`tier` is 1 to 6");
  tunable.tier = tier.get<int>();
  const TomlSpan& span = spans_.at(path + ".default");
  tunable.default_begin = block_begin_ + span.begin;
  tunable.default_end = block_begin_ + span.end;
  return tunable;
}

void FrontMatter::read_tunables(KernelFile& file) const {
  if (!root_.contains("tune")) return;
  if (!root_["tune"].is_object()) fail("tune", "must be a table");
  for (const auto& [name, value] : root_["tune"].items()) {
    if (name == "require") continue;
    file.tunables_.push_back(tunable(name, value));
  }
  std::sort(file.tunables_.begin(), file.tunables_.end(),
            [](const Tunable& a, const Tunable& b) { return a.default_begin < b.default_begin; });
  if (root_["tune"].contains("require")) file.requires_ = expressions(root_["tune"]["require"], "tune.require", 64);
}

Launch FrontMatter::launch(const Json& value, const std::string& path) const {
  check_keys(value, path, {"kernel", "grid", "block", "shared", "args", "when", "overlap", "cluster", "cooperative", "constexprs"});
  Launch launch;
  launch.where = where(path);
  launch.kernel = text_of(required(value, path, "kernel"), path + ".kernel");
  launch.grid = expressions(required(value, path, "grid"), path + ".grid", 3);
  const Json& arguments = required(value, path, "args");
  if (!arguments.is_array() || arguments.size() > 64) fail(path + ".args", "must be a list of at most 64 arguments");
  for (const Json& argument : arguments)
    launch.arguments.push_back(argument.is_number_integer() ? argument.dump() : text_of(argument, path + ".args"));
  if (value.contains("block")) launch.block = expressions(value["block"], path + ".block", 3);
  if (value.contains("cluster")) launch.cluster = expressions(value["cluster"], path + ".cluster", 3);
  if (value.contains("shared")) launch.shared_bytes = expression(value["shared"], path + ".shared");
  if (value.contains("when")) launch.when = expression(value["when"], path + ".when");
  if (value.contains("constexprs")) {
    if (!value["constexprs"].is_object()) fail(path + ".constexprs", "must be a table of expressions");
    for (const auto& [name, each] : value["constexprs"].items())
      launch.constexprs.emplace(name, expression(each, path + ".constexprs." + name));
  }
  if (value.contains("overlap")) launch.overlap = flag(value["overlap"], path + ".overlap");
  launch.cooperative = value.value("cooperative", false);
  return launch;
}

std::vector<Launch> FrontMatter::launches(const Json& parent, const std::string& path, const std::string& key) const {
  std::vector<Launch> list;
  if (!parent.contains(key)) return list;
  const std::string list_path = path.empty() ? key : path + "." + key;
  if (!parent[key].is_array()) fail(list_path, "must be a list of tables: [[" + list_path + "]]");
  for (size_t i = 0; i < parent[key].size(); ++i) list.push_back(launch(parent[key][i], list_path + "[" + std::to_string(i) + "]"));
  return list;
}

void FrontMatter::read_scratch(KernelFile& file) const {
  if (!root_.contains("scratch")) return;
  if (!root_["scratch"].is_object()) fail("scratch", "must hold tables: [scratch.NAME]");
  for (const auto& [name, value] : root_["scratch"].items()) {
    const std::string path = "scratch." + name;
    check_keys(value, path, {"dtype", "shape", "zeroed", "per_worker"});
    Scratch scratch{.name = name,
                    .dtype = text_of(required(value, path, "dtype"), path + ".dtype"),
                    .shape = expressions(required(value, path, "shape"), path + ".shape", 8)};
    if (scratch.dtype != "T") parse_dtype(scratch.dtype);
    scratch.zeroed = value.value("zeroed", false);
    scratch.per_worker = value.value("per_worker", false);
    file.scratch_.push_back(std::move(scratch));
  }
}

void FrontMatter::read_tensor_maps(KernelFile& file) const {
  if (!root_.contains("tensormap")) return;
  if (file.backend_ == Backend::cpu) fail("tensormap", "is for GPUs");
  if (!root_["tensormap"].is_object()) fail("tensormap", "must hold tables: [tensormap.NAME]");
  constexpr size_t highest_rank = 5;
  for (const auto& [name, value] : root_["tensormap"].items()) {
    const std::string path = "tensormap." + name;
    check_keys(value, path, {"tensor", "box", "swizzle", "shape", "strides"});
    TensorMap map{.name = name,
                  .tensor = text_of(required(value, path, "tensor"), path + ".tensor"),
                  .box = expressions(required(value, path, "box"), path + ".box", highest_rank),
                  .swizzle_bytes = Expression::constant(0),
                  .where = where(path)};
    if (value.contains("swizzle") && file.backend_ == Backend::triton) fail(path + ".swizzle", "is chosen by Triton's compiler");
    if (value.contains("swizzle")) map.swizzle_bytes = expression(value["swizzle"], path + ".swizzle");
    if (value.contains("shape") != value.contains("strides")) fail(path, "`shape` and `strides` come together");
    if (value.contains("shape")) {
      map.shape = expressions(value["shape"], path + ".shape", highest_rank);
      map.strides = expressions(value["strides"], path + ".strides", highest_rank);
    }
    file.tensor_maps_.push_back(std::move(map));
  }
}

void FrontMatter::read_variants(KernelFile& file) const {
  if (!root_.contains("variant")) return;
  if (!root_["variant"].is_array()) fail("variant", "must be a list of tables: [[variant]]");
  for (size_t i = 0; i < root_["variant"].size(); ++i) {
    const Json& value = root_["variant"][i];
    const std::string path = "variant[" + std::to_string(i) + "]";
    check_keys(value, path, {"when", "launch", "prepare"});
    Variant variant{expression(required(value, path, "when"), path + ".when"),
                    {launches(value, path, "launch"), launches(value, path, "prepare")}};
    if (variant.plan.launches.empty()) fail(path, "needs at least one [[variant.launch]]");
    file.variants_.push_back(std::move(variant));
  }
}

void FrontMatter::read_recipes(KernelFile& file) const {
  if (!root_.contains("recipe")) return;
  for (size_t i = 0; i < root_["recipe"].size(); ++i) {
    const Json& value = root_["recipe"][i];
    const std::string path = "recipe[" + std::to_string(i) + "]";
    check_keys(value, path, {"name", "tier", "when", "gain", "text"});
    file.recipes_.push_back({text_of(required(value, path, "name"), path), value.value("when", std::string()),
                             value.value("gain", std::string()), value.value("text", std::string()), value.value("tier", 1)});
  }
}

/// Triton chooses blocks, shared memory and clusters by itself; the other compilers know no constexpr.
void FrontMatter::check_backend(const KernelFile& file, const std::vector<Launch>& launches) const {
  for (const Launch& launch : launches) {
    const bool sized = !launch.block.empty() || launch.shared_bytes || !launch.cluster.empty();
    if (file.backend_ == Backend::triton && sized)
      throw Error(launch.where + ": block, shared and cluster of a Triton kernel follow from its source, NUM_WARPS and NUM_CTAS");
    if (file.backend_ != Backend::triton && !launch.constexprs.empty())
      throw Error(launch.where + ": constexprs are for Triton; write a tunable, or an argument");
  }
}

Point FrontMatter::prior_point(const KernelFile& file, const Json& value, const std::string& path) const {
  if (!value.is_object() || value.empty()) fail(path, "must be a table of tunables");
  Point point;
  for (const auto& [name, chosen] : value.items()) {
    const auto found = std::find_if(file.tunables_.begin(), file.tunables_.end(),
                                    [&, &wanted = name](const Tunable& tunable) { return tunable.name == wanted; });
    if (found == file.tunables_.end()) fail(path + "." + name, "there is no such tunable in [tune]");
    if (!chosen.is_number_integer()) fail(path + "." + name, "must be an integer");
    point[name] = chosen.get<int64_t>();
    if (std::find(found->values.begin(), found->values.end(), point[name]) == found->values.end())
      fail(path + "." + name, std::to_string(point[name]) + " is not one of its `values`");
  }
  return point;
}

void FrontMatter::read_priors(KernelFile& file) const {
  if (!root_.contains("prior")) return;
  if (!root_["prior"].is_array()) fail("prior", "must be a list of tables: [[prior]]");
  for (size_t i = 0; i < root_["prior"].size(); ++i) {
    const Json& value = root_["prior"][i];
    const std::string path = "prior[" + std::to_string(i) + "]";
    check_keys(value, path, {"when", "set"});
    Expression when = value.contains("when") ? expression(value["when"], path + ".when") : Expression::constant(1);
    file.priors_.push_back({std::move(when), prior_point(file, required(value, path, "set"), path + ".set")});
  }
}

void FrontMatter::read_into(KernelFile& file) {
  check_keys(root_, "", {"family", "backend", "tune", "launch", "prepare", "scratch", "variant", "tensormap", "prior", "recipe"});
  file.family_ = text_of(required(root_, "", "family"), "family");
  file.backend_ = parse_backend(text_of(required(root_, "", "backend"), "backend"));
  read_tunables(file);
  file.plan_ = {launches(root_, "", "launch"), launches(root_, "", "prepare")};
  read_scratch(file);
  read_tensor_maps(file);
  read_variants(file);
  read_priors(file);
  read_recipes(file);
  if (file.plan_.launches.empty()) fail("", "needs at least one [[launch]]");
  check_backend(file, file.plan_.launches);
  check_backend(file, file.plan_.prepares);
  for (const Variant& variant : file.variants_) {
    check_backend(file, variant.plan.launches);
    check_backend(file, variant.plan.prepares);
  }
}

}  // namespace ak::kernel
