"""The plan of a kernel.py in Python: evaluates its expressions and makes the arguments of its launches, for tests without the engine."""

import importlib.util
import math
import pathlib
import re
import tomllib

import torch

from autokernel.triton_backend.source import KernelSource

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
FACTS = {"sm_count": 132, "max_threads": 1024, "shared_per_block": 232448, "l2_bytes": 60 << 20, "compute_capability": 90}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16, "int64": torch.int64, "bool": torch.bool}
RESERVED = ("NUM_WARPS", "NUM_STAGES", "NUM_CTAS", "MAXNREG")

_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*(?:\.stride\(\d+\))?|==|!=|<=|>=|&&|\|\||[-+*/%<>!?:(),])")
_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))
_FUNCTIONS = {
    "min": min,
    "max": max,
    "cdiv": lambda a, b: -(-a // b),
    "align": lambda a, b: -(-a // b) * b,
    "log2": lambda a: a.bit_length() - 1,
    "pow2ceil": lambda a: 1 << max(a - 1, 0).bit_length(),
}


def _truncated(a, b):
    return a // b if (a < 0) == (b < 0) or a % b == 0 else a // b + 1


_OPERATORS = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: _truncated(a, b) if b else 0,
    "%": lambda a, b: a - _truncated(a, b) * b if b else 0,
}


def evaluate(text, names):
    """The value of an expression of docs/formats/kernel-file.md."""
    if isinstance(text, int):
        return text
    text = re.sub(r"sizeof\((\w+)\)", lambda match: str(names[f"sizeof {match.group(1)}"]), text)
    tokens = _TOKEN.findall(text)
    assert "".join(tokens) == "".join(text.split()), text
    value, rest = _ternary(tokens, names)
    assert not rest, text
    return value


def _ternary(tokens, names):
    condition, tokens = _binary(tokens, names, 0)
    if not tokens or tokens[0] != "?":
        return condition, tokens
    first, tokens = _ternary(tokens[1:], names)
    second, tokens = _ternary(tokens[1:], names)
    return (first if condition else second), tokens


def _binary(tokens, names, level):
    if level == len(_LEVELS):
        return _unary(tokens, names)
    left, tokens = _binary(tokens, names, level + 1)
    while tokens and tokens[0] in _LEVELS[level]:
        operator = tokens[0]
        right, tokens = _binary(tokens[1:], names, level + 1)
        left = _OPERATORS[operator](left, right)
    return left, tokens


def _unary(tokens, names):
    head, tokens = tokens[0], tokens[1:]
    if head in "-!":
        value, tokens = _unary(tokens, names)
        return (-value if head == "-" else int(not value)), tokens
    if head == "(":
        value, tokens = _ternary(tokens, names)
        return value, tokens[1:]
    if head.isdigit():
        return int(head), tokens
    if tokens and tokens[0] == "(" and head in _FUNCTIONS:
        arguments = []
        while tokens[0] in "(,":
            value, tokens = _ternary(tokens[1:], names)
            arguments.append(value)
        return _FUNCTIONS[head](*arguments), tokens[1:]
    return names[head], tokens


class Kernel:
    """A kernel.py with its family."""

    def __init__(self, family):
        self.path = KERNELS / family / "kernel.py"
        self.source = KernelSource(self.path.read_text())
        self.block = tomllib.loads(self.source.block.split("\n", 1)[1])
        self.family = tomllib.loads((KERNELS / family / "family.toml").read_text())
        self.tunables = {name: value for name, value in self.block["tune"].items() if name != "require"}
        self.reference = _module(KERNELS / family / "reference.py").reference

    def defaults(self):
        return {name: value["default"] for name, value in self.tunables.items()}

    def allows(self, names):
        return all(evaluate(requirement, names) for requirement in self.block["tune"].get("require", []))

    def names(self, dims, point, options, dtype, strides, aligned=True):
        sizes = {f"sizeof {name}": each.itemsize for name, each in DTYPES.items()}
        names = {**FACTS, **sizes, "sizeof T": DTYPES[dtype].itemsize, "aligned": int(aligned), **dims, **self.family.get("options", {}), **options}
        names |= {name: value for name, value in self.family.get("scalars", {}).items() if isinstance(value, int)}
        for tensor in self.family["tensor"]:
            for axis, _ in enumerate(tensor["shape"]):
                names[f"{tensor['name']}.stride({axis})"] = strides.get(tensor["name"], [0] * 8)[axis]
        return {**names, **point}

    def launches(self, names):
        """The concrete launches of a plan: kernel, grid, args as names or numbers, constexprs."""
        plans = [*self.block.get("variant", []), self.block]
        plan = next(plan for plan in plans if "when" not in plan or evaluate(plan["when"], names))
        chosen = [launch for key in ("prepare", "launch") for launch in plan.get(key, [])]
        return [self._launch(launch, names) for launch in chosen if "when" not in launch or evaluate(launch["when"], names)]

    def _launch(self, launch, names):
        own = {name: evaluate(text, names) for name, text in launch.get("constexprs", {}).items()}
        options = {name: names[name] for name in self.family.get("options", {})}
        constants = {**{name: names[name] for name in self.tunables}, **options, **own}
        inner = {**names, **own}
        return {"kernel": launch["kernel"], "grid": [evaluate(text, inner) for text in launch["grid"]], "args": launch["args"], "constexprs": constants, "names": inner}

    def maps(self, names):
        """{name: {"tensor", "box"}} of the tensor maps that are views of whole tensors."""
        return {name: {"tensor": each["tensor"], "box": [evaluate(text, names) for text in each["box"]]} for name, each in self.block.get("tensormap", {}).items()}

    def scratch(self, names):
        """{name: (dtype name, elements, zeroed)}"""
        made = {}
        for name, each in self.block.get("scratch", {}).items():
            made[name] = (each["dtype"], math.prod(evaluate(text, names) for text in each["shape"]), each.get("zeroed", False))
        return made


def _module(path):
    spec = importlib.util.spec_from_file_location(f"of_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interpreted(kernel, tensors, dims, options, dtype, point=None, scalars=None):
    """Run the kernel on CPU tensors by Triton's interpreter (TRITON_INTERPRET=1 when triton was first imported). Absent tensors are None."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    module = _module(kernel.path)
    point = {**kernel.defaults(), **(point or {})}
    strides = {name: tensor.stride() for name, tensor in tensors.items() if tensor is not None}
    names = kernel.names(dims, point, options, dtype, strides)
    scalars = {**kernel.family.get("scalars", {}), **(scalars or {})}
    buffers = {}
    for name, (kind, count, zeroed) in kernel.scratch(names).items():
        like = DTYPES[dtype if kind == "T" else kind]
        buffers[name] = torch.zeros(count, dtype=like) if zeroed else torch.full((count,), float("nan"), dtype=like)
    for launch in kernel.launches(names):
        if math.prod(launch["grid"]) == 0:
            continue
        arguments = []
        for text in launch["args"]:
            if text in kernel.block.get("tensormap", {}):
                described = kernel.maps(launch["names"])[text]
                arguments.append(TensorDescriptor.from_tensor(tensors[described["tensor"]], described["box"]))
            elif text in tensors or text in buffers:
                arguments.append(tensors[text] if text in tensors else buffers[text])
            elif isinstance(scalars.get(text), float):
                arguments.append(scalars[text])
            else:
                arguments.append(evaluate(text, {**launch["names"], **{k: v for k, v in scalars.items() if isinstance(v, int)}}))
        wanted = kernel.source.parameters(launch["kernel"])[1]
        getattr(module, launch["kernel"])[tuple(launch["grid"])](*arguments, **{name: launch["constexprs"][name] for name in wanted})


def specification(kernel, dims, options, dtype, strides, point, architecture, aligned=True):
    """What the engine would ask the compiler for (docs/formats/triton.md)."""
    names = kernel.names(dims, point, options, dtype, strides, aligned)
    types = {t["name"]: t.get("dtype") or ("int64" if t["role"] == "index" else "T") for t in kernel.family["tensor"]}
    absent = {t["name"] for t in kernel.family["tensor"] if "optional" in t and not evaluate(t["optional"], names)}
    scratch = kernel.scratch(names)
    launches = []
    for launch in kernel.launches(names):
        arguments = []
        for text in launch["args"]:
            kind = scratch[text][0] if text in scratch else types.get(text)
            if text in kernel.block.get("tensormap", {}):
                described = kernel.maps(launch["names"])[text]
                arguments.append({"type": f"tensordesc<{_TRITON[dtype if types[described['tensor']] == 'T' else types[described['tensor']]]}{described['box']}>"})
            elif text in absent:
                arguments.append({"type": "constexpr", "value": None})
            elif kind:
                arguments.append({"type": "*" + _TRITON[dtype if kind == "T" else kind], "divisible": aligned or text in scratch})
            elif isinstance(kernel.family.get("scalars", {}).get(text), float):
                arguments.append({"type": "fp32", "divisible": False})
            else:
                value = evaluate(text, launch["names"])
                arguments.append({"type": "constexpr", "value": 1} if value == 1 else {"type": "i32" if abs(value) < 2**31 else "i64", "divisible": value % 16 == 0})
        launches.append({"kernel": launch["kernel"], "arguments": arguments, "constexprs": launch["constexprs"]})
    return {"architecture": architecture, "tunables": list(kernel.tunables), "launches": launches}


_TRITON = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int64": "i64", "bool": "i1"}
