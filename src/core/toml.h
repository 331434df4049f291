// TOML as JSON values, with the place of every value in the text, so that a program can edit one value and leave the rest.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/json.h"

namespace ak {

/// Where a value stands in the text: bytes from the start, and the line (from 1) for messages.
struct TomlSpan {
  size_t begin = 0, end = 0;
  int64_t line = 1;
};

/// Parse `text`. `origin` is the file's name for messages; `first_line` is the line of the file where `text` begins.
/// `spans`, if given, receives the place of each value by its path: "tune.ROWS.default", "launch[0].grid[1]".
/// errors: a syntax error, with file and line.
Json parse_toml(std::string_view text, std::string_view origin, std::map<std::string, TomlSpan>* spans = nullptr, int64_t first_line = 1);

/// A flat or one-level-nested JSON object as TOML text.
std::string format_toml(const Json& object);

}  // namespace ak
