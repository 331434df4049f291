// Work over large memory on all CPUs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "device/cpu/facts.h"

namespace ak::judge {

constexpr int64_t bytes_a_thread = 2 << 20;  // of memory that is only gone through

/// Call `work(begin, end)`, which must not throw, on parts that make up [0, count), side by side; none is shorter than `least` but an only
/// one.
template <class Work>
void in_parallel(int64_t count, int64_t least, const Work& work) {
  const int64_t parts = std::clamp<int64_t>(count / least, 1, device::cpu::available_cpus());
  std::vector<std::jthread> threads;
  for (int64_t part = 1; part < parts; ++part)
    threads.emplace_back([&work, count, part, parts] { work(count * part / parts, count * (part + 1) / parts); });
  work(0, count / parts);
}

}  // namespace ak::judge
