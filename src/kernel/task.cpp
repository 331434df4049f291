// Tasks to and from JSON, their names and their identity.
#include "kernel/task.h"

#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hash.h"

namespace ak::kernel {
namespace {

constexpr std::array<std::pair<Role, std::string_view>, 4> role_names = {
    {{Role::data, "data"}, {Role::weight, "weight"}, {Role::index, "index"}, {Role::output, "output"}}};

Json to_json(const Tensor& tensor) {
  Json json = {{"name", tensor.name}, {"role", name_of(tensor.role)}, {"dtype", ak::name_of(tensor.dtype)}, {"shape", Json::array()}};
  for (const Expression& extent : tensor.shape) json["shape"].push_back(extent.text());
  if (tensor.absent) json["absent"] = true;
  if (tensor.range) json["range"] = *tensor.range;
  if (tensor.ignored) json["ignored"] = *tensor.ignored;
  if (tensor.hides) json["hides"] = true;
  if (tensor.factors) json["factors"] = true;
  return json;
}

Tensor tensor_from_json(const Json& json) {
  Tensor tensor;
  tensor.name = json.at("name");
  tensor.role = parse_role(json.at("role").get<std::string>());
  tensor.dtype = parse_dtype(json.at("dtype").get<std::string>());
  tensor.absent = json.value("absent", false);
  if (json.contains("range")) tensor.range = json.at("range").get<std::string>();
  if (json.contains("ignored")) tensor.ignored = json.at("ignored").get<std::string>();
  tensor.hides = json.value("hides", false);
  tensor.factors = json.value("factors", false);
  for (const Json& extent : json.at("shape")) {
    tensor.shape.push_back(Expression::parse(extent.is_string() ? extent.get<std::string>() : extent.dump(), "shape of " + tensor.name));
  }
  return tensor;
}

Json bindings_to_json(const std::vector<Binding>& bindings) {
  Json json = Json::array();
  for (const Binding& binding : bindings) json.push_back(kernel::to_json(binding));
  return json;
}

std::vector<Binding> bindings_from_json(const Json& json, const char* key) {
  std::vector<Binding> bindings;
  if (json.contains(key)) {
    for (const Json& binding : json.at(key)) bindings.push_back(binding_from_json(binding));
  }
  return bindings;
}

Json scalar_to_json(const Scalar& scalar) {
  return std::visit([](auto value) { return Json(value); }, scalar);
}

}  // namespace

std::string_view name_of(Role role) {
  for (const auto& [candidate, name] : role_names) {
    if (candidate == role) return name;
  }
  AK_CHECK(false, "every role has a name");
}

Role parse_role(std::string_view name) {
  for (const auto& [role, candidate] : role_names) {
    if (candidate == name) return role;
  }
  throw Error("unknown role '" + std::string(name) + "'", "use data, weight, index or output");
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

const Tensor& Task::tensor(std::string_view name) const {
  for (const Tensor& candidate : tensors) {
    if (candidate.name == name) return candidate;
  }
  throw Error("task " + id + " has no tensor '" + std::string(name) + "'");
}

Bindings Task::names(const Binding& binding) const {
  Bindings names(binding.dims.begin(), binding.dims.end());
  for (const auto& [name, value] : options) names[name] = value;
  for (const auto& [name, value] : scalars) {
    if (const auto* integer = std::get_if<int64_t>(&value)) names[name] = *integer;
  }
  names["sizeof(T)"] = size_bytes(dtype);
  for (const Dtype each : {Dtype::float32, Dtype::float16, Dtype::bfloat16, Dtype::float64, Dtype::int64, Dtype::int32}) {
    names["sizeof(" + std::string(ak::name_of(each)) + ")"] = size_bytes(each);
  }
  for (const Tensor& tensor : tensors) {
    names["sizeof(T_" + tensor.name + ")"] = size_bytes(tensor.dtype);
    if (tensor.absent) continue;
    const std::vector<int64_t> of_tensor = strides(tensor, binding);
    for (size_t i = 0; i < of_tensor.size(); ++i) names[tensor.name + ".stride(" + std::to_string(i) + ")"] = of_tensor[i];
  }
  for (const Tensor& tensor : tensors) {  // an absent tensor has strides too, so that one plan serves both contracts
    if (!tensor.absent) continue;
    for (size_t i = 0; i < tensor.shape.size(); ++i) names[tensor.name + ".stride(" + std::to_string(i) + ")"] = 0;
  }
  return names;
}

std::vector<int64_t> Task::shape(const Tensor& tensor, const Binding& binding) const {
  Bindings names(binding.dims.begin(), binding.dims.end());
  for (const auto& [name, value] : options) names[name] = value;
  std::vector<int64_t> shape;
  for (const Expression& extent : tensor.shape) shape.push_back(extent.evaluate(names));
  return shape;
}

std::vector<int64_t> Task::strides(const Tensor& tensor, const Binding& binding) const {
  const auto found = binding.strides.find(tensor.name);
  return found != binding.strides.end() ? found->second : contiguous_strides(shape(tensor, binding));
}

Traffic traffic(const Task& task, const Binding& binding) {
  Traffic traffic;
  for (const Tensor& tensor : task.tensors) {
    if (tensor.absent) continue;
    const std::vector<int64_t> shape = task.shape(tensor, binding), strides = task.strides(tensor, binding);
    int64_t bytes = size_bytes(tensor.dtype);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (strides[i] != 0) bytes *= shape[i];
    }
    (tensor.role == Role::output ? traffic.written : traffic.read) += bytes;
  }
  return traffic;
}

Json contract(const Task& task) {
  Json json = {{"family", task.family},     {"dtype", ak::name_of(task.dtype)}, {"options", task.options},
               {"scalars", Json::object()}, {"tensors", Json::array()},         {"workload", Json::array()}};
  for (const auto& [name, value] : task.scalars) json["scalars"][name] = scalar_to_json(value);
  for (const Tensor& tensor : task.tensors) json["tensors"].push_back(to_json(tensor));
  for (const Binding& binding : task.workload) json["workload"].push_back({{"dims", binding.dims}, {"strides", binding.strides}});
  return json;
}

std::string task_id(const Task& task) { return task.family + "_" + short_hash(contract(task).dump()); }

Json to_json(const Binding& binding) {
  Json json = {{"dims", binding.dims}};
  if (!binding.strides.empty()) json["strides"] = binding.strides;
  if (binding.calls != 1) json["calls"] = binding.calls;
  if (binding.layout != "contiguous") json["layout"] = binding.layout;
  return json;
}

Binding binding_from_json(const Json& json) {
  Binding binding;
  binding.dims = json.at("dims").get<std::map<std::string, int64_t>>();
  if (json.contains("strides")) binding.strides = json.at("strides").get<std::map<std::string, std::vector<int64_t>>>();
  binding.calls = json.value("calls", int64_t{1});
  binding.layout = json.value("layout", std::string("contiguous"));
  return binding;
}

Json to_json(const Task& task) {
  Json json = contract(task);
  json.update({{"schema", "autokernel.task/1"},
               {"id", task.id},
               {"spelling", task.spelling},
               {"stability", task.stability},
               {"tolerance", {{"k", task.tolerance_k}}},
               {"flops", task.flops.text()},
               {"bytes", task.bytes.text()},
               {"reference", {{"kind", "family"}, {"family", task.family}, {"function", "reference"}}}});
  json["workload"] = bindings_to_json(task.workload);
  json["sweep"] = bindings_to_json(task.sweep);
  json["edges"] = bindings_to_json(task.edges);
  return json;
}

Task task_from_json(const Json& json) {
  try {
    Task task;
    if (json.at("schema") != "autokernel.task/1")
      throw Error("task.json has the format " + json.at("schema").dump() + ", not autokernel.task/1");
    task.id = json.at("id");
    task.family = json.at("family");
    task.spelling = json.value("spelling", std::string());
    task.dtype = parse_dtype(json.at("dtype").get<std::string>());
    for (const Json& tensor : json.at("tensors")) task.tensors.push_back(tensor_from_json(tensor));
    for (const auto& [name, value] : json.at("scalars").items()) {
      task.scalars[name] = value.is_number_integer() ? Scalar(value.get<int64_t>()) : Scalar(value.get<double>());
    }
    task.options = json.at("options").get<std::map<std::string, int64_t>>();
    task.workload = bindings_from_json(json, "workload");
    task.sweep = bindings_from_json(json, "sweep");
    task.edges = bindings_from_json(json, "edges");
    task.stability = json.value("stability", std::vector<std::string>());
    task.tolerance_k = json.value("/tolerance/k"_json_pointer, 16.0);
    task.flops = Expression::parse(json.value("flops", std::string("0")), "flops of " + task.id);
    task.bytes = Expression::parse(json.value("bytes", std::string("0")), "bytes of " + task.id);
    return task;
  } catch (const Json::exception& error) {
    throw Error(std::string("a task is malformed: ") + error.what());
  }
}

}  // namespace ak::kernel
