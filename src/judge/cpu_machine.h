// The CPU of this machine.
#pragma once

#include "device/cpu/host.h"
#include "judge/flusher.h"
#include "judge/machine.h"

namespace ak::judge {

class CpuMachine final : public Machine {
 public:
  /// `executable`: what to start with --host. `workers`: threads of a launch.
  CpuMachine(std::filesystem::path executable, int workers, const device::cpu::HostLimits& limits, double longest_run_seconds);

  Bindings facts() const override;
  Json sandbox() override;
  std::unique_ptr<device::Host> new_host(const std::filesystem::path& module) override;
  void flush() override { flusher_.flush(); }
  int64_t flush_bytes() const override { return flusher_.bytes(); }
  Floors floors(int64_t read_bytes, int64_t write_bytes) override;
  Json ceilings() override;
  std::optional<double> idle_outside_us() override;
  std::optional<double> waking_us() override;
  bool has_spare_cpu(int workers) const override;
  bool lost() const override { return false; }

 private:
  device::cpu::Host& builtin_host();
  device::cpu::Program empty_program() const;
  Floor cold(const device::cpu::Program& program, int samples);

  std::filesystem::path executable_;
  int workers_;
  device::cpu::HostLimits limits_;
  double longest_run_seconds_;
  Flusher flusher_;
  std::unique_ptr<device::cpu::Host> builtin_;
};

}  // namespace ak::judge
