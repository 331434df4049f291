// Expressions become numbers, names become arguments.
#include "kernel/launch_plan.h"

#include <algorithm>
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
      : file_(file), task_(task), names_(names), aligned_(file.backend() == Backend::triton && binding.layout != "misaligned") {}

  ConcretePlan run() const {
    const Plan& plan = file_.plan(names_);
    ConcretePlan result{launches(plan.launches), launches(plan.prepares), scratch()};
    if (std::any_of(result.prepares.begin(), result.prepares.end(), [&](const ConcreteLaunch& launch) { return varies(launch); })) {
      result.launches.insert(result.launches.begin(), result.prepares.begin(), result.prepares.end());
      result.prepares.clear();
    }
    return result;
  }

 private:
  /// Whether a launch reads what may change from one call to the next, so that it cannot run once beforehand.
  bool varies(const ConcreteLaunch& launch) const {
    return std::any_of(launch.arguments.begin(), launch.arguments.end(), [&](const Argument& argument) {
      return argument.kind == Argument::Kind::tensor && task_.tensor(argument.name).role != Role::weight;
    });
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
    result.overlap = launch.overlap;
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
    const auto scalar = task_.scalars.find(text);
    if (scalar != task_.scalars.end() && std::holds_alternative<double>(scalar->second))
      return {Argument::Kind::real, text, 0, std::get<double>(scalar->second), false};
    return {Argument::Kind::integer, {}, Expression::parse(text, where).evaluate(names), 0, false};
  }

  std::vector<ConcreteScratch> scratch() const {
    std::vector<ConcreteScratch> result;
    for (const Scratch& each : file_.scratch()) {
      int64_t bytes = size_bytes(each.dtype == "T" ? task_.dtype : parse_dtype(each.dtype));
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
  const Bindings& names_;
  const bool aligned_;  // tensors, as far as Triton is told
};

Json to_json(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::tensor: return {{"tensor", argument.name}, {"aligned", argument.aligned}};
    case Argument::Kind::scratch: return {{"scratch", argument.name}, {"aligned", argument.aligned}};
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
  return {{"launches", to_json(plan.launches)}, {"prepare", to_json(plan.prepares)}, {"scratch", std::move(scratch)}};
}

ConcretePlan concrete_plan_from_json(const Json& json) {
  try {
    ConcretePlan plan{launches_from_json(json.at("launches")), launches_from_json(json.at("prepare")), {}};
    for (const Json& each : json.at("scratch"))
      plan.scratch.push_back({each.at("name"), each.at("bytes"), each.at("zeroed"), each.at("per_worker"), each.at("alignment")});
    return plan;
  } catch (const Json::exception& error) {
    throw Error(std::string("a plan is malformed: ") + error.what());
  }
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
