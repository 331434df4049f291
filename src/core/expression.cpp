// Recursive descent to a tree, then evaluation with checked arithmetic. `&&`, `||` and `?:` evaluate only what they need, so a
// guard such as `VEC == 0 || N % VEC == 0` protects what follows it.
#include "core/expression.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <optional>
#include <vector>

#include "core/error.h"

namespace ak {

struct Expression::Node {
  enum class Kind { number, name, unary, binary, conditional, call } kind = Kind::number;
  int64_t number = 0;
  std::string text;  // name, operator or function
  std::vector<Node> children;
};

struct Expression::Parsed {
  std::string text, where;
  Node root;
  std::set<std::string, std::less<>> names;
};

namespace {

using Node = Expression::Node;
using Kind = Node::Kind;

struct Function {
  std::string_view name;
  size_t arguments;
};
constexpr std::array<Function, 6> functions = {{{"cdiv", 2}, {"min", 2}, {"max", 2}, {"align", 2}, {"log2", 1}, {"pow2ceil", 1}}};

// Binary operators from the loosest to the tightest.
constexpr std::array<std::array<std::string_view, 4>, 6> levels = {
    {{"||", "", "", ""}, {"&&", "", "", ""}, {"==", "!=", "", ""}, {"<=", ">=", "<", ">"}, {"+", "-", "", ""}, {"*", "/", "%", ""}}};
constexpr int maximum_depth = 200;  // of nesting; a kernel file comes from anybody

class Parser {
 public:
  Parser(std::string_view text, std::string_view where, std::set<std::string, std::less<>>& names)
      : text_(text), where_(where), names_(names) {}

  Node parse() {
    Node node = conditional();
    skip_space();
    if (position_ != text_.size()) fail("unexpected '" + std::string(text_.substr(position_, 10)) + "'");
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(std::string(where_) + ": in expression '" + std::string(text_) + "', column " + std::to_string(position_ + 1) + ": " +
                what);
  }
  void skip_space() {
    while (position_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[position_]))) ++position_;
  }
  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(position_, token.size()) != token) return false;
    position_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected '" + std::string(token) + "'");
  }

  Node conditional() {
    if (++depth_ > maximum_depth) fail("nested too deeply");
    Node condition = binary(0);
    if (accept("?")) {
      Node chosen = conditional();
      expect(":");
      Node other = conditional();
      condition = Node{Kind::conditional, 0, "?:", {std::move(condition), std::move(chosen), std::move(other)}};
    }
    --depth_;
    return condition;
  }

  Node binary(size_t level) {
    if (level == levels.size()) return unary();
    Node left = binary(level + 1);
    for (;;) {
      const auto& operators = levels[level];
      const auto found =
          std::find_if(operators.begin(), operators.end(), [&](std::string_view token) { return !token.empty() && accept(token); });
      if (found == operators.end()) return left;
      left = Node{Kind::binary, 0, std::string(*found), {std::move(left), binary(level + 1)}};
    }
  }

  Node unary() {
    if (++depth_ > maximum_depth) fail("nested too deeply");
    Node node = [&] {
      if (accept("-")) return Node{Kind::unary, 0, "-", {unary()}};
      skip_space();
      if (text_.substr(position_, 2) != "!=" && accept("!")) return Node{Kind::unary, 0, "!", {unary()}};
      return primary();
    }();
    --depth_;
    return node;
  }

  Node primary() {
    if (accept("(")) {
      Node inner = conditional();
      expect(")");
      return inner;
    }
    skip_space();
    if (position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_]))) return number();
    return name_or_call();
  }

  Node number() {
    int64_t value = 0;
    while (position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_]))) {
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, int64_t{text_[position_] - '0'}, &value)) {
        fail("number too large");
      }
      ++position_;
    }
    return Node{Kind::number, value, {}, {}};
  }

  std::string identifier() {
    const size_t begin = position_;
    while (position_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[position_])) || text_[position_] == '_')) ++position_;
    if (position_ == begin) fail("expected a number, a name or '('");
    return std::string(text_.substr(begin, position_ - begin));
  }

  Node name_or_call() {
    std::string name = identifier();
    if (name == "sizeof") return sizeof_name();
    const auto function = std::find_if(functions.begin(), functions.end(), [&](const Function& f) { return f.name == name; });
    if (function != functions.end() && accept("(")) return call(*function);
    if (accept(".")) return stride_name(std::move(name));
    return named(std::move(name));
  }

  Node sizeof_name() {
    expect("(");
    skip_space();
    std::string name = "sizeof(" + identifier() + ")";
    expect(")");
    return named(std::move(name));
  }

  Node stride_name(std::string tensor) {
    if (identifier() != "stride") fail("expected 'stride' after '.'");
    expect("(");
    skip_space();
    std::string name = std::move(tensor) + ".stride(" + identifier() + ")";
    expect(")");
    return named(std::move(name));
  }

  Node named(std::string name) {
    names_.insert(name);
    return Node{Kind::name, 0, std::move(name), {}};
  }

  Node call(const Function& function) {
    Node node{Kind::call, 0, std::string(function.name), {}};
    do {
      node.children.push_back(conditional());
    } while (accept(","));
    expect(")");
    if (node.children.size() != function.arguments) fail(node.text + " takes " + std::to_string(function.arguments) + " arguments");
    return node;
  }

  std::string_view text_, where_;
  std::set<std::string, std::less<>>& names_;
  size_t position_ = 0;
  int depth_ = 0;
};

class Evaluator {
 public:
  Evaluator(const Expression::Parsed& parsed, const Bindings& bindings) : parsed_(parsed), bindings_(bindings) {}

  int64_t value(const Node& node) const {
    switch (node.kind) {
      case Kind::number: return node.number;
      case Kind::name: return lookup(node.text);
      case Kind::unary: return node.text == "!" ? value(node.children[0]) == 0 : subtract(0, value(node.children[0]));
      case Kind::binary: return binary(node);
      case Kind::conditional: return value(node.children[value(node.children[0]) != 0 ? 1 : 2]);
      case Kind::call: return call(node);
    }
    fail("is malformed");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(parsed_.where + ": expression '" + parsed_.text + "' " + what); }

  int64_t lookup(const std::string& name) const {
    const auto found = bindings_.find(name);
    if (found == bindings_.end()) fail("uses the unknown name '" + name + "'");
    return found->second;
  }
  int64_t add(int64_t a, int64_t b) const {
    int64_t result = 0;
    if (__builtin_add_overflow(a, b, &result)) fail("overflows");
    return result;
  }
  int64_t subtract(int64_t a, int64_t b) const {
    int64_t result = 0;
    if (__builtin_sub_overflow(a, b, &result)) fail("overflows");
    return result;
  }
  int64_t multiply(int64_t a, int64_t b) const {
    int64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) fail("overflows");
    return result;
  }
  /// Quotient, towards zero, and remainder.
  std::lldiv_t divide(int64_t a, int64_t b) const {
    if (b == 0) fail("divides by zero");
    if (b == -1 && a == std::numeric_limits<int64_t>::min()) fail("overflows");
    return std::lldiv(a, b);
  }
  int64_t ceiling_divide(int64_t a, int64_t b) const {
    const std::lldiv_t whole = divide(a, b);
    return whole.quot + (whole.rem != 0 && (a < 0) == (b < 0));
  }

  int64_t binary(const Node& node) const {
    const std::string& op = node.text;
    const int64_t a = value(node.children[0]);
    if (op == "&&") return a != 0 && value(node.children[1]) != 0;
    if (op == "||") return a != 0 || value(node.children[1]) != 0;
    const int64_t b = value(node.children[1]);
    if (op == "+") return add(a, b);
    if (op == "-") return subtract(a, b);
    if (op == "*") return multiply(a, b);
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    if (op == "<") return a < b;
    if (op == "<=") return a <= b;
    if (op == ">") return a > b;
    if (op == ">=") return a >= b;
    return op == "/" ? divide(a, b).quot : divide(a, b).rem;
  }

  int64_t call(const Node& node) const {
    const int64_t a = value(node.children[0]);
    if (node.text == "log2") return floor_log2(a);
    if (node.text == "pow2ceil") return power_of_two_ceiling(a);
    const int64_t b = value(node.children[1]);
    if (node.text == "cdiv") return ceiling_divide(a, b);
    if (node.text == "min") return std::min(a, b);
    if (node.text == "max") return std::max(a, b);
    return multiply(ceiling_divide(a, b), b);
  }

  int64_t floor_log2(int64_t a) const {
    if (a <= 0) fail("takes log2 of a number that is not positive");
    return 63 - __builtin_clzll(static_cast<unsigned long long>(a));
  }
  int64_t power_of_two_ceiling(int64_t a) const {
    if (a > (int64_t{1} << 62)) fail("overflows");
    int64_t power = 1;
    while (power < a) power *= 2;
    return power;
  }

  const Expression::Parsed& parsed_;
  const Bindings& bindings_;
};

}  // namespace

Expression Expression::parse(std::string_view text, std::string_view where) {
  auto parsed = std::make_shared<Parsed>();
  parsed->text = text;
  parsed->where = where;
  parsed->root = Parser(parsed->text, parsed->where, parsed->names).parse();
  Expression expression;
  expression.parsed_ = std::move(parsed);
  return expression;
}

Expression Expression::constant(int64_t value) {
  auto parsed = std::make_shared<Parsed>();
  parsed->text = std::to_string(value);
  parsed->root.number = value;
  Expression expression;
  expression.parsed_ = std::move(parsed);
  return expression;
}

int64_t Expression::evaluate(const Bindings& bindings) const { return Evaluator(*parsed_, bindings).value(parsed_->root); }

const std::set<std::string, std::less<>>& Expression::names() const { return parsed_->names; }
const std::string& Expression::text() const { return parsed_->text; }

}  // namespace ak
