// Cache sizes from /sys, with modest guesses where a virtual machine hides them.
#include "device/cpu/facts.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/file.h"

namespace ak::device::cpu {
namespace {

constexpr int64_t guessed_l2_bytes = 1 << 20, guessed_l3_bytes = 32 << 20, most_flush_bytes = 256 << 20;

int64_t cache_bytes(int level) {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string directory = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const auto size = read_file_if_exists(directory + "size"), its_level = read_file_if_exists(directory + "level");
    if (!size || !its_level || std::atoi(its_level->c_str()) != level) continue;
    const int64_t unit = size->find('M') != std::string::npos ? 1 << 20 : size->find('K') != std::string::npos ? 1 << 10 : 1;
    largest = std::max<int64_t>(largest, std::atoll(size->c_str()) * unit);
  }
  return largest;
}

}  // namespace

int available_cpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

Bindings facts(int workers) {
  const int64_t l2 = cache_bytes(2), l3 = cache_bytes(3);
  return {{"workers", workers}, {"l2_bytes", l2 > 0 ? l2 : guessed_l2_bytes}, {"l3_bytes", l3 > 0 ? l3 : guessed_l3_bytes}};
}

int64_t flush_bytes() {
  const Bindings known = facts(1);
  return std::min(most_flush_bytes, 2 * std::max(known.find("l2_bytes")->second, known.find("l3_bytes")->second));
}

}  // namespace ak::device::cpu
