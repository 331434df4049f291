"""Integer expressions of dims (`D/2`, `cdiv(N, 8)`) as families and tasks write them."""

import ast
import functools
import operator

from autokernel.errors import user_error

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS = {
    "min": min,
    "max": max,
    "cdiv": lambda a, b: -(-a // b),
    "align": lambda a, b: -(-a // b) * b,
    "log2": lambda a: a.bit_length() - 1,
    "pow2ceil": lambda a: 1 << max(a - 1, 0).bit_length(),
}


def evaluate(text, names):
    """The value of `text`, an integer or an expression, where dims have the values `names`."""
    if isinstance(text, int):
        return text
    try:
        return _value(_parsed(text), names)
    except (KeyError, ValueError, SyntaxError, ZeroDivisionError) as error:
        raise user_error(
            f"The expression '{text}' has no value: {type(error).__name__} {error}; known names are {', '.join(names)}."
        ) from error


def names_in(text):
    """The names that an expression mentions, in order."""
    if isinstance(text, int):
        return []
    called = {id(node.func) for node in ast.walk(_parsed(text)) if isinstance(node, ast.Call)}
    return [node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name) and id(node) not in called]


@functools.lru_cache(maxsize=None)
def _parsed(text):
    return ast.parse(text.strip(), mode="eval").body


def _value(node, names):
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return _FUNCTIONS[node.func.id](*(_value(argument, names) for argument in node.args))
    raise ValueError(f"not understood: {ast.dump(node)}")
