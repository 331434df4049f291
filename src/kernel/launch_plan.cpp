// Expressions become numbers, names become arguments.
#include "kernel/launch_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::kernel {
namespace {

std::array<int64_t, 3> evaluate3(const std::vector<Expression>& expressions, const Bindings& names) {
  std::array<int64_t, 3> values = {1, 1, 1};
  for (size_t i = 0; i < expressions.size(); ++i) values[i] = expressions[i].evaluate(names);
  return values;
}

class Concretiser {
 public:
  Concretiser(const KernelFile& file, const Task& task, const Binding& binding, const Bindings& names)
      : file_(file),
        task_(task),
        binding_(binding),
        names_(names),
        aligned_(file.backend() == Backend::triton && binding.layout != "misaligned") {}

  ConcretePlan run() const {
    const Plan& plan = file_.plan(names_);
    ConcretePlan result{launches(plan.launches), launches(plan.prepares), scratch(), {}};
    for (const auto* list : {&result.launches, &result.prepares}) add_tensor_maps(*list, result);
    if (std::any_of(result.prepares.begin(), result.prepares.end(), [&](const ConcreteLaunch& launch) { return varies(launch, result); })) {
      result.launches.insert(result.launches.begin(), result.prepares.begin(), result.prepares.end());
      result.prepares.clear();
    }
    return result;
  }

 private:
  /// Whether a launch reads what may change from one call to the next, so that it cannot run once beforehand.
  bool varies(const ConcreteLaunch& launch, const ConcretePlan& plan) const {
    return std::any_of(launch.arguments.begin(), launch.arguments.end(), [&](const Argument& argument) {
      const Argument& read = argument.kind == Argument::Kind::tensor_map ? plan.find_tensor_map(argument.name)->tensor : argument;
      return read.kind == Argument::Kind::tensor && task_.tensor(read.name).role != Role::weight;
    });
  }

  void add_tensor_maps(const std::vector<ConcreteLaunch>& launches, ConcretePlan& plan) const {
    for (const ConcreteLaunch& launch : launches) {
      for (const Argument& argument : launch.arguments) {
        if (argument.kind != Argument::Kind::tensor_map || plan.find_tensor_map(argument.name) != nullptr) continue;
        const auto& maps = file_.tensor_maps();
        plan.tensor_maps.push_back(
            concrete(*std::find_if(maps.begin(), maps.end(), [&](const TensorMap& map) { return map.name == argument.name; })));
      }
    }
  }

  std::vector<int64_t> evaluate(const std::vector<Expression>& expressions) const {
    std::vector<int64_t> values;
    for (const Expression& expression : expressions) values.push_back(expression.evaluate(names_));
    return values;
  }

  ConcreteTensorMap concrete(const TensorMap& map) const {
    ConcreteTensorMap result{.name = map.name, .tensor = argument(map.tensor, names_, map.where), .box = evaluate(map.box)};
    result.swizzle_bytes = map.swizzle_bytes.evaluate(names_);
    if (result.tensor.kind == Argument::Kind::scratch) {
      const auto& all = file_.scratch();
      const Scratch& scratch = *std::find_if(all.begin(), all.end(), [&](const Scratch& each) { return each.name == map.tensor; });
      result.dtype = dtype_of(scratch, task_);
      result.shape = evaluate(scratch.shape);
      result.strides = contiguous_strides(result.shape);
    } else if (result.tensor.kind == Argument::Kind::tensor || result.tensor.kind == Argument::Kind::null) {
      const Tensor& tensor = task_.tensor(map.tensor);
      result.dtype = tensor.dtype;
      result.shape = task_.shape(tensor, binding_);
      result.strides = task_.strides(tensor, binding_);
    } else {
      throw Error(map.where + ": the tensor map " + map.name + " is of " + map.tensor + ", which is no tensor and no scratch");
    }
    if (!map.shape.empty()) {
      result.shape = evaluate(map.shape);
      result.strides = evaluate(map.strides);
    }
    check(map, result);
    result.strides.back() = 1;  // of a dim of one element it may be anything
    return result;
  }

  /// What the hardware can describe. source: cuTensorMapEncodeTiled in the CUDA driver's documentation.
  void check(const TensorMap& map, const ConcreteTensorMap& result) const {
    const auto fail = [&](const std::string& what) { throw Error(map.where + ": the tensor map " + map.name + " " + what); };
    const size_t rank = result.shape.size();
    if (rank == 0 || result.box.size() != rank || result.strides.size() != rank)
      fail("needs an extent of its box for each dim of the tensor");
    const bool cut = file_.backend() == Backend::triton;  // Triton's compiler makes boxes of the hardware's of it
    const int64_t size = size_bytes(result.dtype), row_bytes = result.box.back() * size,
                  highest = cut ? std::numeric_limits<int32_t>::max() : int64_t{1} << 32;
    for (size_t dim = 0; dim < rank; ++dim) {
      if (result.box[dim] < 1 || (!cut && result.box[dim] > 256)) fail("has a box with an extent that is not from 1 to 256");
      if (cut && !std::has_single_bit(static_cast<uint64_t>(result.box[dim]))) fail("has a box with an extent that is no power of 2");
      if (result.shape[dim] < 0 || result.shape[dim] > highest) fail("is of a tensor with an extent that its coordinates do not reach");
      if (dim + 1 < rank && (result.strides[dim] <= 0 || result.strides[dim] * size % bulk_alignment_bytes != 0))
        fail("is of a tensor with a stride that is no multiple of 16 bytes");
    }
    if (result.strides.back() != 1 && result.shape.back() > 1) fail("is of a tensor whose last dim is not contiguous");
    if (row_bytes % bulk_alignment_bytes != 0) fail("has a box whose rows are no multiple of 16 bytes");
    const int64_t swizzle = result.swizzle_bytes;
    if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128) fail("has a swizzle that is not 0, 32, 64 or 128");
    if (swizzle != 0 && row_bytes > swizzle) fail("has a box whose rows are longer than its swizzle");
  }

  std::vector<ConcreteLaunch> launches(const std::vector<Launch>& list) const {
    std::vector<ConcreteLaunch> result;
    for (const Launch& launch : list) {
      if (!launch.when || launch.when->evaluate(names_) != 0) result.push_back(concrete(launch));
    }
    return result;
  }

  ConcreteLaunch concrete(const Launch& launch) const {
    ConcreteLaunch result;
    result.kernel = launch.kernel;
    for (const auto& [name, expression] : launch.constexprs) result.constexprs[name] = expression.evaluate(names_);
    Bindings names = names_;
    for (const auto& [name, value] : result.constexprs) names[name] = value;
    result.grid = evaluate3(launch.grid, names);
    result.block = evaluate3(launch.block, names);
    result.cluster = evaluate3(launch.cluster, names);
    result.shared_bytes = launch.shared_bytes ? launch.shared_bytes->evaluate(names) : 0;
    result.overlap = launch.overlap && launch.overlap->evaluate(names) != 0;
    result.cooperative = launch.cooperative;
    check_extents(launch, result);
    for (const std::string& text : launch.arguments) result.arguments.push_back(argument(text, names, launch.where));
    return result;
  }

  static void check_extents(const Launch& launch, const ConcreteLaunch& result) {
    int64_t blocks = 1;
    for (const int64_t extent : result.grid) {
      if (extent < 0 || __builtin_mul_overflow(blocks, extent, &blocks))
        throw Error(launch.where + ": the grid of " + launch.kernel + " is negative or too large");
    }
    for (const int64_t extent : result.block) {
      if (extent < 1) throw Error(launch.where + ": the block of " + launch.kernel + " has an extent below 1");
    }
    if (result.shared_bytes < 0) throw Error(launch.where + ": the shared memory of " + launch.kernel + " is negative");
  }

  Argument argument(const std::string& text, const Bindings& names, const std::string& where) const {
    for (const Tensor& tensor : task_.tensors) {
      if (tensor.name == text)
        return {tensor.absent ? Argument::Kind::null : Argument::Kind::tensor, text, 0, 0, aligned_ && !tensor.absent};
    }
    for (const Scratch& scratch : file_.scratch()) {
      if (scratch.name == text) return {Argument::Kind::scratch, text, 0, 0, file_.backend() == Backend::triton};
    }
    for (const TensorMap& map : file_.tensor_maps()) {
      if (map.name == text) return {.kind = Argument::Kind::tensor_map, .name = text};
    }
    const auto scalar = task_.scalars.find(text);
    if (scalar != task_.scalars.end() && std::holds_alternative<double>(scalar->second))
      return {Argument::Kind::real, text, 0, std::get<double>(scalar->second), false};
    return {Argument::Kind::integer, {}, Expression::parse(text, where).evaluate(names), 0, false};
  }

  std::vector<ConcreteScratch> scratch() const {
    std::vector<ConcreteScratch> result;
    for (const Scratch& each : file_.scratch()) {
      int64_t bytes = size_bytes(dtype_of(each, task_));
      for (const Expression& extent : each.shape) {
        const int64_t value = extent.evaluate(names_);
        if (value < 0 || __builtin_mul_overflow(bytes, value, &bytes))
          throw Error(file_.origin() + ": scratch " + each.name + " has a negative or too large shape");
      }
      result.push_back({each.name, bytes, each.zeroed, each.per_worker});
    }
    return result;
  }

  const KernelFile& file_;
  const Task& task_;
  const Binding& binding_;
  const Bindings& names_;
  const bool aligned_;  // tensors, as far as Triton is told
};

Json pointer(const char* kind, const Argument& argument) {
  Json json = {{kind, argument.name}};
  if (argument.aligned) json["aligned"] = true;
  return json;
}

Json to_json(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::tensor: return pointer("tensor", argument);
    case Argument::Kind::scratch: return pointer("scratch", argument);
    case Argument::Kind::tensor_map: return {{"tensor_map", argument.name}};
    case Argument::Kind::null: return {{"null", argument.name}};
    case Argument::Kind::integer: return {{"int", argument.integer}};
    case Argument::Kind::integer32: return {{"int32", argument.integer}};
    case Argument::Kind::real: return {{"float", argument.real}};
  }
  AK_CHECK(false, "every kind of argument has a form");
}

Argument argument_from_json(const Json& json) {
  const bool aligned = json.value("aligned", false);
  if (json.contains("tensor")) return {Argument::Kind::tensor, json["tensor"], 0, 0, aligned};
  if (json.contains("scratch")) return {Argument::Kind::scratch, json["scratch"], 0, 0, aligned};
  if (json.contains("tensor_map")) return {Argument::Kind::tensor_map, json["tensor_map"], 0, 0, false};
  if (json.contains("null")) return {Argument::Kind::null, json["null"], 0, 0, false};
  if (json.contains("float")) return {Argument::Kind::real, {}, 0, json["float"], false};
  if (json.contains("int32")) return {Argument::Kind::integer32, {}, json["int32"], 0, false};
  return {Argument::Kind::integer, {}, json.at("int"), 0, false};
}

Json to_json(const std::vector<ConcreteLaunch>& launches) {
  Json list = Json::array();
  for (const ConcreteLaunch& launch : launches) {
    Json arguments = Json::array();
    for (const Argument& argument : launch.arguments) arguments.push_back(to_json(argument));
    list.push_back({{"kernel", launch.kernel},
                    {"grid", launch.grid},
                    {"block", launch.block},
                    {"cluster", launch.cluster},
                    {"shared", launch.shared_bytes},
                    {"overlap", launch.overlap},
                    {"cooperative", launch.cooperative},
                    {"image", launch.image},
                    {"arguments", std::move(arguments)}});
  }
  return list;
}

std::vector<ConcreteLaunch> launches_from_json(const Json& json) {
  std::vector<ConcreteLaunch> launches;
  for (const Json& each : json) {
    ConcreteLaunch launch;
    launch.kernel = each.at("kernel");
    launch.grid = each.at("grid");
    launch.block = each.at("block");
    launch.cluster = each.at("cluster");
    launch.shared_bytes = each.at("shared");
    launch.overlap = each.at("overlap");
    launch.cooperative = each.at("cooperative");
    launch.image = each.at("image");
    for (const Json& argument : each.at("arguments")) launch.arguments.push_back(argument_from_json(argument));
    launches.push_back(std::move(launch));
  }
  return launches;
}

}  // namespace

int64_t Argument::parameter_bytes() const {
  if (kind == Kind::tensor_map) return tensor_map_bytes;
  return kind == Kind::real || kind == Kind::integer32 ? sizeof(uint32_t) : sizeof(uint64_t);
}

Json to_json(const ConcreteTensorMap& map) {
  return {
      {"name", map.name}, {"of", to_json(map.tensor)},   {"dtype", ak::name_of(map.dtype)}, {"shape", map.shape}, {"strides", map.strides},
      {"box", map.box},   {"swizzle", map.swizzle_bytes}};
}

ConcreteTensorMap tensor_map_from_json(const Json& json) {
  return {.name = json.at("name"),
          .tensor = argument_from_json(json.at("of")),
          .dtype = parse_dtype(json.at("dtype").get<std::string>()),
          .shape = json.at("shape"),
          .strides = json.at("strides"),
          .box = json.at("box"),
          .swizzle_bytes = json.at("swizzle")};
}

Dtype dtype_of(const Scratch& scratch, const Task& task) { return scratch.dtype == "T" ? task.dtype : parse_dtype(scratch.dtype); }

Bindings plan_names(const Task& task, const Binding& binding, const Point& point, const Bindings& device_facts) {
  Bindings names = device_facts;
  for (const auto& [name, value] : task.names(binding)) names[name] = value;
  for (const auto& [name, value] : point) names[name] = value;
  names["aligned"] = binding.layout == "misaligned" ? 0 : 1;
  return names;
}

ConcretePlan make_concrete(const KernelFile& file, const Task& task, const Binding& binding, const Point& point,
                           const Bindings& device_facts) {
  const Bindings names = plan_names(task, binding, point, device_facts);
  if (!file.allows(names)) throw Error(file.origin() + ": a `require` does not hold for this point and shape");
  return Concretiser(file, task, binding, names).run();
}

Json to_json(const ConcretePlan& plan) {
  Json scratch = Json::array();
  for (const ConcreteScratch& each : plan.scratch) {
    scratch.push_back({{"name", each.name},
                       {"bytes", each.bytes},
                       {"zeroed", each.zeroed},
                       {"per_worker", each.per_worker},
                       {"alignment", each.alignment}});
  }
  Json maps = Json::array();
  for (const ConcreteTensorMap& map : plan.tensor_maps) maps.push_back(to_json(map));
  return {{"launches", to_json(plan.launches)},
          {"prepare", to_json(plan.prepares)},
          {"scratch", std::move(scratch)},
          {"tensor_maps", std::move(maps)}};
}

ConcretePlan concrete_plan_from_json(const Json& json) {
  try {
    ConcretePlan plan{launches_from_json(json.at("launches")), launches_from_json(json.at("prepare")), {}, {}};
    for (const Json& each : json.at("tensor_maps")) plan.tensor_maps.push_back(tensor_map_from_json(each));
    for (const Json& each : json.at("scratch"))
      plan.scratch.push_back({each.at("name"), each.at("bytes"), each.at("zeroed"), each.at("per_worker"), each.at("alignment")});
    return plan;
  } catch (const Json::exception& error) {
    throw Error(std::string("a plan is malformed: ") + error.what());
  }
}

const ConcreteTensorMap* ConcretePlan::find_tensor_map(const std::string& name) const {
  const auto found = std::find_if(tensor_maps.begin(), tensor_maps.end(), [&](const ConcreteTensorMap& map) { return map.name == name; });
  return found == tensor_maps.end() ? nullptr : &*found;
}

bool touch_scratch(const ConcretePlan& plan, const std::vector<ConcreteLaunch>& launches, const std::string& scratch) {
  const auto is_scratch = [&](const Argument& argument) {
    const ConcreteTensorMap* map = argument.kind == Argument::Kind::tensor_map ? plan.find_tensor_map(argument.name) : nullptr;
    const Argument& touched = map != nullptr ? map->tensor : argument;
    return touched.kind == Argument::Kind::scratch && touched.name == scratch;
  };
  return std::any_of(launches.begin(), launches.end(), [&](const ConcreteLaunch& launch) {
    return std::any_of(launch.arguments.begin(), launch.arguments.end(), is_scratch);
  });
}

std::vector<std::pair<std::string, std::string>> macros(const KernelFile& file, const Task& task, const Point& point) {
  std::vector<std::pair<std::string, std::string>> list;
  const auto type = file.backend() == Backend::cuda ? cuda_name : cpp_name;
  for (const Tunable& tunable : file.tunables()) {
    const auto chosen = point.find(tunable.name);
    list.emplace_back(tunable.name, std::to_string(chosen != point.end() ? chosen->second : tunable.default_value));
  }
  for (const auto& [name, value] : task.options) list.emplace_back(name, std::to_string(value));
  for (const Tensor& tensor : task.tensors) list.emplace_back("T_" + tensor.name, type(tensor.dtype));
  list.emplace_back("T", type(task.dtype));
  if (!task.workload.empty()) {
    for (const auto& [name, value] : task.workload.front().dims) list.emplace_back("AK_DIM_" + name, std::to_string(value));
  }
  return list;
}

}  // namespace ak::kernel
