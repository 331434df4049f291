// What the judge needs of a device beyond a candidate's launches: hosts, cold caches, floors and ceilings on the same clock.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/expression.h"
#include "core/json.h"
#include "device/host.h"
#include "device/stranger.h"

namespace ak::judge {

/// The fastest of several means.
inline double least(const std::map<std::string, double>& us_by_means) {
  return std::ranges::min_element(us_by_means, {}, [](const auto& each) { return each.second; })->second;
}

class Machine {
 public:
  virtual ~Machine() = default;

  /// For plans: `workers`, `sm_count`, `l2_bytes` and the like.
  virtual Bindings facts() const = 0;
  /// What keeps a candidate in: names of docs/formats/judge.md.
  virtual Json sandbox() = 0;
  /// errors: no memory or process for it.
  virtual std::unique_ptr<device::Host> new_host(const std::filesystem::path& module) = 0;

  /// Empty the caches, unless a launch does so by itself.
  virtual void flush() = 0;
  virtual int64_t flush_bytes() const = 0;
  /// Medians of a copy, or read, of so many bytes by each means that there is (docs/formats/judge.md).
  virtual std::map<std::string, double> floors_us(int64_t read_bytes, int64_t write_bytes) = 0;
  double floor_us(int64_t read_bytes, int64_t write_bytes) { return least(floors_us(read_bytes, write_bytes)); }
  /// Measured rates (docs/formats/judge.md).
  virtual Json ceilings() = 0;

  /// Most CPU time that a host took around one of several launches that compute nothing, beyond what its clock sees; nothing where that
  /// is not known.
  virtual std::optional<double> idle_outside_us() { return std::nullopt; }

  /// Whether someone can watch a launch on so many workers without taking a CPU from it.
  virtual bool has_spare_cpu(int workers) const = 0;
  /// Processes of others that use it now, where that is known and matters.
  virtual std::vector<device::Stranger> strangers() { return {}; }
  /// Whether a candidate broke it for good: only another process has it back.
  virtual bool lost() const = 0;
};

}  // namespace ak::judge
