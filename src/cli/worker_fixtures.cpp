// A directory a case.
#include "cli/worker_fixtures.h"

namespace ak::cli {

judge::Fixture WorkerFixtures::make(const kernel::Task& task, const Json& test_case) {
  const std::filesystem::path own = directory_.path() / std::to_string(made_++);  // the worker's file names are always the same
  std::filesystem::create_directory(own);
  const bridge::FixtureFiles files = worker_().fixtures(task, test_case, own, device_);
  return {files.inputs, files.expected};
}

}  // namespace ak::cli
