// Widths are counted in code points: the program prints no wide characters of its own.
#include "report/text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ak::report {
namespace {

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

/// Bytes of the escape sequence at `at`, 0 where there is none.
size_t escape_length(std::string_view text, size_t at) {
  if (text[at] != '\x1b' || at + 1 >= text.size() || text[at + 1] != '[') return 0;
  const size_t end = text.find_first_of("mKJABCDH", at + 2);
  return end == std::string_view::npos ? text.size() - at : end - at + 1;
}

/// Length of the well-formed UTF-8 character at `at` that XML allows, 0 where there is none.
size_t character_length(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return byte >= 0x20 || byte == '\n' || byte == '\t' || byte == '\r' ? 1 : 0;
  const size_t length = byte >= 0xF0 && byte < 0xF5 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC2 ? 2 : 0;
  if (length == 0 || byte >= 0xF5 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (starts_character(text[at + i])) return 0;
  }
  return length;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text, at);
    switch (length == 0 ? '\0' : text[at]) {
      case '\0': result += "\xEF\xBF\xBD"; break;
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += text.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return result;
}

std::string time_text(double us) {
  if (!(us > 0)) return "–";
  if (us < 1000) return fmt::format("{:.{}f} us", us, us < 100 ? 1 : 0);
  if (us < 1e6) return fmt::format("{:.2f} ms", us / 1e3);
  return fmt::format("{:.2f} s", us / 1e6);
}

std::string factor_text(double factor) { return factor > 0 ? fmt::format("{:.2f}x", factor) : "–"; }

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds < 0 ? 0 : seconds + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

size_t columns(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size();) {
    if (const size_t length = escape_length(text, at)) {
      at += length;
    } else {
      count += starts_character(text[at++]);
    }
  }
  return count;
}

std::string cut(std::string_view text, size_t width) {
  if (columns(text) <= width) return std::string(text);
  if (width == 0) return "";
  std::string result;
  size_t count = 0;
  bool coloured = false;
  for (size_t at = 0; at < text.size();) {
    if (const size_t length = escape_length(text, at)) {
      result += text.substr(at, length);
      coloured = true;
      at += length;
      continue;
    }
    if (starts_character(text[at]) && ++count >= width) break;
    result += text[at++];
  }
  return result + "…" + (coloured ? "\x1b[0m" : "");
}

std::string fit(std::string_view text, size_t width) {
  std::string result = cut(text, width);
  return result + std::string(width - columns(result), ' ');
}

std::string fit_right(std::string_view text, size_t width) {
  std::string result = cut(text, width);
  return std::string(width - columns(result), ' ') + result;
}

std::string Paint::wrap(std::string_view code, std::string_view text) const {
  return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string Paint::verdict(std::string_view verdict, std::string_view text) const {
  if (verdict == "kept") return good(text);
  return verdict == "slower" || verdict == "failed_environment" ? dim(text) : bad(text);
}

std::string strangers_text(const Json& evidence) {
  std::string names;
  for (const Json& process : evidence.value("other_processes", Json::array()))
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", process.value("name", "?"), process.value("pid", 0));
  return names.empty() ? names : "others use the GPU, so times were measured again, and are less sure: " + names;
}

std::string_view mark_of(std::string_view verdict) {
  if (verdict == "kept") return "✓";
  return verdict == "slower" || verdict == "failed_environment" ? "·" : "✗";
}

}  // namespace ak::report
