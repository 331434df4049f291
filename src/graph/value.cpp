// Arguments from JSON.
#include "graph/value.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::graph {
namespace {

using Kind = Value::Kind;

[[noreturn]] void fail(const std::string& where, const std::string& what) { throw Error(where + ": " + what); }

double parse_special(const std::string& text, const std::string& where) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  fail(where, "a float is inf, -inf or nan, not '" + text + "'");
}

Value parse_expression(const std::string& text, const std::string& where) {
  Value value;
  if (text.starts_with("*")) {
    value.kind = Kind::leading;
    value.text = text.substr(1);
  } else {
    value.kind = Kind::expression;
    value.expression = Expression::parse(text, where);
  }
  return value;
}

Value parse_object(const Json& json, const Resolver& resolve, const std::string& where) {
  Value value;
  if (json.contains("symbol")) {
    value.kind = Kind::symbol;
    return value;
  }
  if (json.size() != 1 || !json.begin().value().is_string()) fail(where, "not a value: " + json.dump().substr(0, 200));
  const std::string key = json.begin().key();
  const std::string text = json.begin().value();
  if (key == "expression") return parse_expression(text, where);
  if (key == "node" || key == "input") {
    value.kind = key == "node" ? Kind::node : Kind::input;
    value.index = resolve(value.kind, text);
  } else if (key == "float") {
    value.kind = Kind::real;
    value.real = parse_special(text, where);
  } else if (key == "scalar") {
    value.kind = Kind::scalar;
  } else if (key == "dtype") {
    value.kind = Kind::dtype;
  } else if (key == "other") {
    value.kind = Kind::other;
  } else {
    fail(where, "not a value: " + json.dump().substr(0, 200));
  }
  value.text = text;
  return value;
}

}  // namespace

Value parse_value(const Json& json, const Resolver& resolve, const std::string& where) {
  Value value;
  switch (json.type()) {
    case Json::value_t::null: break;
    case Json::value_t::boolean:
      value.kind = Kind::boolean;
      value.boolean = json.get<bool>();
      break;
    case Json::value_t::number_integer:
      value.kind = Kind::integer;
      value.integer = json.get<int64_t>();
      break;
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      value.kind = Kind::real;
      value.real = json.get<double>();
      if (json.is_number_unsigned() && json.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        value.kind = Kind::integer;
        value.integer = json.get<int64_t>();
      }
      break;
    case Json::value_t::string:
      value.kind = Kind::text;
      value.text = json.get<std::string>();
      break;
    case Json::value_t::array:
      value.kind = Kind::list;
      for (const Json& item : json) value.items.push_back(parse_value(item, resolve, where));
      break;
    case Json::value_t::object: return parse_object(json, resolve, where);
    default: fail(where, "not a value");
  }
  return value;
}

Arguments parse_arguments(const Json& json, const Resolver& resolve, const std::string& where) {
  if (!json.is_object()) fail(where, "args must be an object");
  Arguments arguments;
  for (const auto& [name, value] : json.items()) arguments.emplace_back(name, parse_value(value, resolve, where + ", " + name));
  return arguments;
}

void for_each_tensor(const Value& value, const std::function<void(const Value&)>& visit) {
  if (value.kind == Kind::node || value.kind == Kind::input) visit(value);
  for (const Value& item : value.items) for_each_tensor(item, visit);
}

}  // namespace ak::graph
