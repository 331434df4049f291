// toml++ lives here alone. Its positions are line and column in characters; they become byte offsets of the text.
#define TOML_ASSERT(x) static_cast<void>(0)
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "core/toml.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"

namespace ak {
namespace {

class Converter {
 public:
  Converter(std::string_view text, std::string_view origin, std::map<std::string, TomlSpan>* spans, int64_t first_line)
      : text_(text), origin_(origin), spans_(spans), first_line_(first_line) {
    line_begins_.push_back(0);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') line_begins_.push_back(i + 1);
    }
  }

  Json convert(const toml::node& node, const std::string& path) {
    note_span(node, path);
    if (const auto* table = node.as_table()) return object(*table, path);
    if (const auto* array = node.as_array()) return list(*array, path);
    if (const auto* value = node.as_string()) return value->get();
    if (const auto* value = node.as_integer()) return value->get();
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_boolean()) return value->get();
    throw Error(fmt::format("{}:{}: dates and times are not supported", origin_, first_line_ + node.source().begin.line - 1));
  }

 private:
  Json object(const toml::table& table, const std::string& path) {
    Json result = Json::object();
    for (const auto& [key, value] : table) {
      const std::string name(key);
      result[name] = convert(value, path.empty() ? name : path + "." + name);
    }
    return result;
  }
  Json list(const toml::array& array, const std::string& path) {
    Json result = Json::array();
    for (size_t i = 0; i < array.size(); ++i) result.push_back(convert(*array.get(i), path + "[" + std::to_string(i) + "]"));
    return result;
  }

  void note_span(const toml::node& node, const std::string& path) {
    if (spans_ == nullptr) return;
    const auto& source = node.source();
    (*spans_)[path] = {offset(source.begin), offset(source.end), first_line_ + static_cast<int64_t>(source.begin.line) - 1};
  }

  size_t offset(const toml::source_position& position) const {
    if (position.line == 0 || position.line > line_begins_.size()) return text_.size();
    size_t at = line_begins_[position.line - 1];
    for (auto column = position.column; column > 1 && at < text_.size(); --column) {
      ++at;
      while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xc0u) == 0x80u) ++at;  // a character is one column
    }
    return at;
  }

  std::string_view text_, origin_;
  std::map<std::string, TomlSpan>* spans_;
  int64_t first_line_;
  std::vector<size_t> line_begins_;
};

std::string toml_value(const Json& value) {
  if (value.is_array()) {
    std::string items;
    for (const Json& item : value) items += (items.empty() ? "" : ", ") + toml_value(item);
    return "[" + items + "]";
  }
  return value.dump();
}

}  // namespace

Json parse_toml(std::string_view text, std::string_view origin, std::map<std::string, TomlSpan>* spans, int64_t first_line) {
  try {
    const toml::table table = toml::parse(text, origin);
    return Converter(text, origin, spans, first_line).convert(table, "");
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}: {}", origin, first_line + error.source().begin.line - 1, error.description()));
  }
}

std::string format_toml(const Json& object) {
  std::string text, tables;
  for (const auto& [key, value] : object.items()) {
    if (value.is_null()) continue;
    if (value.is_object()) {
      tables += fmt::format("\n[{}]\n{}", key, format_toml(value));
    } else {
      text += fmt::format("{} = {}\n", key, toml_value(value));
    }
  }
  return text + tables;
}

}  // namespace ak
