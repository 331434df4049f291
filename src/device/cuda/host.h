// A candidate's module in the judge's context. Only device code of it ever runs; its arena lies on the device, with a copy on the host.
#pragma once

#include <filesystem>

#include "device/cuda/context.h"
#include "device/host.h"

namespace ak::device::cuda {

class Host final : public device::Host {
 public:
  /// `context` outlives the host. `facts`: of the device.
  Host(Context& context, std::filesystem::path module, Bindings facts);
  ~Host() override;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  Outcome load() override;
  std::span<std::byte> arena(int64_t bytes) override;
  void push(int64_t begin, int64_t bytes) override;
  void pull(int64_t begin, int64_t bytes) override;
  Outcome install(const kernel::ConcretePlan& plan, const Placement& placement) override;
  Outcome prepare(double timeout_seconds) override;
  Outcome launch(int workers, double timeout_seconds, const Moments& moments = {}) override;
  std::vector<KernelUse> uses() const override;
  int workers() const override { return 1; }
  int64_t alignment() const override { return 512; }
  int64_t most_scratch_bytes() const override;
  bool alive() const override { return !modules_.empty() && !context_.lost(); }

 private:
  /// errors: a launch that cannot be; why.
  Launch ready(const kernel::ConcreteLaunch& launch, const kernel::ConcretePlan& plan, const Placement& placement) const;
  CUdeviceptr address_of(const kernel::Argument& argument, const Placement& placement) const;
  Outcome run(const std::vector<Launch>& launches, double timeout_seconds, const Moments& moments);
  CUresult push_all();
  CUresult keep_image();
  CUresult restore_image();
  Outcome failed(CUresult result);

  Context& context_;
  std::filesystem::path path_;
  Bindings facts_;
  std::vector<CUmodule> modules_;                   // by image
  Arena arena_, image_;                             // image_: of what a repeated launch may write, as it was before
  std::vector<std::pair<int64_t, int64_t>> dirty_;  // begin and end
  std::vector<Launch> launches_, prepares_;
  std::vector<std::pair<int64_t, int64_t>> zeros_, written_;  // begin and size; written_: poisoned before each launch
};

}  // namespace ak::device::cuda
