// Fixtures by the PyTorch worker.
#pragma once

#include <functional>
#include <string>

#include "bridge/worker.h"
#include "core/file.h"
#include "judge/fixture.h"

namespace ak::cli {

class WorkerFixtures final : public judge::FixtureSource {
 public:
  /// `worker` is asked for when the first fixture is. `device`: where expected values are computed; empty: on that of the worker's model.
  explicit WorkerFixtures(std::function<bridge::Worker&()> worker, std::string device = {})
      : worker_(std::move(worker)), device_(std::move(device)) {}

  judge::Fixture make(const kernel::Task& task, const Json& test_case) override;

 private:
  std::function<bridge::Worker&()> worker_;
  std::string device_;
  TemporaryDirectory directory_{"autokernel-fixtures-"};
  int64_t made_ = 0;
};

}  // namespace ak::cli
