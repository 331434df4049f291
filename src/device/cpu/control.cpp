// Futexes shared between processes.
#include "device/cpu/control.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace ak::device::cpu {

void futex_wait(const std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_us) {
  const timespec timeout{timeout_us / 1'000'000, timeout_us % 1'000'000 * 1000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace ak::device::cpu
