// A TOML file that is read key by key: every message names the file, the line and the key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "core/toml.h"

namespace ak::graph {

/// Base of what reads one kind of file. Paths are those of parse_toml: "tensor[0].shape".
class TomlReader {
 protected:
  /// `origin`: the file's name for messages. errors: a syntax error.
  TomlReader(std::string_view source, const std::string& origin) : origin_(origin), root_(parse_toml(source, origin, &spans_)) {}

  std::string where(std::string path) const {
    for (;;) {  // the value's own line, else that of what holds it
      const auto found = spans_.find(path);
      if (found != spans_.end()) return origin_ + ":" + std::to_string(found->second.line);
      const size_t cut = path.find_last_of(".[");
      if (cut == std::string::npos) return origin_;
      path.resize(cut);
    }
  }
  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw Error(where(path) + ": " + (path.empty() ? "" : path + ": ") + what);
  }
  static std::string join(const std::string& path, const std::string& key) { return path.empty() ? key : path + "." + key; }
  static std::string at(const std::string& path, size_t index) { return path + "[" + std::to_string(index) + "]"; }

  void check_keys(const Json& object, const std::string& path, std::initializer_list<std::string_view> known) const {
    if (!object.is_object()) fail(path, "must be a table");
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) fail(join(path, key), "unknown key");
    }
  }
  const Json& required(const Json& object, const std::string& path, const std::string& key) const {
    if (!object.contains(key)) fail(path, "lacks '" + key + "'");
    return object.at(key);
  }
  std::string text(const Json& object, const std::string& path, const std::string& key) const {
    const Json& value = required(object, path, key);
    if (!value.is_string()) fail(join(path, key), "must be a string");
    return value.get<std::string>();
  }
  int64_t integer(const Json& value, const std::string& path) const {
    if (!value.is_number_integer()) fail(path, "must be an integer");
    return value.get<int64_t>();
  }
  const Json& array(const Json& value, const std::string& path) const {
    if (!value.is_array()) fail(path, "must be an array");
    return value;
  }
  std::vector<std::string> texts(const Json& value, const std::string& path) const {
    std::vector<std::string> result;
    for (const Json& entry : array(value, path)) {
      if (!entry.is_string()) fail(at(path, result.size()), "must be a string");
      result.push_back(entry.get<std::string>());
    }
    return result;
  }
  Dtype dtype(const std::string& name, const std::string& path) const {
    try {
      return parse_dtype(name);
    } catch (const Error& error) {
      fail(path, error.what());
    }
  }

  const Json& root() const { return root_; }

 private:
  std::string origin_;
  std::map<std::string, TomlSpan> spans_;
  Json root_;
};

}  // namespace ak::graph
