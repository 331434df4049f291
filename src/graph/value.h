// Arguments of operators, in graphs and in patterns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/expression.h"
#include "core/json.h"

namespace ak::graph {

/// One argument (docs/formats/graph.md).
struct Value {
  enum class Kind {
    null,
    boolean,
    integer,
    real,
    text,
    dtype,
    other,
    symbol,
    list,
    node,
    input,
    expression,
    leading,
    scalar
  } kind = Kind::null;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;          // of text and dtype; the name of node, input, scalar and leading (`{"expression": "*M"}` names M)
  std::vector<Value> items;  // of a list
  int64_t index = -1;        // of node and input: position in its graph or pattern
  Expression expression;

  bool is_number() const { return kind == Kind::integer || kind == Kind::real; }
  double number() const { return kind == Kind::integer ? static_cast<double>(integer) : real; }
};

/// Arguments by name, in the order of the names.
using Arguments = std::vector<std::pair<std::string, Value>>;

/// Finds the position of a node or input by its name.
/// errors: an unknown name.
using Resolver = std::function<int64_t(Value::Kind kind, const std::string& name)>;

/// errors: malformed JSON, named by `where`.
Value parse_value(const Json& json, const Resolver& resolve, const std::string& where);
Arguments parse_arguments(const Json& json, const Resolver& resolve, const std::string& where);

/// Call `visit` with each node and input in `value`, however deep.
void for_each_tensor(const Value& value, const std::function<void(const Value&)>& visit);

}  // namespace ak::graph
