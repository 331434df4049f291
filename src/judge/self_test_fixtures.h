// Fixtures of the adversarial suite's small tasks: inputs from a seed, expected values in float64, "eager" ones in float32.
#pragma once

#include "core/file.h"
#include "judge/fixture.h"

namespace ak::judge {

class SelfTestFixtures final : public FixtureSource {
 public:
  /// errors: a task or a generator that the suite does not know.
  Fixture make(const kernel::Task& task, const Json& test_case) override;

 private:
  TemporaryDirectory directory_{"autokernel-self-test-"};
  int64_t made_ = 0;
};

}  // namespace ak::judge
