// CRC-32C (Castagnoli) of a journal line.
#pragma once

#include <cstdint>
#include <string_view>

namespace ak {

uint32_t crc32c(std::string_view bytes);

}  // namespace ak
