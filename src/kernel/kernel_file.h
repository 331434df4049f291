// A kernel file: device code with tunables and a launch plan on top (docs/formats/kernel-file.md).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/expression.h"
#include "core/json.h"

namespace ak::kernel {

enum class Backend { cpu, cuda, triton };

std::string_view name_of(Backend backend);
/// errors: an unknown name.
Backend parse_backend(std::string_view name);
/// "kernel.cpp", "kernel.cu", "kernel.py".
std::string file_name(Backend backend);

/// A value for each tunable.
using Point = std::map<std::string, int64_t>;

struct Tunable {
  std::string name;
  std::vector<int64_t> values;
  int64_t default_value = 0;
  int tier = 1;
  size_t default_begin = 0, default_end = 0;  // the default's bytes in the file
};

struct Launch {
  std::string kernel;
  std::vector<Expression> grid, block;
  std::vector<std::string> arguments;  // tensor, scratch or float scalar by name, else an integer expression
  std::optional<Expression> when, overlap, shared_bytes;
  std::vector<Expression> cluster;
  std::map<std::string, Expression> constexprs;  // of Triton, beside tunables and options
  bool cooperative = false;
  std::string where;  // file:line, for messages
};

struct Plan {
  std::vector<Launch> launches, prepares;
};

struct Variant {
  Expression when;
  Plan plan;
};

struct Scratch {
  std::string name, dtype;  // dtype "T" or a name
  std::vector<Expression> shape;
  bool zeroed = false, per_worker = false;
};

/// Where a search begins on some shapes and devices.
struct Prior {
  Expression when;  // of the task and the device; tunables have their defaults
  Point set;        // some of the tunables, each to one of its values
};

/// A descriptor for bulk copies of boxes of a tensor (CUDA, and Triton's `tensordesc`).
struct TensorMap {
  std::string name, tensor;                     // tensor: of the task, or scratch
  std::vector<Expression> box, shape, strides;  // in elements, last dim fastest; no shape: the tensor's own
  Expression swizzle_bytes = Expression::constant(0);
  std::string where;  // file:line, for messages
};

/// An idea for whoever edits the file.
struct Recipe {
  std::string name, when, gain, text;
  int tier = 1;
};

/// A parsed kernel file. Immutable; edits give new text.
class KernelFile {
 public:
  /// errors: no block, bad TOML, an unknown or missing key, a default that is no value, a bad expression; with file and line.
  static KernelFile parse(std::string text, const std::string& origin);
  static KernelFile read(const std::filesystem::path& path);

  const std::string& text() const { return text_; }
  const std::string& origin() const { return origin_; }
  const std::string& family() const { return family_; }
  Backend backend() const { return backend_; }
  const std::vector<Tunable>& tunables() const { return tunables_; }
  const std::vector<Scratch>& scratch() const { return scratch_; }
  const std::vector<TensorMap>& tensor_maps() const { return tensor_maps_; }
  const std::vector<Recipe>& recipes() const { return recipes_; }
  const std::vector<Prior>& priors() const { return priors_; }
  const std::vector<Variant>& variants() const { return variants_; }

  Point defaults() const;
  /// Whether every `require` holds. errors: an expression that cannot be evaluated.
  bool allows(const Bindings& names) const;
  /// The plan of the first variant whose `when` holds, else the top-level one.
  const Plan& plan(const Bindings& names) const;

  /// The file's text with `point` as the defaults: only the spans of the defaults change.
  /// errors: a point that names an unknown tunable or a value outside its list.
  std::string with_defaults(const Point& point) const;

 private:
  friend class FrontMatter;

  std::string text_, origin_, family_;
  Backend backend_ = Backend::cpu;
  std::vector<Tunable> tunables_;
  std::vector<Expression> requires_;
  std::vector<Scratch> scratch_;
  std::vector<TensorMap> tensor_maps_;
  std::vector<Recipe> recipes_;
  std::vector<Prior> priors_;
  std::vector<Variant> variants_;
  Plan plan_;
};

}  // namespace ak::kernel
