// The points that a kernel file allows for a task: the space that a search walks through.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/expression.h"
#include "kernel/kernel_file.h"
#include "kernel/task.h"

namespace ak::search {

/// The space of one kernel file for one task and device. Small spaces are listed once; large ones are only ever asked about.
class Space {
 public:
  /// Spaces with at most so many points before `require` are listed in full.
  static constexpr double listed_points = 4096;

  /// Tunables of a tier above `highest_tier` stay at their defaults.
  Space(kernel::KernelFile file, const kernel::Task& task, const Bindings& device_facts, int highest_tier = 6);

  const kernel::KernelFile& file() const { return file_; }
  /// Those that may be turned, by tier, then as declared.
  const std::vector<kernel::Tunable>& tunables() const { return tunables_; }

  /// Whether `point` names exactly the file's tunables, each with one of its values, and every `require` holds for every workload
  /// binding. An expression that cannot be evaluated there (a division by zero) does not hold.
  bool allows(const kernel::Point& point) const;

  /// Whether `point` names exactly the file's tunables, each with one of its values.
  bool describes(const kernel::Point& point) const;

  /// A point where a search begins.
  struct Start {
    kernel::Point set;    // the tunables that make it this start
    kernel::Point point;  // all of them, the others at their defaults
  };
  /// The file's priors that hold for every workload binding and that a `require` allows, in their order.
  const std::vector<Start>& priors() const { return priors_; }

  /// Points before `require`.
  double raw_size() const { return raw_size_; }
  /// Valid points; for a space that is too large to list, estimated from a fixed sample.
  double size() const;
  bool listed() const { return raw_size_ <= listed_points; }
  /// All valid points in a fixed order. Only for a listed space.
  const std::vector<kernel::Point>& points() const;

  /// Values of `tunable` other than `value`, by their distance in its list: nearest first, the larger index before the smaller.
  /// Each comes with its distance.
  struct Step {
    int64_t value;
    size_t distance;
  };
  static std::vector<Step> steps(const kernel::Tunable& tunable, int64_t value);

  /// `point` with one tunable changed, nearest values first; valid points only.
  std::vector<kernel::Point> neighbours(const kernel::Point& point, const kernel::Tunable& tunable) const;

  /// A valid point, uniformly where the space is listed, else by trying; nothing if none was found.
  std::optional<kernel::Point> random(std::mt19937_64& random, const std::function<bool(const kernel::Point&)>& wanted) const;

 private:
  kernel::Point any_point(std::mt19937_64& random) const;
  void list_points() const;
  bool holds(const Expression& when) const;

  kernel::KernelFile file_;
  std::vector<kernel::Tunable> tunables_;
  std::vector<Bindings> names_;  // of each workload binding
  std::vector<Start> priors_;
  double raw_size_ = 1;
  mutable std::optional<std::vector<kernel::Point>> points_;
  mutable std::optional<double> size_;
};

/// What changed between two points: "ROWS 2→4 (tier 1)", "ROWS 2→4, UNROLL 1→2 (tiers 1, 3)", or "the defaults".
std::string describe_change(const kernel::KernelFile& file, const kernel::Point& from, const kernel::Point& to);

}  // namespace ak::search
