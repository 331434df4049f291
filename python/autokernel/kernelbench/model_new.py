"""Writes a solution: a file with the class ModelNew that needs nothing but PyTorch, made of a problem and of a run's kernels.

The class is the problem's own with another `forward`: so its parameters come in the same order, under the same names and from the same
random numbers. The new `forward` is the captured graph, operation by operation, where the regions that have a kernel are calls of it.
"""

import ast
import base64
import operator
import os
import re
import zlib

import torch
from torch.fx import Node

from autokernel import dynamo, installation, runtime
from autokernel.bundles import Bundles
from autokernel.errors import user_error
from autokernel.kernelbench import setup

_HERE = os.path.dirname(os.path.abspath(__file__))
_ARGUMENTS = {"tensor", "scratch", "null", "int", "int32", "float"}  # that the launchers pack
_SCRATCH_ALIGNMENT = 256  # bytes, of memory from PyTorch
_NOT_OURS = ("get_inputs", "get_init_inputs")
_INDENT = " " * 8


def make_solution(problem_path, run_directory, device, precision="float32"):
    """(text of the solution, [{"task", "family", "us", "replaces_us"}] of its kernels); (None, []) where no kernel fits.

    errors: kind `user`: an operation that cannot be written down.
    """
    graph, _ = setup.capture(problem_path, device, precision)
    pairs = Bundles(run_directory, exclude=()).choose(graph, dynamo.Report())
    if not pairs:
        return None, []
    kernels = [_Kernel(number, graph, region, bundle) for number, (region, bundle) in enumerate(pairs)]
    with open(problem_path, encoding="utf-8") as file:
        body = _renamed(file.read(), _Forward(graph, kernels).text())
    parts = [_HEADER.format(problem=os.path.basename(problem_path)), _launchers(kernels), *(kernel.text() for kernel in kernels), body]
    return "\n\n".join(parts) + "\n", [kernel.told() for kernel in kernels]


_HEADER = """\
# {problem}: the class ModelNew, with kernels that were searched and judged by AutoKernel.
# Needs PyTorch alone. Made for the shapes of the problem, and for inference: its outputs have no gradients."""


# --- kernels


class _Kernel:
    """A region of the graph and the bundle that serves it."""

    def __init__(self, number, graph, region, bundle):
        self.name = f"KERNEL_{number}"
        self.region, self.bundle = region, bundle
        self.call = dynamo.call_site(graph, region, bundle)
        self.plan = _launchable(runtime.plan(bundle.directory, self.call))
        self.nodes = {graph.fx_nodes[name] for name in region["nodes"]}
        self.inputs = [graph.fx_nodes[region["inputs"][spec["name"]]] for spec in self.call["inputs"]]
        self.outputs = [graph.fx_nodes[region["outputs"][spec["name"]]] for spec in self.call["outputs"]]

    @property
    def is_cpu(self):
        return self.bundle.device == "cpu"

    def told(self):
        bundle = self.bundle
        return {"task": bundle.task["id"], "family": bundle.task["family"], "us": bundle.us, "replaces_us": bundle.replaces_us}

    def text(self):
        weights = [t["name"] for t in self.bundle.task["tensors"] if t["role"] == "weight" and not t.get("absent")]
        layouts = f"inputs={_layouts(self.call['inputs'])},\n    outputs={_layouts(self.call['outputs'])}"
        given = f"{self.name}_PLAN,\n    {layouts},\n    weights={weights!r})"
        plan = f"{self.name}_PLAN = {self.plan!r}"
        return self._cpu_text(plan, given) if self.is_cpu else self._cuda_text(plan, given)

    def _cpu_text(self, plan, given):
        source = _inlined(self._read(self.bundle.kernel_file), set())
        return f"{self.name}_SOURCE = {_quoted(source)}\n{plan}\n{self.name} = CpuKernel({self.name}_SOURCE, {torch.get_num_threads()}, {given}"

    def _cuda_text(self, plan, given):
        with open(os.path.join(self.bundle.directory, self.bundle.module), "rb") as file:
            cubin = base64.b64encode(zlib.compress(file.read(), 9)).decode()
        source = "".join(f"# {line}".rstrip() + "\n" for line in self._read(self.bundle.kernel_file).splitlines())
        image = f"{self.name}_CUBIN = (\n{_wrapped(cubin)})"
        return f"# Compiled from:\n{source}{image}\n{plan}\n{self.name} = CudaKernel({self.name}_CUBIN, {self.bundle.architecture!r}, {given}"

    def _read(self, name):
        with open(os.path.join(self.bundle.directory, name), encoding="utf-8") as file:
            return file.read()


def _launchable(plan):
    """The plan, as far as a solution needs it. errors: it needs what the launchers cannot give."""
    kinds = {kind for launch in (*plan["launches"], *plan["prepare"]) for argument in launch["arguments"] for kind in argument if kind != "aligned"}
    if kinds - _ARGUMENTS or any(scratch.get("alignment", 1) > _SCRATCH_ALIGNMENT for scratch in plan["scratch"]):
        raise user_error(f"Its kernel needs what a solution cannot hold yet: {', '.join(sorted(kinds - _ARGUMENTS)) or 'scratch of a larger alignment'}.")
    return {name: plan[name] for name in ("launches", "prepare", "scratch", "macros")}


def _layouts(specs):
    return "[" + ", ".join(f"({s['name']!r}, {s['shape']}, {s['strides']}, torch.{s['dtype']})" for s in specs) + "]"


def _quoted(text):
    """A literal that can be read as it stands, where Python has one for the text."""
    for quotes in ('"""', "'''"):
        if quotes not in text and not text.endswith(("\\", quotes[0])):
            return f"r{quotes}{text}{quotes}"
    return repr(text)


def _wrapped(text, width=120):
    return "".join(f'    "{text[i:i + width]}"\n' for i in range(0, len(text), width))


def _inlined(source, seen):
    """C++ with our own headers in the place of their first inclusion."""

    def put(match):
        if match[1] in seen:
            return ""
        seen.add(match[1])
        path = os.path.join(installation.families_directory(), "include", "autokernel", match[1])
        with open(path, encoding="utf-8") as file:
            return _inlined(file.read(), seen).replace("#pragma once\n", "")

    return re.sub(r"^#include <autokernel/([\w.]+)>.*\n", put, source, flags=re.M)


def _launchers(kernels):
    """The launchers that the kernels need, as they are in this package, without their imports of each other."""
    texts = []
    for name in ["launcher", *sorted({"cpu_launcher" if kernel.is_cpu else "cuda_launcher" for kernel in kernels})]:
        with open(os.path.join(_HERE, f"{name}.py"), encoding="utf-8") as file:
            texts.append(re.sub(r"^from autokernel\..*\n", "", file.read(), flags=re.M).strip())
    return "\n\n\n".join(texts)


# --- the new forward


class _Forward:
    """The graph as the text of a method."""

    def __init__(self, graph, kernels):
        self.graph, self.kernels = graph, kernels
        self.nodes = list(graph.module.graph.nodes)
        order = {node: i for i, node in enumerate(self.nodes)}
        self.replaced = {node for kernel in kernels for node in kernel.nodes}
        self.called_at = {max(kernel.nodes, key=order.get): kernel for kernel in kernels}
        self.defined = set()

    def text(self):
        lines, arguments = [], []
        kinds = {entry["name"]: entry for entry in self.graph.nodes if entry["op"] == "placeholder"}
        for node in self.nodes:
            if node.op == "placeholder" and kinds[node.name]["kind"] == "input":
                arguments.append(self._name(node))
                self.defined.add(node)
            elif node.op == "placeholder":
                lines += self._parameter(node, kinds[node.name])
            else:
                lines += self._statement(node)
        body = "".join(f"{_INDENT}    {line}\n" for line in lines)
        return f"    def forward(self, {', '.join(arguments)}):\n{_INDENT}with torch.no_grad():\n{body}"

    def _name(self, node):
        return f"v_{node.name}"

    def _parameter(self, node, entry):
        self.defined.add(node)
        if not node.users:
            return []
        if entry["kind"] not in ("parameter", "buffer"):
            raise user_error(f"The graph has a constant tensor, {entry['target']}, which a solution cannot hold.")
        path = "".join(f".{part}" if part.isidentifier() else f"._modules[{part!r}]" for part in entry["target"].split("."))
        return [f"{self._name(node)} = self{path}"]

    def _statement(self, node):
        if node in self.called_at:
            return [self._kernel_call(self.called_at[node])]
        if node in self.replaced:
            return []
        if node.op == "output":
            return [self._return(node)]
        self.defined.add(node)
        return [f"{self._name(node)} = {self._call(node)}"]

    def _kernel_call(self, kernel):
        text = f"{', '.join(map(self._name, kernel.outputs))}, = {kernel.name}({', '.join(map(self._value, kernel.inputs))})"
        self.defined.update(kernel.outputs)
        return text

    def _call(self, node):
        if node.op == "call_function" and node.target is operator.getitem:
            return f"{self._value(node.args[0])}[{self._value(node.args[1])}]"
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            raise user_error(f"The graph has a node that a solution cannot hold: {node.format_node()}")
        values = [*map(self._value, node.args), *(f"{name}={self._value(value)}" for name, value in node.kwargs.items())]
        return f"torch.ops.{node.target}({', '.join(values)})"

    def _return(self, node):
        values = [self._value(value) for value in node.args[0]]
        return f"return {values[0]}" if len(values) == 1 else f"return ({', '.join(values)})"

    def _value(self, value):
        if isinstance(value, Node):
            if value not in self.defined:
                raise user_error(f"{value.name} is read before the kernel that makes it can run.")
            return self._name(value)
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self._value, value)) + "]"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, float):
            return f"float({str(value)!r})" if value != value or value in (float("inf"), float("-inf")) else repr(value)
        if value is None or isinstance(value, (bool, int, str, torch.dtype, torch.layout, torch.memory_format)):
            return repr(value) if value is None or isinstance(value, (bool, int, str)) else str(value)
        raise user_error(f"The graph has a value of {type(value).__name__}, which a solution cannot hold.")


# --- the class


class _Rename(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.copy_location(ast.Name("ModelNew", node.ctx), node) if node.id == "Model" else node

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        node.name = "ModelNew" if node.name == "Model" else node.name
        return node


def _renamed(source, forward):
    """The problem's file as far as the class needs it, the class called ModelNew and its `forward` replaced."""
    tree = _Rename().visit(ast.parse(source))
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew")
    model.body = [node for node in model.body if getattr(node, "name", None) != "forward" and not _is_text(node)]
    tree.body = [node for node in _needed(tree.body, model) if not _is_text(node)]
    before = ast.unparse(ast.fix_missing_locations(tree))
    return f"{before}\n\n{forward}" if tree.body[-1] is model else _with_forward(tree, model, forward)


def _with_forward(tree, model, forward):
    """The class comes last in the text, so that its method can follow; what used it before does not exist in a problem's file."""
    tree.body.remove(model)
    tree.body.append(model)
    return f"{ast.unparse(ast.fix_missing_locations(tree))}\n\n{forward}"


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _needed(statements, model):
    """Imports, and what the class reads, by itself or by way of what it reads."""
    wanted, kept = {model}, None
    while kept != wanted:
        kept = set(wanted)
        read = {name.id for node in kept for name in ast.walk(node) if isinstance(name, ast.Name)}
        wanted |= {node for node in statements if _defines(node) & read}
    imports = (ast.Import, ast.ImportFrom)
    return [node for node in statements if (node in wanted or isinstance(node, imports)) and getattr(node, "name", None) not in _NOT_OURS]


def _defines(node):
    """Names that a top-level statement gives a value."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
