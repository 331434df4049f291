// The instances that are open in this process, by number.
#pragma once

#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "device/cuda/driver.h"
#include "runtime/instance.h"

namespace ak::runtime {

/// What instances find in the process.
struct Surroundings {
  std::function<int64_t()> threads;  // of a parallel loop
  std::function<const device::cuda::Driver&()> driver;
};

/// The bundle's plan made concrete for the call site, as JSON (docs/formats/bundle.md): for those who launch it by themselves.
/// errors: no bundle there, a call that its task does not have, a plan that does not fit, no such GPU.
std::string plan_of_bundle(const std::string& bundle_directory, const std::string& call_json, const Surroundings& surroundings);

class Registry {
 public:
  /// Open the bundle for the call site, or count another user of the instance that is open for the same content.
  /// errors: no bundle there, one for another backend, a call that its task does not have, a plan that does not fit.
  int64_t open(const std::string& bundle_directory, const std::string& call_json, const Surroundings& surroundings);

  /// Null where there is none.
  std::shared_ptr<Instance> find(int64_t number) const;

  /// Of any model: instances that do not notice it by themselves prepare their weights again.
  void weights_changed();

  void close(int64_t number);

 private:
  struct Entry {
    std::shared_ptr<Instance> instance;
    int64_t users;
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<int64_t, Entry> entries_;
};

}  // namespace ak::runtime
