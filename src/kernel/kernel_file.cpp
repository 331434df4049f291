// Reading a kernel file, choosing its plan, and editing its defaults in place.
#include "kernel/kernel_file.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/file.h"
#include "kernel/front_matter.h"

namespace ak::kernel {
namespace {

constexpr size_t most_source_bytes = 1 << 20;  // every text that was tried is kept

struct BackendRow {
  Backend backend;
  std::string_view name, file;
};
constexpr std::array<BackendRow, 3> backends = {
    {{Backend::cpu, "cpu", "kernel.cpp"}, {Backend::cuda, "cuda", "kernel.cu"}, {Backend::triton, "triton", "kernel.py"}}};

}  // namespace

std::string_view name_of(Backend backend) { return backends[static_cast<size_t>(backend)].name; }
std::string file_name(Backend backend) { return std::string(backends[static_cast<size_t>(backend)].file); }

Backend parse_backend(std::string_view name) {
  for (const BackendRow& row : backends) {
    if (row.name == name) return row.backend;
  }
  throw Error("unknown backend '" + std::string(name) + "'", "use cpu, cuda or triton");
}

KernelFile KernelFile::parse(std::string text, const std::string& origin) {
  if (text.size() > most_source_bytes)
    throw Error(origin + " has " + std::to_string(text.size()) + " bytes; a kernel file has 1 MiB at most",
                "make it smaller: constants can be computed");
  KernelFile file;
  file.text_ = std::move(text);
  file.origin_ = origin;
  FrontMatter(file.text_, origin).read_into(file);
  return file;
}

KernelFile KernelFile::read(const std::filesystem::path& path) { return parse(read_file(path), path.filename().string()); }

Point KernelFile::defaults() const {
  Point point;
  for (const Tunable& tunable : tunables_) point[tunable.name] = tunable.default_value;
  return point;
}

bool KernelFile::allows(const Bindings& names) const {
  return std::all_of(requires_.begin(), requires_.end(), [&](const Expression& requirement) { return requirement.evaluate(names) != 0; });
}

const Plan& KernelFile::plan(const Bindings& names) const {
  for (const Variant& variant : variants_) {
    if (variant.when.evaluate(names) != 0) return variant.plan;
  }
  return plan_;
}

std::string KernelFile::with_defaults(const Point& point) const {
  for (const auto& [name, value] : point) {
    const auto found =
        std::find_if(tunables_.begin(), tunables_.end(), [&, &wanted = name](const Tunable& tunable) { return tunable.name == wanted; });
    if (found == tunables_.end()) throw Error(origin_ + " has no tunable '" + name + "'");
    if (std::find(found->values.begin(), found->values.end(), value) == found->values.end()) {
      throw Error(origin_ + ": " + std::to_string(value) + " is not one of the values of " + name);
    }
  }
  std::string text = text_;
  for (auto tunable = tunables_.rbegin(); tunable != tunables_.rend(); ++tunable) {  // from the end, so that spans stay true
    const auto chosen = point.find(tunable->name);
    if (chosen != point.end())
      text.replace(tunable->default_begin, tunable->default_end - tunable->default_begin, std::to_string(chosen->second));
  }
  return text;
}

}  // namespace ak::kernel
