// The instances that are open in this process, by number.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "runtime/instance.h"

namespace ak::runtime {

class Registry {
 public:
  /// Open the bundle for the call site, or count another user of the instance that is open for the same content.
  /// errors: no bundle there, one for another backend, a call that its task does not have, a plan that does not fit.
  int64_t open(const std::string& bundle_directory, const std::string& call_json, int64_t workers);

  /// Null where there is none.
  std::shared_ptr<Instance> find(int64_t number) const;

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
