// A plan made concrete for one task, binding and point: numbers only, ready to launch.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/json.h"
#include "kernel/kernel_file.h"
#include "kernel/task.h"

namespace ak::kernel {

struct Argument {
  enum class Kind { tensor, scratch, tensor_map, null, integer, integer32, real } kind = Kind::integer;
  std::string name;  // of the tensor, scratch or tensor map
  int64_t integer = 0;
  double real = 0;
  bool aligned = false;  // the module takes the pointer to be a multiple of vector_bytes

  static constexpr int64_t vector_bytes = 16;
  static constexpr int64_t tensor_map_bytes = 128;  // CUtensorMap

  /// Of the kernel's parameter.
  int64_t parameter_bytes() const;
};

struct ConcreteLaunch {
  std::string kernel;
  std::array<int64_t, 3> grid = {1, 1, 1}, block = {1, 1, 1}, cluster = {1, 1, 1};
  int64_t shared_bytes = 0;
  bool overlap = false, cooperative = false;
  std::vector<Argument> arguments;
  int64_t image = 0;                          // of the module's, where it has several
  std::map<std::string, int64_t> constexprs;  // what the compiler is told of the launch; no part of the JSON

  int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
};

struct ConcreteScratch {
  std::string name;
  int64_t bytes = 0;  // of one worker, if per_worker
  bool zeroed = false, per_worker = false;
  int64_t alignment = 1;  // bytes, where more is needed than any buffer has
};

/// A descriptor for bulk copies of boxes of a tensor. Where the tensor is absent or has no elements, it describes nothing.
struct ConcreteTensorMap {
  std::string name;
  Argument tensor;  // or scratch, or null
  Dtype dtype = Dtype::float32;
  std::vector<int64_t> shape, strides, box;  // elements, last dim fastest
  int64_t swizzle_bytes = 0;                 // 0, 32, 64 or 128; Triton's compiler chooses it, and cuts the box
};

struct ConcretePlan {
  std::vector<ConcreteLaunch> launches, prepares;
  std::vector<ConcreteScratch> scratch;
  std::vector<ConcreteTensorMap> tensor_maps;  // those that a launch takes

  /// errors: none; nullptr where there is none of this name.
  const ConcreteTensorMap* find_tensor_map(const std::string& name) const;
};

/// What a scratch holds for a task.
Dtype dtype_of(const Scratch& scratch, const Task& task);

/// Whether one of the plan's `launches` is given the scratch, by its address or by a tensor map of it.
bool touch_scratch(const ConcretePlan& plan, const std::vector<ConcreteLaunch>& launches, const std::string& scratch);

/// Names that expressions of a kernel file may use: the task's, the point's and the device's.
Bindings plan_names(const Task& task, const Binding& binding, const Point& point, const Bindings& device_facts);

/// Evaluate the plan.
/// errors: `does_not_fit` in words: a `require` that fails, a grid below 0, an unknown argument; the line of the launch.
ConcretePlan make_concrete(const KernelFile& file, const Task& task, const Binding& binding, const Point& point,
                           const Bindings& device_facts);

Json to_json(const ConcretePlan& plan);
/// errors: malformed JSON.
ConcretePlan concrete_plan_from_json(const Json& json);

/// Macro definitions for the C++ and CUDA compilers, in order: tunables, options, dtypes, AK_DIM_<name>.
std::vector<std::pair<std::string, std::string>> macros(const KernelFile& file, const Task& task, const Point& point);

}  // namespace ak::kernel
