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

/// Cold times of one means to move bytes, in us.
struct Floor {
  double median_us = 0, fastest_us = 0;
};
using Floors = std::map<std::string, Floor>;  // by means

/// Of the fastest means.
inline double least(const Floors& floors, double Floor::*which) {
  const auto of = [which](const auto& each) { return each.second.*which; };
  return of(*std::ranges::min_element(floors, {}, of));
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
  /// A copy, or read, of so many bytes by each means that there is (docs/formats/judge.md).
  virtual Floors floors(int64_t read_bytes, int64_t write_bytes) = 0;
  double floor_us(int64_t read_bytes, int64_t write_bytes) { return least(floors(read_bytes, write_bytes), &Floor::median_us); }
  /// Measured rates (docs/formats/judge.md).
  virtual Json ceilings() = 0;

  /// Most CPU time that a host took around one of several launches that compute nothing, beyond what its clock sees; nothing where that
  /// is not known.
  virtual std::optional<double> idle_outside_us() { return std::nullopt; }

  /// How much longer a launch that computes nothing takes where its host stood still until the clock ran; nothing where none can.
  virtual std::optional<double> waking_us() { return std::nullopt; }

  /// Whether someone can watch a launch on so many workers without taking a CPU from it.
  virtual bool has_spare_cpu(int workers) const = 0;
  /// Processes of others that use it now, where that is known and matters.
  virtual std::vector<device::Stranger> strangers() { return {}; }
  /// Whether a candidate broke it for good: only another process has it back.
  virtual bool lost() const = 0;
};

}  // namespace ak::judge
