// A row is a region without a model: the spelling's options, contiguous tensors, weights that stay the same.
#include "graph/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "graph/region.h"
#include "graph/toml_reader.h"

namespace ak::graph {
namespace {

bool among(const std::vector<std::string>& list, std::string_view name) { return std::ranges::find(list, name) != list.end(); }

class SuiteReader : TomlReader {
 public:
  SuiteReader(std::string_view text, const std::string& origin, const Families& families, const std::string& device)
      : TomlReader(text, origin), families_(families), device_(device) {}

  std::vector<SuiteRow> read(const SuiteFilter& filter) {
    check_keys(root(), "", {"name", "dtypes", "group"});
    const Json& groups = array(required(root(), "", "group"), "group");
    std::vector<SuiteRow> rows;
    for (size_t i = 0; i < groups.size(); ++i) read_group(groups[i], at("group", i), filter, rows);
    check_filter(filter);
    return rows;
  }

 private:
  template <class T>
  T value(const Json& json, const std::string& path, std::string_view what) const {
    try {
      return json.get<T>();
    } catch (const Json::exception&) {
      fail(path, fmt::format("must be {}", what));
    }
  }
  void read_group(const Json& group, const std::string& path, const SuiteFilter& filter, std::vector<SuiteRow>& rows) {
    check_keys(group, path, {"family", "spelling", "dims", "derived", "dtypes", "suffix", "cuda", "cpu"});
    const auto name = text(group, path, "family");
    const auto family = families_.find(name);
    if (family == families_.end()) fail(path + ".family", "there is no family '" + name + "'");
    if (!among(seen_families_, name)) seen_families_.push_back(name);
    if (!filter.families.empty() && !among(filter.families, name)) return;
    const Spelling& spelling = spelling_of(group, path, family->second);
    const std::vector<std::string> dims = texts(required(group, path, "dims"), path + ".dims");
    const auto shapes =
        value<std::vector<std::vector<int64_t>>>(group.value(device_, Json::array()), path + "." + device_, "a list of shapes");
    const std::vector<Dtype> dtypes = dtypes_of(group, path, filter);
    const auto suffix = value<std::string>(group.value("suffix", Json("")), path + ".suffix", "a string");
    for (const std::vector<int64_t>& shape : shapes) {
      const std::string label = fmt::format("{}{}", fmt::join(shape, "x"), suffix);
      seen_shapes_.push_back(label);
      if (!filter.shapes.empty() && !among(filter.shapes, label)) continue;
      for (const Dtype dtype : dtypes)
        rows.push_back({label, task_of(family->second, spelling, dtype, all_dims(group, path, dims, shape))});
    }
  }

  const Spelling& spelling_of(const Json& group, const std::string& path, const Family& family) const {
    const auto name = text(group, path, "spelling");
    const auto found = std::ranges::find(family.spellings, name, &Spelling::function);
    if (found == family.spellings.end()) fail(path + ".spelling", fmt::format("the family {} has no spelling '{}'", family.name, name));
    return *found;
  }

  std::vector<Dtype> dtypes_of(const Json& group, const std::string& path, const SuiteFilter& filter) const {
    const bool own = group.contains("dtypes");
    std::vector<std::string> names = own ? texts(group.at("dtypes"), path + ".dtypes") : filter.dtypes;
    if (names.empty()) names = texts(required(required(root(), "", "dtypes"), "dtypes", device_), "dtypes." + device_);
    std::vector<Dtype> dtypes;
    for (const std::string& name : names) {
      if (own && !filter.dtypes.empty() && !among(filter.dtypes, name)) continue;
      dtypes.push_back(parse_dtype(name));
    }
    return dtypes;
  }

  std::map<std::string, int64_t> all_dims(const Json& group, const std::string& path, const std::vector<std::string>& names,
                                          const std::vector<int64_t>& shape) const {
    if (names.size() != shape.size()) fail(path + "." + device_, fmt::format("a shape has {} numbers, as `dims` says", names.size()));
    std::map<std::string, int64_t> dims;
    for (size_t i = 0; i < names.size(); ++i) dims[names[i]] = shape[i];
    const Bindings given(dims.begin(), dims.end());
    const Json derived = group.value("derived", Json::object());
    for (const auto& [name, expression] : derived.items()) {
      const std::string here = path + ".derived." + name;
      dims[name] = Expression::parse(value<std::string>(expression, here, "an expression in quotes"), where(here)).evaluate(given);
    }
    return dims;
  }

  kernel::Task task_of(const Family& family, const Spelling& spelling, Dtype dtype, std::map<std::string, int64_t> dims) const {
    Region region;
    region.family = family.name;
    region.spelling = spelling.function;
    region.dtype = dtype;
    region.options = spelling.options;
    region.dims = std::move(dims);
    kernel::Task task = make_task(region, family);
    for (const kernel::Tensor& tensor : task.tensors) {
      if (!tensor.absent) task.shape(tensor, task.workload.front());  // a dim that is missing says so now
    }
    return task;
  }

  void check_filter(const SuiteFilter& filter) const {
    const auto check = [&](const std::vector<std::string>& wanted, const std::vector<std::string>& known, std::string_view what) {
      for (const std::string& name : wanted) {
        if (!among(known, name))
          throw Error(fmt::format("the suite has no {} '{}' for {}", what, name, device_),
                      fmt::format("it has {}", fmt::join(known, ", ")));
      }
    };
    check(filter.families, seen_families_, "family");
    check(filter.shapes, seen_shapes_, "shape");
  }

  const Families& families_;
  std::string device_;
  std::vector<std::string> seen_families_, seen_shapes_;
};

}  // namespace

std::vector<SuiteRow> suite_rows(std::string_view text, const std::string& origin, const Families& families, const std::string& device,
                                 const SuiteFilter& filter) {
  return SuiteReader(text, origin, families, device).read(filter);
}

}  // namespace ak::graph
