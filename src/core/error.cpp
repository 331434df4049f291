// Abort with the place and the invariant that broke.
#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace ak {

void check_failed(const char* file, int line, std::string_view what_should_hold) {
  std::fprintf(stderr, "autokernel: internal error at %s:%d: %.*s\n", file, line, static_cast<int>(what_should_hold.size()),
               what_should_hold.data());
  std::abort();
}

}  // namespace ak
