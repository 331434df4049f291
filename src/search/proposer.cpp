// The strategies.
#include "search/proposer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"

namespace ak::search {
namespace {

constexpr int64_t restart_every = 4;  // proposals at a plateau

/// Tunables from the one that moved last, then the following ones, round to the start.
std::vector<const kernel::Tunable*> in_turn(const History& history) {
  std::vector<const kernel::Tunable*> order;
  for (const kernel::Tunable& tunable : history.space().tunables()) order.push_back(&tunable);
  const auto moved = std::find_if(order.begin(), order.end(), [&](const auto* tunable) { return tunable->name == history.last_moved(); });
  if (moved != order.end()) std::rotate(order.begin(), moved, order.end());
  return order;
}

bool fresh(const History& history, const kernel::Point& point) { return !history.seen(point) && history.space().allows(point); }

std::optional<kernel::Point> change_one(const History& history, const std::vector<const kernel::Tunable*>& order) {
  size_t farthest = 0;
  for (const auto* tunable : order) farthest = std::max(farthest, tunable->values.size());
  for (size_t distance = 1; distance < farthest; ++distance) {
    for (const auto* tunable : order) {
      kernel::Point point = history.centre();
      for (const Space::Step& step : Space::steps(*tunable, history.centre().at(tunable->name))) {
        point[tunable->name] = step.value;
        if (step.distance == distance && fresh(history, point)) return point;
      }
    }
  }
  return std::nullopt;
}

std::optional<kernel::Point> change_two(const History& history, const std::vector<const kernel::Tunable*>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size(); ++j) {
      for (const Space::Step& first : Space::steps(*order[i], history.centre().at(order[i]->name))) {
        for (const Space::Step& second : Space::steps(*order[j], history.centre().at(order[j]->name))) {
          if (first.distance > 1 || second.distance > 1) continue;
          kernel::Point point = history.centre();
          point[order[i]->name] = first.value;
          point[order[j]->name] = second.value;
          if (fresh(history, point)) return point;
        }
      }
    }
  }
  return std::nullopt;
}

Proposal proposal(const History& history, kernel::Point point, std::string proposer, std::string_view prefix = "") {
  std::string note = fmt::format("{}{}", prefix, describe_change(history.space().file(), history.centre(), point));
  return {std::move(point), std::move(proposer), std::move(note), std::nullopt};
}

}  // namespace

std::string kernel_hash(const kernel::KernelFile& file, const kernel::Point& point) { return content_hash(file.with_defaults(point)); }

History::History(const Space& space, const std::vector<store::Trial>& trials, std::vector<kernel::Point> elsewhere)
    : space_(&space), elsewhere_(std::move(elsewhere)), defaults_(space.file().defaults()) {
  for (const store::Trial& trial : trials) add(trial);
}

void History::add(const store::Trial& trial) {
  ++trials_;
  since_kept_ = trial.verdict == "kept" ? 0 : since_kept_ + 1;
  if (!space_->describes(trial.point) || trial.kernel_hash != kernel_hash(space_->file(), trial.point)) return;
  seen_.insert(trial.point);
  if (trial.verdict == "kept") move_to(trial.point);
  const bool correct = trial.verdict == "kept" || trial.verdict == "slower";
  if (correct && (!fastest_ || trial.median_us < fastest_us_)) {
    fastest_ = trial.point;
    fastest_us_ = trial.median_us;
  }
}

bool History::seen_with(const kernel::Point& some) const {
  return std::any_of(seen_.begin(), seen_.end(), [&](const kernel::Point& point) {
    return std::all_of(some.begin(), some.end(), [&](const auto& entry) { return point.at(entry.first) == entry.second; });
  });
}

void History::move_to(const kernel::Point& point) {
  if (kept_) {
    for (const kernel::Tunable& tunable : space_->tunables()) {
      if (kept_->at(tunable.name) == point.at(tunable.name)) continue;
      last_moved_ = tunable.name;
      break;
    }
  }
  kept_ = point;
}

const kernel::Point& History::centre() const {
  if (kept_) return *kept_;
  return fastest_ ? *fastest_ : defaults_;
}

std::optional<Proposal> Coordinate::next(const History& history) {
  const auto order = in_turn(history);
  auto point = change_one(history, order);
  if (!point) point = change_two(history, order);
  if (!point) return std::nullopt;
  return proposal(history, std::move(*point), "coordinate");
}

std::optional<Proposal> Random::next(const History& history) {
  std::seed_seq seeds{static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32), static_cast<uint32_t>(history.trials())};
  std::mt19937_64 random(seeds);
  auto point = history.space().random(random, [&](const kernel::Point& candidate) { return !history.seen(candidate); });
  if (!point) return std::nullopt;
  return proposal(history, std::move(*point), "random", "at random: ");
}

/// What is known to be worth a look before anything is varied.
std::optional<Proposal> Playbook::start(const History& history) {
  for (const Space::Start& prior : history.space().priors()) {
    if (!history.seen_with(prior.set)) return proposal(history, prior.point, "prior", "prior: ");
  }
  const kernel::Point defaults = history.space().file().defaults();
  if (!history.seen(defaults)) return Proposal{defaults, "playbook", "the defaults", std::nullopt};
  for (const kernel::Point& point : history.elsewhere()) {
    if (fresh(history, point)) return proposal(history, point, "playbook", "won on another shape: ");
  }
  return std::nullopt;
}

std::optional<Proposal> Playbook::next(const History& history) {
  if (auto first = start(history)) return first;
  if (restart(history)) {
    if (auto restarted = random_.next(history)) return restarted;
  }
  if (auto next = coordinate_.next(history)) return next;
  return random_.next(history);
}

bool Playbook::restart(const History& history) const {
  const auto plateau = static_cast<int64_t>(history.space().tunables().size()) + 1;  // about one look at each tunable without a gain
  const int64_t beyond = history.trials_since_kept() - plateau;
  return beyond >= 0 && beyond % restart_every == 0;
}

std::unique_ptr<Proposer> make_proposer(std::string_view strategy, uint64_t seed) {
  if (strategy == "playbook") return std::make_unique<Playbook>(seed);
  if (strategy == "coordinate") return std::make_unique<Coordinate>();
  if (strategy == "random") return std::make_unique<Random>(seed);
  throw Error(fmt::format("there is no search strategy '{}'", strategy), "Use playbook, coordinate or random.");
}

}  // namespace ak::search
