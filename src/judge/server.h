// The judge's side of docs/formats/judge.md: holds the clock, the expected values and the comparison, and drives candidate hosts.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "core/channel.h"
#include "device/host.h"
#include "judge/bench.h"
#include "judge/case_data.h"
#include "judge/machine.h"
#include "judge/paired_timer.h"
#include "kernel/launch_plan.h"

namespace ak::judge {

class Server {
 public:
  /// `executable`: what to start with --host.
  explicit Server(std::filesystem::path executable);

  /// Answer requests until the channel closes.
  void serve(Channel& channel);
  /// errors: a request that makes no sense, or a failing environment.
  Json answer(const std::string& verb, const Json& arguments);

 private:
  struct Slot {
    std::filesystem::path module;
    std::unique_ptr<device::Host> host;
  };
  struct Subject;  // a candidate of a request: module and plan

  Json open(const Json& arguments);
  Json floor(const Json& arguments);
  Json check(const Json& arguments);
  /// Measured again while others use the device.
  Json time(const Json& arguments);
  Json time_once(const Json& arguments);
  Json release(const Json& arguments);
  Json null_candidates(const Json& arguments);

  /// The host of a module, started and loaded if it is not.
  std::optional<Finding> ready(Slot& slot, const std::filesystem::path& module);
  std::optional<Finding> check_once(Bench& bench, int workers);
  std::optional<Finding> launch_once(Bench& bench);
  std::optional<Finding> warm_up(Bench& bench);
  /// The timed launches again, in a fresh host that remembers nothing.
  std::optional<Finding> replay(const Subject& subject, const CaseData& data, Timing& timing);
  /// The slower of the two measurements counts.
  std::optional<Finding> measure_again(Bench& bench, Timing& timing);
  /// Machine::waking_us().
  std::optional<double> waking_time();
  std::optional<Finding> works_outside(Bench& bench, Timing& timing);
  std::optional<Finding> works_ahead(const Subject& subject, const CaseData& data, Bench& bench, Timing& timing);
  std::optional<Finding> gave_up(const Subject& subject, const CaseData& data, Bench& stopped,
                                 const std::function<double(double)>& limit_us);
  std::optional<Finding> below_floor(Bench& bench, const CaseData& data, Timing& timing);
  /// All that a time is doubted for, before it is kept.
  std::optional<Finding> doubt(const Subject& subject, const CaseData& data, Bench& bench, Timing& timing);
  Json time_alone(const Subject& subject, const CaseData& data, Bench& bench, const TimingRules& rules);
  double timeout_seconds(const CaseData& data) const;

  std::filesystem::path executable_;
  std::mt19937_64 secrets_;
  double longest_run_seconds_ = 60;
  std::unique_ptr<Machine> machine_;
  Slot candidate_, incumbent_;
};

}  // namespace ak::judge
