// Who says what to try next: strategies over a space, each a pure function of its seed and of what was tried.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "search/space.h"
#include "store/run.h"

namespace ak::search {

/// What to judge next.
struct Proposal {
  kernel::Point point;
  std::string proposer;
  std::string note;                        // for people: "ROWS 2→4 (tier 1)"
  std::optional<std::string> kernel_text;  // an edited file; else the point of the history's own file
};

/// The hash that names a candidate: of the file's text with the point as its defaults.
std::string kernel_hash(const kernel::KernelFile& file, const kernel::Point& point);

/// What was tried of one space. Built from the journal, so a resumed run continues where it was.
class History {
 public:
  /// Trials of other files are counted but are no points of this space. `elsewhere`: what won on other shapes, the nearest first.
  History(const Space& space, const std::vector<store::Trial>& trials, std::vector<kernel::Point> elsewhere = {});

  void add(const store::Trial& trial);

  const Space& space() const { return *space_; }
  bool seen(const kernel::Point& point) const { return seen_.contains(point); }
  /// Whether a point was tried that has these values; the other tunables may be anything.
  bool seen_with(const kernel::Point& some) const;
  const std::vector<kernel::Point>& elsewhere() const { return elsewhere_; }
  /// Where the search stands: the last point that was kept; before that the fastest correct one, or else the defaults.
  const kernel::Point& centre() const;
  /// The tunable by which the last kept point differs from the one kept before; empty where there is none.
  const std::string& last_moved() const { return last_moved_; }
  int64_t trials() const { return trials_; }
  int64_t trials_since_kept() const { return since_kept_; }

 private:
  void move_to(const kernel::Point& point);

  const Space* space_;
  std::set<kernel::Point> seen_;
  std::vector<kernel::Point> elsewhere_;
  std::optional<kernel::Point> kept_, fastest_;
  kernel::Point defaults_;
  double fastest_us_ = 0;
  std::string last_moved_;
  int64_t trials_ = 0, since_kept_ = 0;
};

/// A strategy. Proposes valid points that were not tried; nothing when it has none left.
class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual std::optional<Proposal> next(const History& history) = 0;
};

/// From the centre, one tunable at a time: first the nearest values of each tunable, tier by tier, then farther ones, then pairs of
/// tunables by one step each. After a keep it goes on with the tunable that moved, so a good direction is followed to its end.
class Coordinate final : public Proposer {
 public:
  std::optional<Proposal> next(const History& history) override;
};

/// Valid points that were not seen, drawn from the seed and the number of trials.
class Random final : public Proposer {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  std::optional<Proposal> next(const History& history) override;

 private:
  uint64_t seed_;
};

/// The default blend: the file's priors, the defaults, what won on other shapes of the family, then Coordinate; at a plateau one proposal
/// in four is random; what is left is random.
class Playbook final : public Proposer {
 public:
  explicit Playbook(uint64_t seed) : random_(seed) {}
  std::optional<Proposal> next(const History& history) override;

 private:
  static std::optional<Proposal> start(const History& history);
  bool restart(const History& history) const;

  Coordinate coordinate_;
  Random random_;
};

/// "playbook", "coordinate" or "random".
/// errors: an unknown name; the text lists the known ones.
std::unique_ptr<Proposer> make_proposer(std::string_view strategy, uint64_t seed);

}  // namespace ak::search
