// Listing, sampling and filtering of points.
#include "search/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "kernel/launch_plan.h"

namespace ak::search {
namespace {

constexpr int random_attempts = 2000;
constexpr int estimate_samples = 512;

const kernel::Tunable* find(const std::vector<kernel::Tunable>& tunables, const std::string& name) {
  const auto found = std::find_if(tunables.begin(), tunables.end(), [&](const kernel::Tunable& tunable) { return tunable.name == name; });
  return found == tunables.end() ? nullptr : &*found;
}

bool has_value(const kernel::Tunable& tunable, int64_t value) {
  return std::find(tunable.values.begin(), tunable.values.end(), value) != tunable.values.end();
}

}  // namespace

Space::Space(kernel::KernelFile file, const kernel::Task& task, const Bindings& device_facts, int highest_tier) : file_(std::move(file)) {
  for (const kernel::Tunable& tunable : file_.tunables()) {
    if (tunable.tier <= highest_tier) tunables_.push_back(tunable);
  }
  std::stable_sort(tunables_.begin(), tunables_.end(), [](const auto& left, const auto& right) { return left.tier < right.tier; });
  for (const kernel::Tunable& tunable : tunables_) raw_size_ *= static_cast<double>(tunable.values.size());
  for (const kernel::Binding& binding : task.workload) names_.push_back(kernel::plan_names(task, binding, file_.defaults(), device_facts));
  for (const kernel::Prior& prior : file_.priors()) {
    Start start{prior.set, file_.defaults()};
    for (const auto& [name, value] : prior.set) start.point[name] = value;
    if (holds(prior.when) && allows(start.point)) priors_.push_back(std::move(start));
  }
}

bool Space::holds(const Expression& when) const {
  return std::all_of(names_.begin(), names_.end(), [&](const Bindings& names) { return when.evaluate(names) != 0; });
}

bool Space::describes(const kernel::Point& point) const {
  return point.size() == file_.tunables().size() && std::all_of(point.begin(), point.end(), [&](const auto& entry) {
           const kernel::Tunable* tunable = find(file_.tunables(), entry.first);
           return tunable && has_value(*tunable, entry.second);
         });
}

bool Space::allows(const kernel::Point& point) const {
  if (!describes(point)) return false;
  for (Bindings names : names_) {
    for (const auto& [name, value] : point) names[name] = value;
    try {
      if (!file_.allows(names)) return false;
    } catch (const Error&) {
      return false;
    }
  }
  return true;
}

double Space::size() const {
  if (size_) return *size_;
  if (listed()) return *(size_ = static_cast<double>(points().size()));
  std::mt19937_64 sample(1);
  int valid = 0;
  for (int i = 0; i < estimate_samples; ++i) valid += allows(any_point(sample));
  return *(size_ = raw_size_ * valid / estimate_samples);
}

const std::vector<kernel::Point>& Space::points() const {
  AK_CHECK(listed(), "only a small space is listed");
  if (!points_) list_points();
  return *points_;
}

void Space::list_points() const {
  points_.emplace();
  std::vector<size_t> digits(tunables_.size(), 0);
  kernel::Point point = file_.defaults();
  for (bool more = true; more;) {
    for (size_t i = 0; i < digits.size(); ++i) point[tunables_[i].name] = tunables_[i].values[digits[i]];
    if (allows(point)) points_->push_back(point);
    more = false;
    for (size_t i = 0; i < digits.size() && !more; ++i) {
      digits[i] = (digits[i] + 1) % tunables_[i].values.size();
      more = digits[i] != 0;
    }
  }
}

std::vector<Space::Step> Space::steps(const kernel::Tunable& tunable, int64_t value) {
  const auto& values = tunable.values;
  const size_t at = static_cast<size_t>(std::find(values.begin(), values.end(), value) - values.begin());
  std::vector<Step> result;
  for (size_t distance = 1; distance < std::max(values.size(), at + 1); ++distance) {
    if (at + distance < values.size()) result.push_back({values[at + distance], distance});
    if (distance <= at) result.push_back({values[at - distance], distance});
  }
  return result;
}

std::vector<kernel::Point> Space::neighbours(const kernel::Point& point, const kernel::Tunable& tunable) const {
  std::vector<kernel::Point> result;
  for (const Step& step : steps(tunable, point.at(tunable.name))) {
    kernel::Point next = point;
    next[tunable.name] = step.value;
    if (allows(next)) result.push_back(std::move(next));
  }
  return result;
}

std::optional<kernel::Point> Space::random(std::mt19937_64& random, const std::function<bool(const kernel::Point&)>& wanted) const {
  if (listed()) {
    std::vector<const kernel::Point*> left;
    for (const kernel::Point& point : points()) {
      if (wanted(point)) left.push_back(&point);
    }
    if (left.empty()) return std::nullopt;
    return *left[random() % left.size()];
  }
  for (int attempt = 0; attempt < random_attempts; ++attempt) {
    kernel::Point point = any_point(random);
    if (wanted(point) && allows(point)) return point;
  }
  return std::nullopt;
}

kernel::Point Space::any_point(std::mt19937_64& random) const {
  kernel::Point point = file_.defaults();
  for (const kernel::Tunable& tunable : tunables_) point[tunable.name] = tunable.values[random() % tunable.values.size()];
  return point;
}

std::string describe_change(const kernel::KernelFile& file, const kernel::Point& from, const kernel::Point& to) {
  std::string changes, tiers;
  std::set<int> seen;
  for (const kernel::Tunable& tunable : file.tunables()) {
    const int64_t before = from.at(tunable.name), after = to.at(tunable.name);
    if (before == after) continue;
    changes += fmt::format("{}{} {}→{}", changes.empty() ? "" : ", ", tunable.name, before, after);
    seen.insert(tunable.tier);
  }
  if (seen.empty()) return "the defaults";
  for (const int tier : seen) tiers += fmt::format("{}{}", tiers.empty() ? "" : ", ", tier);
  return fmt::format("{} ({} {})", changes, seen.size() == 1 ? "tier" : "tiers", tiers);
}

}  // namespace ak::search
