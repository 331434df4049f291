// The operator torch.ops.autokernel.callN: a boxed function over the C shim that finds an instance by its number and calls it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/instance.h"
#include "runtime/torch_shim.h"

namespace ak::runtime {

/// Where the operator finds the instance of a number; null where there is none.
using FindInstance = std::shared_ptr<Instance> (*)(int64_t number);

/// Implement call1 … call8 (one output) and call1x2 … call8x2 (two) for the CPU, and for CUDA where PyTorch has it. Their schemas are
/// defined by python/autokernel/runtime.py.
/// errors: PyTorch is not in this process, is too old, or refuses.
void register_operators(FindInstance find);

/// Threads that PyTorch runs a parallel loop on.
int64_t torch_threads();

}  // namespace ak::runtime
