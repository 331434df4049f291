// XXH3, header-only.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/hash.h"

#include <fmt/format.h>

namespace ak {

std::string content_hash(std::string_view content) {
  const XXH128_hash_t hash = XXH3_128bits(content.data(), content.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string short_hash(std::string_view content, int digits) { return content_hash(content).substr(0, static_cast<size_t>(digits)); }

}  // namespace ak
