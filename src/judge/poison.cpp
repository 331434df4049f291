// Halfwords 0x7ff9 to 0x7ffe: alone, in pairs and in fours they are quiet NaN of float16, bfloat16, float32 and float64. 0x7fff is left
// out: PyTorch rounds a NaN to 0xffff in bfloat16, and an honest kernel may negate it. Halfwords 0x7b80 to 0x7bff are finite in all of
// them: above 6e4 in float16, 1e36 in bfloat16 and float32, 1e284 in float64.
#include "judge/poison.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace ak::judge {

Poison::Poison(uint64_t seed, Kind kind) : tile_(static_cast<size_t>(period + 8)) {
  std::mt19937_64 random(seed);
  const uint16_t first = kind == Kind::nan ? 0x7ff9 : kind == Kind::largest ? 0x7b80 : 0xfb80, choices = kind == Kind::nan ? 6 : 128;
  for (int64_t at = 0; at < period; at += 2) {
    const auto half = static_cast<uint16_t>(first + random() % choices);
    std::memcpy(tile_.data() + at, &half, sizeof half);
  }
  std::memcpy(tile_.data() + period, tile_.data(), 8);
}

void Poison::fill(std::span<std::byte> bytes, int64_t at) const {
  for (size_t done = 0; done < bytes.size();) {
    const int64_t from = (at + static_cast<int64_t>(done)) % period;
    const size_t count = std::min(bytes.size() - done, static_cast<size_t>(period - from));
    std::memcpy(bytes.data() + done, tile_.data() + from, count);
    done += count;
  }
}

int64_t Poison::first_changed(std::span<const std::byte> bytes, int64_t at) const {
  for (size_t done = 0; done < bytes.size();) {
    const int64_t from = (at + static_cast<int64_t>(done)) % period;
    const size_t count = std::min(bytes.size() - done, static_cast<size_t>(period - from));
    if (std::memcmp(bytes.data() + done, tile_.data() + from, count) != 0) {
      const auto differing = std::mismatch(bytes.begin() + static_cast<int64_t>(done), bytes.begin() + static_cast<int64_t>(done + count),
                                           tile_.begin() + from);
      return differing.first - bytes.begin();
    }
    done += count;
  }
  return -1;
}

bool Poison::untouched(const std::byte* bytes, int64_t at, int64_t size) const {
  return std::memcmp(bytes, tile_.data() + at % period, static_cast<size_t>(size)) == 0;
}

}  // namespace ak::judge
