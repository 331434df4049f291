// Where fixtures come from, and those kept for the next candidates of a task.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "core/json.h"
#include "kernel/task.h"

namespace ak::judge {

/// Two files in shared memory (docs/formats/worker.md, "Fixtures"); whoever holds them last removes them.
struct Fixture {
  std::filesystem::path inputs, expected;
};

/// Makes fixtures: the worker in a run, a few lines of C++ in tests.
class FixtureSource {
 public:
  virtual ~FixtureSource() = default;
  /// A case names dims, strides or layout, generator and seed. The files belong to the caller.
  /// errors: the worker fails.
  virtual Fixture make(const kernel::Task& task, const Json& test_case) = 0;
};

/// A case with its files, and the strides that the source chose for its layout.
struct CaseFixture {
  Json test_case;  // with its seed
  kernel::Binding binding;
  Fixture files;
  int64_t bytes = 0;
  int uses = 0;
};

/// What a machine with so much memory can keep of a task.
int64_t usual_fixture_bytes();

/// Fixtures of one task by case, at most so many bytes of them. Seeds are secret and change now and then.
class FixtureCache {
 public:
  FixtureCache(FixtureSource& source, kernel::Task task, int64_t maximum_bytes);
  ~FixtureCache();
  FixtureCache(const FixtureCache&) = delete;
  FixtureCache& operator=(const FixtureCache&) = delete;

  /// The fixture of a case without a seed; `fresh`: of a seed that no candidate has seen. Valid until the call after the next.
  const CaseFixture& get(const Json& test_case, bool fresh = false);

 private:
  using Entries = std::list<std::pair<std::string, CaseFixture>>;  // the most recently used first

  CaseFixture make(const Json& test_case);
  void drop(Entries::iterator entry);
  void make_room();

  FixtureSource& source_;
  kernel::Task task_;
  int64_t maximum_bytes_, bytes_ = 0;
  std::mt19937_64 seeds_;
  Entries entries_;
};

}  // namespace ak::judge
