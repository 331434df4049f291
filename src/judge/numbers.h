// Numbers of any floating dtype as they lie in memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/dtype.h"
#include "core/error.h"

namespace ak::judge {

template <class Value>
Value read_as(const std::byte* at) {
  Value value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// The exponent of float16 by a multiplication, which denormal numbers need, too.
inline double half_to_double(uint16_t bits) {
  constexpr uint32_t infinite = 0x0f800000, infinite_float = 0x7f800000;
  const uint32_t magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
  const float value = magnitude < infinite ? std::bit_cast<float>(magnitude) * 0x1p112f : std::bit_cast<float>(magnitude | infinite_float);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

inline double read_floating(Dtype dtype, const std::byte* at) {
  switch (dtype) {
    case Dtype::float64: return read_as<double>(at);
    case Dtype::float32: return read_as<float>(at);
    case Dtype::float16: return half_to_double(read_as<uint16_t>(at));
    case Dtype::bfloat16: return std::bit_cast<float>(static_cast<uint32_t>(read_as<uint16_t>(at)) << 16);
    default: AK_CHECK(false, "the dtype is floating");
  }
}

/// A view that gives them as doubles.
class Numbers {
 public:
  Numbers() = default;
  Numbers(std::span<const double> values) : bytes_(std::as_bytes(values)) {}
  Numbers(Dtype dtype, std::span<const std::byte> bytes) : dtype_(dtype), bytes_(bytes) {}

  double operator[](size_t i) const { return read_floating(dtype_, bytes_.data() + i * static_cast<size_t>(size_bytes(dtype_))); }
  size_t size() const { return bytes_.size() / static_cast<size_t>(size_bytes(dtype_)); }

 private:
  Dtype dtype_ = Dtype::float64;
  std::span<const std::byte> bytes_;
};

}  // namespace ak::judge
