// Halfwords 0x7ff9 to 0x7ffe, and the same below zero: alone, in pairs and in fours they are quiet NaN of float16, bfloat16, float32 and
// float64. 0x7fff is left out: PyTorch rounds a NaN to 0xffff in bfloat16, and an honest kernel may negate it. Halfwords 0x7b80 to 0x7bff
// are finite in all of them: above 6e4 in float16, 1e36 in bfloat16 and float32, 1e284 in float64.
#include "judge/poison.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <random>

#include "judge/parallel.h"

namespace ak::judge {
namespace {

constexpr uint16_t sign = 0x8000;

struct Halfwords {
  uint16_t first, count;
  bool both_signs;
};

Halfwords halfwords(Poison::Kind kind) {
  switch (kind) {
    case Poison::Kind::nan: return {0x7ffc, 3, true};
    case Poison::Kind::largest: return {0x7b80, 128, false};
    case Poison::Kind::smallest: return {0x7b80 | sign, 128, false};
    default: return {0x7ff9, 3, true};
  }
}

}  // namespace

Poison::Poison(uint64_t seed, Kind kind) : tile_(static_cast<size_t>(period + 8)) {
  std::mt19937_64 random(seed);
  const auto [first, count, both_signs] = halfwords(kind);
  for (int64_t at = 0; at < period; at += 2) {
    const uint64_t drawn = random();
    const auto half = static_cast<uint16_t>((first + (drawn >> 1) % count) ^ (both_signs && (drawn & 1) != 0 ? sign : 0));
    std::memcpy(tile_.data() + at, &half, sizeof half);
  }
  std::memcpy(tile_.data() + period, tile_.data(), 8);
}

/// `visit(index, pattern, count)` for the pieces of [begin, end) that lie in one repetition of the pattern each, while it returns true.
template <class Visit>
void Poison::for_each_tile(int64_t begin, int64_t end, int64_t at, const Visit& visit) const {
  while (begin < end) {
    const int64_t from = (at + begin) % period, count = std::min(end - begin, period - from);
    if (!visit(begin, tile_.data() + from, static_cast<size_t>(count))) return;
    begin += count;
  }
}

void Poison::fill(std::span<std::byte> bytes, int64_t at) const {
  in_parallel(static_cast<int64_t>(bytes.size()), bytes_a_thread, [&](int64_t begin, int64_t end) {
    for_each_tile(begin, end, at, [&](int64_t done, const std::byte* tile, size_t count) {
      std::memcpy(bytes.data() + done, tile, count);
      return true;
    });
  });
}

int64_t Poison::first_changed(std::span<const std::byte> bytes, int64_t at) const {
  std::atomic<int64_t> first = std::numeric_limits<int64_t>::max();
  in_parallel(static_cast<int64_t>(bytes.size()), bytes_a_thread, [&](int64_t begin, int64_t end) {
    for_each_tile(begin, end, at, [&](int64_t done, const std::byte* tile, size_t count) {
      const std::byte* there = bytes.data() + done;
      if (std::memcmp(there, tile, count) == 0) return done < first;
      const int64_t changed = done + (std::mismatch(there, there + count, tile).first - there);
      for (int64_t known = first; changed < known && !first.compare_exchange_weak(known, changed);) {
      }
      return false;
    });
  });
  return first == std::numeric_limits<int64_t>::max() ? -1 : first.load();
}

bool Poison::untouched(const std::byte* bytes, int64_t at, int64_t size) const {
  return std::memcmp(bytes, tile_.data() + at % period, static_cast<size_t>(size)) == 0;
}

}  // namespace ak::judge
