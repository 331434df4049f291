// A secret pattern for memory that nobody may read or write: NaN in every floating type, or a number that is far from all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ak::judge {

/// The byte at an offset of the arena depends on the offset and the seed alone.
class Poison {
 public:
  /// A NaN is lost in some comparisons; a number of 1e4 or more either way is not. An output's NaN are no canary's, whatever its sign: a
  /// kernel that reads what it should not may well write what it read.
  enum class Kind { nan, largest, smallest, output };

  explicit Poison(uint64_t seed, Kind kind = Kind::output);

  /// `at`: offset in the arena of the first byte of `bytes`.
  void fill(std::span<std::byte> bytes, int64_t at) const;
  /// The index of the first byte that is not as filled, or -1.
  int64_t first_changed(std::span<const std::byte> bytes, int64_t at) const;
  /// Whether `size` bytes (at most 8) are as filled.
  bool untouched(const std::byte* bytes, int64_t at, int64_t size) const;

 private:
  static constexpr int64_t period = 64 << 10;

  template <class Visit>
  void for_each_tile(int64_t begin, int64_t end, int64_t at, const Visit& visit) const;

  std::vector<std::byte> tile_;
};

}  // namespace ak::judge
