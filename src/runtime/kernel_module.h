// A compiled CPU kernel file: the shared object and the records of the kernels that it publishes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ak::runtime {

/// Layout of ak::Parameter in kernels/include/autokernel/cpu.h.
struct KernelParameter {
  int32_t kind;  // 0 pointer, 1 integer, 2 float
  int32_t size_bytes;
};

/// Layout of ak::KernelRecord in kernels/include/autokernel/cpu.h.
struct KernelRecord {
  int32_t version;
  int32_t parameter_count;
  const KernelParameter* parameters;
  void (*call)(int64_t block, int64_t worker, void* scratch, void* const* arguments);
};

/// Kernels by name.
class Kernels {
 public:
  virtual ~Kernels() = default;
  /// errors: no such kernel, or a record of another version.
  virtual const KernelRecord& kernel(const std::string& name) const = 0;
};

class KernelModule : public Kernels {
 public:
  /// errors: a file that the loader refuses.
  explicit KernelModule(const std::string& path);

  const KernelRecord& kernel(const std::string& name) const override;

 private:
  struct Close {
    void operator()(void* handle) const;
  };
  std::string path_;
  std::unique_ptr<void, Close> handle_;
};

}  // namespace ak::runtime
