"""Writes a normalised fx graph as the nodes of graph.json (docs/formats/graph.md)."""

import inspect
import json
import math
import operator
import os
import re

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

IN_PLACE_PREFIX = "inplace:"
_DIM_NAMES = {"dim", "dims", "dim0", "dim1"}
_RANK_PLUS_ONE = {"aten.unsqueeze.default", "aten.stack.default"}
_OPTIONAL_DTYPE = ("aten.softmax.int", "aten.log_softmax.int", "aten.sum.", "aten.mean.", "aten.cumsum.")


def write_graphs(path, graphs, capture):
    """Write graph.json: `graphs` are Normalised, `capture` is "export" or "dynamo"."""
    content = {
        "schema": "autokernel.graph/1",
        "torch": torch.__version__.split("+")[0],
        "capture": capture,
        "graphs": [{"name": graph.name, "nodes": graph.nodes} for graph in graphs],
    }
    write_json(path, content)


def write_json(path, content):
    """Write JSON by rename, so that a reader never sees half of it."""
    part = f"{path}.part{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(content, file, allow_nan=False)
    os.replace(part, path)


def write_nodes(graph, placeholders, bound):
    """The JSON nodes of `graph`. `placeholders`: name -> (kind, target, tensor); `bound`: names that mutation keeps in place."""
    return [_node(node, placeholders, bound) for node in graph.nodes]


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def _node(node, placeholders, bound):
    if node.op == "placeholder":
        kind, target, _ = placeholders.get(node.name, ("input", str(node.target), None))
        return {"name": node.name, "op": "placeholder", "kind": kind, "target": target, "out": _outputs(node)}
    if node.op == "output":
        return {"name": node.name, "op": "output", "args": {"values": [_value(leaf) for leaf in pytree.tree_leaves(node.args[0])]}}
    if node.op == "get_attr":
        return {"name": node.name, "op": "get_attr", "args": {"target": str(node.target)}, "out": _outputs(node)}
    written = {"name": node.name, "op": _op_name(node), "args": _arguments(node), "out": _outputs(node)}
    if node.name in bound:
        written["op"] = IN_PLACE_PREFIX + written["op"]
    module, source = module_path(node), source_line(node)
    if module:
        written["module"] = module
    if source:
        written["source"] = source
    return written


def _op_name(node):
    if node.target is operator.getitem:
        return "getitem"
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return f"higher_order.{node.target}"
    module = getattr(node.target, "__module__", None) or ""
    return f"{module.lstrip('_')}.{getattr(node.target, '__name__', node.target)}".lstrip(".")


def _arguments(node):
    if node.target is operator.getitem:
        return {"input": _value(node.args[0]), "index": _value(node.args[1])}
    if not isinstance(node.target, torch._ops.OpOverload):
        named = {str(i): _value(value) for i, value in enumerate(node.args)}
        return {**named, **{name: _value(value) for name, value in node.kwargs.items()}}
    named = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args):
            named[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            named[argument.name] = node.kwargs[argument.name]
        else:
            named[argument.name] = argument.default_value if argument.has_default_value() else None
    _dims_from_the_end(node, named)
    _clamp_slice(node, named)
    _drop_equal_dtype(node, named)
    return {name: _value(value) for name, value in named.items()}


def _first_tensor(node):
    for leaf in pytree.tree_leaves(node.args):
        if isinstance(leaf, Node) and isinstance(leaf.meta.get("val"), torch.Tensor):
            return leaf.meta["val"]
    return None


def _dims_from_the_end(node, named):
    first = _first_tensor(node)
    if first is None:
        return
    rank = first.dim() + (1 if str(node.target) in _RANK_PLUS_ONE else 0)
    for name in _DIM_NAMES & named.keys():
        value = named[name]
        if isinstance(value, (list, tuple)):
            named[name] = [_from_the_end(dim, rank) for dim in value]
        else:
            named[name] = _from_the_end(value, rank)


def _from_the_end(dim, rank):
    return dim - rank if type(dim) is int and 0 <= dim < rank else dim


def _clamp_slice(node, named):
    op = str(node.target)
    if op not in ("aten.slice.Tensor", "aten.select.int"):
        return
    size = _first_tensor(node).shape[named["dim"]]
    if type(size) is not int:
        return
    if op == "aten.select.int":
        if type(named["index"]) is int:
            named["index"] %= max(size, 1)
        return
    for name, missing in (("start", 0), ("end", size)):
        value = missing if named[name] is None else named[name]
        if type(value) is int:
            named[name] = min(max(value + size if value < 0 else value, 0), size)


def _drop_equal_dtype(node, named):
    """A dtype that says what is so anyway is the same as none."""
    first = _first_tensor(node)
    if (
        str(node.target).startswith(_OPTIONAL_DTYPE)
        and first is not None
        and first.is_floating_point()
        and named.get("dtype") == first.dtype
    ):
        named["dtype"] = None


def _value(value):
    """A constant or a reference in JSON."""
    if isinstance(value, Node):
        return {"node": value.name}
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.SymInt):
        return _size(value)
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, torch.device):
        return None  # a pattern serves any device; what is combined lies on one anyway
    return {"other": str(value)}


def _outputs(node):
    value = node.meta.get("val")
    if value is None:
        return []
    leaves = value if isinstance(value, (list, tuple)) else [value]
    return [_output(leaf) for leaf in leaves]


def _output(value):
    if isinstance(value, torch.Tensor):
        strides = list(value.stride()) if value.layout == torch.strided else []
        return {
            "dtype": dtype_name(value.dtype),
            "shape": [_size(size) for size in value.shape],
            "strides": [_size(size) for size in strides],
        }
    if isinstance(value, torch.SymInt):
        return _size(value)
    return {"other": type(value).__name__}


def _size(size):
    if isinstance(size, torch.SymInt):
        return {"symbol": str(size.node.expr), "hint": _hint(size)}
    return int(size)


def _hint(size):
    hint = size.node.hint
    return None if hint is None else int(hint)


def module_path(node):
    """Dotted path of the module that a node came from, "" at the root."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    path = re.sub(r"^L\[['\"]\w+['\"]\]", "", path)
    path = re.sub(r"\._modules\[['\"]?(\w+)['\"]?\]", r".\1", path)
    path = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", path)
    return path.removeprefix("L__self__").strip(".")


def source_line(node):
    """`file.py:31` of the innermost frame outside PyTorch, "" where unknown."""
    torch_root = os.path.dirname(inspect.getfile(torch)) + os.sep
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, line) for file, line in frames if not file.startswith(torch_root)]
    if not own:
        return ""
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}"
