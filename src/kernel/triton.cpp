// Triton's own launcher as data. What its versions differ in is read off the module: how many pointers follow the arguments.
#include "kernel/triton.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"
#include "core/safetensors.h"

namespace ak::kernel {
namespace {

constexpr int64_t divisor = 16;          // of what Triton knows to be divisible
constexpr size_t trailing_pointers = 2;  // at most: of scratch for the kernel, of scratch for a profiler

bool is_constant_one(const Argument& argument) { return argument.kind == Argument::Kind::integer && argument.integer == 1; }
bool fits_32_bits(int64_t value) { return value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max(); }

std::string pointer_to(Dtype dtype) { return "*" + std::string(triton_name(dtype)); }

class Describer {
 public:
  Describer(const KernelFile& file, const Task& task, const ConcretePlan& plan) : file_(file), task_(task), plan_(plan) {}

  Json operator()(const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Kind::tensor: return typed(pointer_to(task_.tensor(argument.name).dtype), argument.aligned);
      case Argument::Kind::scratch: return typed(pointer_to(scratch_dtype(argument.name)), argument.aligned);
      case Argument::Kind::null: return constant(nullptr);
      case Argument::Kind::real: return typed("fp32", false);
      case Argument::Kind::tensor_map: return described(*plan_.find_tensor_map(argument.name));
      default: break;
    }
    if (is_constant_one(argument)) return constant(1);
    return typed(fits_32_bits(argument.integer) ? "i32" : "i64", argument.integer % divisor == 0);
  }

 private:
  static Json typed(const std::string& type, bool divisible) { return {{"type", type}, {"divisible", divisible}}; }
  static Json constant(Json value) { return {{"type", "constexpr"}, {"value", std::move(value)}}; }

  /// "tensordesc<fp16[128, 64]>"
  static Json described(const ConcreteTensorMap& map) {
    if (map.tensor.kind == Argument::Kind::null) return constant(nullptr);
    std::string box;
    for (const int64_t extent : map.box) box += (box.empty() ? "" : ", ") + std::to_string(extent);
    return {{"type", std::string(triton_descriptor) + std::string(triton_name(map.dtype)) + "[" + box + "]>"}};
  }

  Dtype scratch_dtype(const std::string& name) const {
    for (const Scratch& scratch : file_.scratch()) {
      if (scratch.name == name) return dtype_of(scratch, task_);
    }
    AK_CHECK(false, "a concrete plan names scratch of its file");
  }

  const KernelFile& file_;
  const Task& task_;
  const ConcretePlan& plan_;
};

/// What a version passes for a descriptor of its own: the map that it wants encoded, then extents and strides.
struct Descriptor {
  struct Passed {
    enum class What { map, extent, stride } what = What::map;
    size_t dim = 0;
  };
  std::vector<int64_t> box;
  int64_t swizzle_bytes = 0;
  std::vector<Passed> passes;
};

Descriptor descriptor_from_json(const Json& json) {
  using What = Descriptor::Passed::What;
  Descriptor descriptor{json.at("box"), json.at("swizzle"), {}};
  for (const Json& each : json.at("passes")) {
    if (each.contains("map"))
      descriptor.passes.push_back({What::map, 0});
    else if (each.contains("shape"))
      descriptor.passes.push_back({What::extent, each["shape"]});
    else
      descriptor.passes.push_back({What::stride, each.at("stride")});
  }
  return descriptor;
}

/// What one launch of a module takes.
struct Entry {
  std::string kernel;
  int64_t image, threads, cluster, shared_bytes;
  bool cooperative;
  std::vector<int64_t> parameters;                   // sizes in bytes
  std::vector<Descriptor> descriptors;               // of the arguments that are tensor maps, in order
  std::vector<std::pair<int64_t, int64_t>> scratch;  // bytes a block and alignment, as many as pointers may follow
};

Entry entry_from_json(const Json& json) {
  Entry entry{json.at("kernel"),
              json.at("image"),
              json.at("threads"),
              json.at("cluster"),
              json.at("shared"),
              json.at("cooperative"),
              json.at("parameters"),
              {},
              {}};
  for (const Json& each : json.at("descriptors")) entry.descriptors.push_back(descriptor_from_json(each));
  for (const Json& each : json.at("scratch")) entry.scratch.emplace_back(each.at("bytes"), each.at("alignment"));
  return entry;
}

std::vector<Entry> read_entries(const std::filesystem::path& module) try {
  std::vector<Entry> entries;
  for (const Json& each : Json::parse(SafetensorsFile::open(module).metadata("launches"))) entries.push_back(entry_from_json(each));
  return entries;
} catch (const Json::exception& error) {
  throw Error(module.string() + " is no module of Triton's: " + error.what(), "remove the file; it is made again");
}

bool is_constant(const Argument& argument) { return argument.kind == Argument::Kind::null || is_constant_one(argument); }

/// The arguments of a launch as its compiled kernel takes them.
class Passing {
 public:
  Passing(const Entry& entry, size_t number, const std::vector<ConcreteTensorMap>& declared, std::vector<ConcreteTensorMap>& encoded)
      : entry_(entry), number_(number), declared_(declared), encoded_(encoded) {}

  std::vector<Argument> operator()(const std::vector<Argument>& arguments) {
    for (Argument argument : arguments) {
      if (is_constant(argument)) continue;
      if (argument.kind == Argument::Kind::tensor_map) {
        add_descriptor(argument);
        continue;
      }
      if (argument.kind == Argument::Kind::integer && fits_32_bits(argument.integer)) argument.kind = Argument::Kind::integer32;
      passed_.push_back(std::move(argument));
    }
    return std::move(passed_);
  }

 private:
  /// A map of its own, since the compiler chose its boxes and swizzle for this launch.
  void add_descriptor(const Argument& argument) {
    ConcreteTensorMap map = *std::ranges::find(declared_, argument.name, &ConcreteTensorMap::name);
    if (map.tensor.kind == Argument::Kind::null) return;
    if (seen_ == entry_.descriptors.size())
      throw Error("a module of Triton's has fewer tensor maps than its plan", "remove the file; it is made again");
    const Descriptor& descriptor = entry_.descriptors[seen_];
    map.name += "." + std::to_string(number_) + "." + std::to_string(seen_++);
    map.box = descriptor.box;
    map.swizzle_bytes = descriptor.swizzle_bytes;
    for (const Descriptor::Passed& each : descriptor.passes) {
      if (each.what == Descriptor::Passed::What::map) {
        passed_.push_back({.kind = Argument::Kind::tensor_map, .name = map.name});
      } else {
        const bool of_shape = each.what == Descriptor::Passed::What::extent;
        passed_.push_back({.kind = kind_here(), .integer = (of_shape ? map.shape : map.strides).at(each.dim)});
      }
    }
    encoded_.push_back(std::move(map));
  }

  /// Of an integer that a version passes as wide as it likes.
  Argument::Kind kind_here() const {
    const size_t place = passed_.size();
    const bool narrow = place < entry_.parameters.size() && entry_.parameters[place] == sizeof(int32_t);
    return narrow ? Argument::Kind::integer32 : Argument::Kind::integer;
  }

  const Entry& entry_;
  const size_t number_;
  const std::vector<ConcreteTensorMap>& declared_;
  std::vector<ConcreteTensorMap>& encoded_;
  std::vector<Argument> passed_;
  size_t seen_ = 0;
};

bool is_parameter(const Argument& argument, int64_t bytes) { return argument.parameter_bytes() == bytes; }

/// The pointers that follow the arguments. Their memory is declared as scratch of the plan, guarded like any other.
void add_trailing_pointers(ConcreteLaunch& launch, const Entry& entry, size_t number, ConcretePlan& plan) {
  const size_t count = entry.parameters.size() - launch.arguments.size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t bytes = entry.scratch.at(i).first * launch.blocks();
    if (bytes == 0) {
      launch.arguments.push_back({.kind = Argument::Kind::null});
      continue;
    }
    const std::string name = "triton." + std::to_string(number) + "." + std::to_string(i);
    launch.arguments.push_back({.kind = Argument::Kind::scratch, .name = name, .aligned = true});
    plan.scratch.push_back({.name = name, .bytes = bytes, .alignment = entry.scratch[i].second});
  }
}

void complete(ConcreteLaunch& launch, const Entry& entry, size_t number, const std::vector<ConcreteTensorMap>& declared,
              ConcretePlan& plan) {
  launch.kernel = entry.kernel;
  launch.image = entry.image;
  launch.block = {entry.threads, 1, 1};
  launch.cluster = {entry.cluster, 1, 1};
  launch.grid[0] *= entry.cluster;
  launch.shared_bytes = entry.shared_bytes;
  launch.cooperative = entry.cooperative;
  launch.arguments = Passing(entry, number, declared, plan.tensor_maps)(launch.arguments);
  const size_t count = launch.arguments.size();
  if (entry.parameters.size() < count || entry.parameters.size() > count + trailing_pointers ||
      !std::equal(launch.arguments.begin(), launch.arguments.end(), entry.parameters.begin(), is_parameter))
    throw Error("Triton compiled " + launch.kernel + " to " + std::to_string(entry.parameters.size()) + " parameters for " +
                    std::to_string(count) + " arguments, a way to pass them that this version does not know",
                "use Triton 3.4 to 3.9");
  add_trailing_pointers(launch, entry, number, plan);
}

}  // namespace

Json triton_specification(const KernelFile& file, const Task& task, const Point& point, const ConcretePlan& plan) {
  const Describer describe(file, task, plan);
  Json launches = Json::array(), tunables = Json::array();
  for (const auto* list : {&plan.prepares, &plan.launches}) {
    for (const ConcreteLaunch& launch : *list) {
      Json arguments = Json::array(), constexprs = Json::object();
      for (const Argument& argument : launch.arguments) arguments.push_back(describe(argument));
      for (const Tunable& tunable : file.tunables()) constexprs[tunable.name] = tunable.default_value;
      for (const auto* values : {&point, &task.options, &launch.constexprs}) {
        for (const auto& [name, value] : *values) constexprs[name] = value;
      }
      launches.push_back({{"kernel", launch.kernel},
                          {"arguments", std::move(arguments)},
                          {"constexprs", std::move(constexprs)},
                          {"launch_cooperative_grid", launch.cooperative},
                          {"launch_pdl", launch.overlap}});
    }
  }
  for (const Tunable& tunable : file.tunables()) tunables.push_back(tunable.name);
  return {{"launches", std::move(launches)}, {"tunables", std::move(tunables)}};
}

ConcretePlan with_triton_module(ConcretePlan plan, const std::filesystem::path& module) {
  const std::vector<Entry> entries = read_entries(module);
  if (entries.size() != plan.prepares.size() + plan.launches.size())
    throw Error(module.string() + " was made for another plan", "remove the file; it is made again");
  const std::vector<ConcreteTensorMap> declared = std::exchange(plan.tensor_maps, {});
  size_t number = 0;
  for (auto* list : {&plan.prepares, &plan.launches}) {
    for (ConcreteLaunch& launch : *list) {
      complete(launch, entries[number], number, declared, plan);
      ++number;
    }
  }
  return plan;
}

}  // namespace ak::kernel
