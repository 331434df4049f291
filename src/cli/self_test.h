// `bench --self-test`: the adversarial suite on this machine.
#pragma once

#include "cli/options.h"

namespace ak::cli {

/// Print a line a pair and the totals; done only if every planted candidate was caught and every honest twin kept.
Exit self_test(const Options& options);

}  // namespace ak::cli
