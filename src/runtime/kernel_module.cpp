// Loads a compiled CPU kernel file.
#include "runtime/kernel_module.h"

#include <dlfcn.h>

#include "core/error.h"

namespace ak::runtime {

void KernelModule::Close::operator()(void* handle) const { dlclose(handle); }

KernelModule::KernelModule(const std::string& path) : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (!handle_) throw Error("cannot load kernel " + path + ": " + dlerror(), "compile the bundle again on this machine");
}

const KernelRecord& KernelModule::kernel(const std::string& name) const {
  const auto* record = static_cast<const KernelRecord*>(dlsym(handle_.get(), ("ak_kernel_" + name).c_str()));
  if (record == nullptr) throw Error(path_ + " publishes no kernel " + name, "write AK_KERNEL(" + name + ") after it");
  if (record->version != 1) throw Error(path_ + ": kernel " + name + " has a record of version " + std::to_string(record->version));
  return *record;
}

}  // namespace ak::runtime
