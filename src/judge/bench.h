// A candidate in its host with one case laid out in the arena: launch it, and see what it did to memory.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "device/host.h"
#include "judge/case_data.h"
#include "judge/finding.h"
#include "judge/poison.h"
#include "kernel/launch_plan.h"

namespace ak::judge {

/// How the inputs of a launch differ from the case's.
struct Perturbation {
  uint64_t seed = 0;      // of the elements that change, so that no earlier answer is right; a few only when the launch is about to start
  int64_t nudged = 0;     // elements of each input that get other last bits first: it does not pay to bring an earlier answer up to date
  uint64_t few_seed = 0;  // of `few` further elements of one input, late: all there is between two launches of the same seed
  int64_t few = 0;
};

/// Whatever lies between the buffers is canary; so is what an output's strides leave out.
class Bench {
 public:
  /// `data` and `host` outlive the bench.
  Bench(device::Host& host, const CaseData& data, kernel::ConcretePlan plan);

  /// At any line of memory, or where programs on the device allocate tensors: elsewhere is slower, and rare.
  enum class Addresses { any, as_allocated };
  /// Whether the two differ, so that a kernel may have a path for each.
  bool allocates_coarsely() const;
  /// Lay everything out at addresses that follow from `seed`, fill it, check the plan against the module and run its prepares.
  std::optional<Finding> place(uint64_t seed, Addresses addresses = Addresses::any);

  /// Poison the outputs and the scratch of a launch.
  void poison_outputs();
  /// Undone by restore().
  void perturb(const Perturbation& perturbation);
  /// As many elements as can be nudged in a part of a launch's time; 0 where each would have to reach a device.
  int64_t affordable_nudges() const;
  void restore();

  /// How closely the end of a launch is looked at: a few elements; all of them; all of them at the very moment, at the price of a CPU.
  enum class Look { few, all, all_at_once };
  /// `repeats`: on a device, for a steadier time; with other inputs and poisoned outputs each.
  /// errors: none; a host that does not finish is a finding.
  std::optional<Finding> launch(int workers, Look look = Look::few, int repeats = 1) { return launch(workers, look, repeats, {}); }
  /// One on a CPU, in which the host stands still while `change` changes what it will see, and until the clock runs; and once more from
  /// its end until all elements of the outputs were looked at.
  std::optional<Finding> launch_stopped(const std::function<void()>& change) { return launch(workers(), Look::few, 1, change); }
  double last_us() const { return last_us_; }
  /// On a clock of another make; 0 where there is none.
  double last_second_us() const { return last_second_us_; }
  /// How long the launch's threads waited for a CPU: other work on the machine disturbed it.
  double last_waited_us() const { return last_waited_us_; }
  /// What the host did around the launch before, beyond what its clock has seen; nothing where that is not known.
  std::optional<double> last_outside_us() const { return last_outside_us_; }

  /// Canaries and inputs; perturbed inputs are restored first.
  std::optional<Finding> check_memory();
  /// The outputs against the reference.
  std::optional<Finding> check_values() const;
  /// Of all elements of the outputs.
  std::string outputs_hash() const;
  /// The same as the launch left them, where all elements were looked at then.
  const std::string& hash_at_end() const { return hash_at_end_; }
  /// Whether the sampled elements are still what they were at the end of the launch.
  std::optional<Finding> check_finished() const;
  /// The same of all elements, unless few were looked at, after a moment in which an honest host does nothing.
  std::optional<Finding> check_finished_later() const;

  /// Of the device's multiprocessors, where it has such.
  std::vector<device::KernelUse> uses() const { return host_.uses(); }
  /// Memory that the candidate was given, inputs included.
  int64_t total_bytes() const { return total_bytes_; }
  int workers() const { return host_.workers(); }
  void set_timeout(double seconds) { timeout_seconds_ = seconds; }

 private:
  enum class Kind { input, output, scratch };
  struct Buffer {
    Kind kind;
    std::string name;
    int64_t begin = 0, bytes = 0, pointer = 0;  // offsets in the arena
    size_t index = 0;                           // of the input, output or scratch
    bool kept = false;                          // scratch that a prepare fills
  };
  /// Of an element of an input: another mantissa, or, where that would be another kind of number, another element's value.
  struct Change {
    int64_t at, other;  // offsets in the arena; `other` below 0: none
    int32_t size;
    uint64_t flipped;  // bits, where there is no other
  };
  struct Sample {
    int64_t at;
    int32_t size;
    uint64_t bits;
  };

  void lay_out(uint64_t seed, int64_t alignment);
  void fill();
  bool changes_between_launches(const Buffer& buffer) const;
  /// The inputs with elements that do.
  std::vector<const Buffer*> changing_inputs() const;
  bool hidden_from_prepares(const Buffer& buffer) const;
  std::optional<Finding> hand_over_data();
  device::Placement placement() const;
  void pull_outputs() const;
  std::span<std::byte> bytes_of(const Buffer& buffer) const {
    return arena_.subspan(static_cast<size_t>(buffer.begin), static_cast<size_t>(buffer.bytes));
  }
  std::optional<Finding> changed_canary() const;
  std::optional<Finding> changed_gap(const Buffer& buffer) const;
  std::optional<Finding> launch(int workers, Look look, int repeats, const std::function<void()>& while_stopped);
  void sample_outputs(Look look);
  Change draw_change(const Buffer& buffer, const InputTensor& input, std::mt19937_64& random) const;
  void apply(const Change& change);
  void nudge();
  std::optional<Finding> excessive_scratch() const;
  const Poison& poison_of(Kind kind) const { return kind == Kind::output ? poison_ : canary_; }

  device::Host& host_;
  const CaseData& data_;
  kernel::ConcretePlan plan_;
  Poison poison_{0}, canary_{0};  // of outputs; of scratch and of what lies between the buffers
  std::optional<uint64_t> turn_;  // of the kinds of canary: the first is a secret, and three placements have seen all
  std::vector<Buffer> buffers_;
  std::vector<Change> changes_, late_changes_;  // made; to be made when the launch is about to start
  std::vector<Sample> samples_;
  std::span<std::byte> arena_;
  int64_t total_bytes_ = 0;
  std::string hash_at_end_;  // where all elements were looked at
  uint64_t sample_seed_ = 0, nudge_seed_ = 0;
  int64_t nudged_ = 0;  // elements of an input, 0 where none are now
  double last_us_ = 0, last_second_us_ = 0, last_waited_us_ = 0, timeout_seconds_ = 10;
  std::optional<double> last_outside_us_;
};

}  // namespace ak::judge
