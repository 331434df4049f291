"""What a kernel.py may say: device functions and nothing that runs on the host. Read as text, before any of it is executed."""

import ast
import re
import types

_MODULES = ("triton", "triton.language")  # and what lies below the second
_LANGUAGE = ("triton.language", "triton._utils", "triton.runtime.jit", "triton._C.libtriton")
_HOST_HELPERS = {"jit", "cdiv", "next_power_of_2", "language", "constexpr_function"}  # of `triton`, that device code may name
_REFLECTION = {"eval", "exec", "compile", "open", "getattr", "setattr", "delattr", "globals", "locals", "vars", "input", "breakpoint"}
_HOST_MODULES = {"builtins", "os", "sys", "inspect", "importlib", "subprocess", "types", "runtime", "compiler", "backends", "knobs"}
_TUNERS = {"autotune", "heuristics", "Config", "autotuner"}


class SourceError(Exception):
    """A fault of the kernel file, with its line."""

    def __init__(self, line, text):
        super().__init__(f"kernel.py:{line}: {text}")


class KernelSource:
    """A kernel file whose host side does nothing.

    errors: SourceError for what does not parse, an import outside triton, a statement with an effect, an autotuner, reflection.
    """

    def __init__(self, text):
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            raise SourceError(error.lineno or 1, f"Python does not parse it: {error.msg}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise SourceError(1, f"Python does not parse it: {error}") from None
        self.text = text
        self.functions = {}  # name: ast.FunctionDef
        for statement in self.tree.body:
            self._check_statement(statement)
        for node in ast.walk(self.tree):
            _check_names(node)

    @property
    def block(self):
        """The TOML block on top: the module's docstring."""
        return ast.get_docstring(self.tree, clean=False) or ""

    def check_reach(self, namespace):
        """The file's names, of the module that it became, lead to the language alone: Triton's modules import others, which hold all of Python.

        errors: SourceError.
        """
        for statement in self.tree.body:
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    _require_language(namespace[alias.asname or alias.name], statement.lineno, f"{statement.module}.{alias.name}")
        for name, function in self.functions.items():
            arguments, constants = self.parameters(name)
            known = {key: value for key, value in namespace.items() if key not in {*arguments, *constants}}
            for node in ast.walk(function):
                if isinstance(node, (ast.Attribute, ast.Name)):
                    _resolve(node, known)

    def line_of(self, pattern):
        """The first line that the pattern matches, else 1."""
        found = re.search(pattern, self.text, re.MULTILINE)
        return self.text.count("\n", 0, found.start()) + 1 if found else 1

    def parameters(self, name):
        """(names of the arguments, names of the constexprs) of a function, each in order."""
        arguments = self.functions[name].args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        constant = [each.arg for each in every if _is_constexpr(each.annotation)]
        return [each.arg for each in every if each.arg not in constant], constant

    def _check_statement(self, statement):
        if isinstance(statement, ast.FunctionDef):
            return self._check_function(statement)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            return _check_import(statement)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return None
        if isinstance(statement, ast.Assign) and _is_constant(statement.value):
            return None
        if isinstance(statement, ast.AnnAssign) and _is_constexpr(statement.annotation) and _is_literal(statement.value):
            return None
        raise SourceError(
            statement.lineno,
            "a kernel file has no host code: beside imports of triton, constants and @triton.jit functions nothing may stand at its top level",
        )

    def _check_function(self, function):
        for decorator in function.decorator_list:
            name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name.split(".")[-1] in _TUNERS:
                raise SourceError(decorator.lineno, f"@{name} has no place here: what can be tuned is in [tune], and the search tunes it")
            if name not in ("triton.jit", "jit", "triton.constexpr_function") or isinstance(decorator, ast.Call) and not _is_plain_jit(decorator):
                raise SourceError(decorator.lineno, f"a function of a kernel file is decorated with @triton.jit alone, not with @{ast.unparse(decorator)}")
        if not function.decorator_list:
            raise SourceError(function.lineno, f"{function.name} is no device function: decorate it with @triton.jit")
        if function.args.vararg or function.args.kwarg:
            raise SourceError(function.lineno, f"{function.name} must name its parameters")
        for default in [*function.args.defaults, *filter(None, function.args.kw_defaults)]:
            if not _is_constant(default):
                raise SourceError(default.lineno, "the default of a parameter must be a constant")
        self.functions[function.name] = function


def _check_import(statement):
    modules = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else [alias.name for alias in statement.names]
    for module in modules:
        if getattr(statement, "level", 0) or not (module in _MODULES or module.startswith("triton.language.")):
            raise SourceError(statement.lineno, f"imports {module or 'a neighbour'}: a kernel file may import triton and triton.language alone")
    if isinstance(statement, ast.ImportFrom) and statement.module == "triton":
        for alias in statement.names:
            if alias.name not in _HOST_HELPERS:
                raise SourceError(statement.lineno, f"imports triton.{alias.name}, which is host code")
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom) and (alias.name == "*" or alias.name.startswith("_")):
            raise SourceError(statement.lineno, f"imports {alias.name} of {statement.module}: name what is used, of the documented language")


def _check_names(node):
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("_"):
            raise SourceError(node.lineno, f".{node.attr} is private: a kernel file stays with the documented language")
        if node.attr in _HOST_MODULES:
            raise SourceError(node.lineno, f".{node.attr} is host code")
        if isinstance(node.value, ast.Name) and node.value.id == "triton" and node.attr not in _HOST_HELPERS:
            hint = ": what can be tuned is in [tune], and the search tunes it" if node.attr in _TUNERS else ""
            raise SourceError(node.lineno, f"triton.{node.attr} is host code{hint}")
    if isinstance(node, ast.Name) and (node.id in _REFLECTION or node.id.startswith("__")):
        raise SourceError(node.lineno, f"{node.id} has no place in device code")


def _resolve(node, namespace):
    """What a chain of names stands for, as far as it is of modules; None beyond."""
    if isinstance(node, ast.Name):
        found = namespace.get(node.id)
    elif isinstance(node, ast.Attribute):
        holder = _resolve(node.value, namespace)
        if type(holder).__name__ == "JITFunction":
            raise SourceError(node.lineno, f".{node.attr} of a device function is host code")
        found = getattr(holder, node.attr, None) if isinstance(holder, types.ModuleType) else None
    else:
        return None
    _require_language(found, node.lineno, ast.unparse(node))
    return found


def _require_language(value, line, name):
    """errors: SourceError for a module, a function or a class of another package."""
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) if callable(value) else None
    if isinstance(home, str) and home not in ("triton", "kernel") and not home.startswith(_LANGUAGE):
        raise SourceError(line, f"{name} is of {home}, which is host code")


def _is_plain_jit(call):
    return not call.args and all(keyword.arg == "noinline" and _is_literal(keyword.value) for keyword in call.keywords)


def _is_constexpr(annotation):
    return annotation is not None and ast.unparse(annotation).strip("'\"").split(".")[-1] == "constexpr"


def _is_literal(node):
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return False
    return True


def _is_constant(node):
    """A literal, or `tl.constexpr(literal)`."""
    if isinstance(node, ast.Call) and _is_constexpr(node.func):
        return len(node.args) == 1 and not node.keywords and _is_literal(node.args[0])
    return _is_literal(node)
