// The suite's kernels for CUDA, as far as no GPU is needed.
#include <optional>

#include "compile/cuda_compiler.h"
#include "core/error.h"
#include "judge/self_test.h"
#include "judge/stages.h"
#include "rig.h"

namespace ak::judge::test {
namespace {

const Bindings facts = {{"sm_count", 132},        {"max_threads", 1024},       {"shared_per_block", 232448}, {"l2_bytes", 60 << 20},
                        {"threads_per_sm", 2048}, {"registers_per_sm", 65536}, {"shared_per_sm", 233472},    {"compute_capability", 90}};

class CudaSuite : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      compiler.emplace(judge_executable(), compile::CudaToolkit::find(), AK_SOURCE_DIR "/kernels/include", cache.path(), "sm_90a");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    suite.emplace(AK_SOURCE_DIR "/playbook/self_test", judge_executable(), *compiler, Json{{"device", "cuda"}});
  }

  TemporaryDirectory cache{"autokernel-test-"};
  std::optional<compile::CudaCompiler> compiler;
  std::optional<SelfTest> suite;
};

TEST_F(CudaSuite, all_compile_but_those_that_must_not) {
  std::vector<compile::Source> sources;
  std::vector<std::string> names;
  std::vector<bool> expected;
  for (const Pair& pair : suite->pairs()) {
    for (const bool planted : {true, false}) {
      const Candidate candidate = pair.candidate(planted);
      sources.push_back({candidate.file.text(), kernel::macros(candidate.file, suite->task_of(pair), candidate.point)});
      names.push_back(pair.name + (planted ? ", planted" : ", its twin"));
      expected.push_back(!planted || pair.verdict != Verdict::does_not_compile);
    }
  }
  EXPECT_GE(sources.size(), 2 * 48u);
  const std::vector<compile::Result> results = compiler->compile(sources, 2);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].compiled, expected[i]) << names[i] << "\n" << results[i].log;
}

TEST_F(CudaSuite, every_twin_has_a_plan_for_every_case) {
  for (const Pair& pair : suite->pairs()) {
    const kernel::Task& task = suite->task_of(pair);
    const Candidate twin = pair.candidate(false);
    std::vector<StageCase> cases = later_cases(task);
    cases.push_back(smoke_case(task));
    for (const StageCase& stage : cases) {
      const kernel::Binding binding = kernel::binding_from_json(stage.test_case);
      EXPECT_TRUE(twin.file.allows(kernel::plan_names(task, binding, twin.point, facts))) << pair.name;
      const kernel::ConcretePlan plan = kernel::make_concrete(twin.file, task, binding, twin.point, facts);
      EXPECT_FALSE(plan.launches.empty()) << pair.name;
      for (const kernel::ConcreteLaunch& launch : plan.launches) {
        EXPECT_LE(launch.block[0], facts.at("max_threads")) << pair.name;
        EXPECT_LE(launch.grid[1], 65535) << pair.name;
        EXPECT_EQ(launch.grid[0] % launch.cluster[0], 0) << pair.name;
      }
    }
  }
}

}  // namespace
}  // namespace ak::judge::test
