// One CUDA device, in the judge's own process: a candidate's fault costs the process.
#pragma once

#include "device/cuda/context.h"
#include "device/cuda/nvml.h"
#include "judge/machine.h"

namespace ak::judge {

class CudaMachine final : public Machine {
 public:
  /// `index`: of the driver's list. `builtin`: the compiled kernels/include/judge/builtin.cu. `family`: the process whose children may use
  /// the device beside us.
  /// errors: no driver, no such device.
  CudaMachine(int index, const std::filesystem::path& builtin, pid_t family);

  Bindings facts() const override { return facts_; }
  Json sandbox() override;
  std::unique_ptr<device::Host> new_host(const std::filesystem::path& module) override;
  void flush() override {}  // on the stream, before each launch
  int64_t flush_bytes() const override { return context_.flush_bytes(); }
  Floors floors(int64_t read_bytes, int64_t write_bytes) override;
  Json ceilings() override;
  bool has_spare_cpu(int) const override { return true; }
  std::vector<device::Stranger> strangers() override;
  bool lost() const override { return context_.lost(); }

 private:
  /// Each in turn, so that a clock that drifts meets all of them alike.
  Floors cold(const std::map<std::string, std::function<device::cuda::CUresult()>>& enqueue, int samples);
  double median_us(const std::function<device::cuda::CUresult()>& enqueue, int samples);
  double rate_of(const char* kernel, int64_t flops_a_round);

  device::cuda::Context context_;
  Bindings facts_;
  std::optional<device::cuda::Nvml> nvml_;
  pid_t family_;
};

}  // namespace ak::judge
