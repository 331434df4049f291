// Content hashes for caches and identities. Not for guarding against a hostile author.
#pragma once

#include <string>
#include <string_view>

namespace ak {

/// XXH3-128 of `content` as 32 hex digits.
std::string content_hash(std::string_view content);

/// The first `digits` of content_hash().
std::string short_hash(std::string_view content, int digits = 8);

}  // namespace ak
