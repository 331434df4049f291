"""Prints the Python part: a function for each family, the table of its kernels, and the layers."""

import ast
import re

FUNCTIONS = '''"""The functions. {call}"""

from ._dispatch import run

{functions}'''

KERNELS = '''"""The kernels: each serves the one call that it was made for."""

{os}import warnings

import torch

from ._kernel import Kernel, Spec, fake_of, gradients_of
from ._machine import missing_instructions
{references}
{device}
NEEDED = {needed!r}  # machine and instructions that the kernels were compiled for
KERNELS = {{
{tables}
}}


{reference_functions}

def _register(operators, add_op_namespace_prefix, reference, kernel):
    """`kernel` with its operator, as PyTorch's compiler and autograd need it."""
    name = add_op_namespace_prefix(kernel.name)
{define}    torch.library.register_fake(name, fake_of(kernel))
    backward, setup_context = gradients_of(kernel, reference)
    torch.library.register_autograd(name, backward, setup_context=setup_context)
    return Kernel(**{{**vars(kernel), "operator": getattr(operators, kernel.name).default}})


def register():
    """Load the operators, where this machine can run them, and give KERNELS theirs; {{function: PyTorch's way to compute it}}."""
    references = {{{by_name}}}
    lacking = missing_instructions(NEEDED)
    if lacking:
        warnings.warn(f"{package}: this machine lacks {{lacking}}; PyTorch's own operations are used instead", stacklevel=2)
        KERNELS.update(dict.fromkeys(KERNELS, ()))
        return references
    from ._ops import add_op_namespace_prefix, ops

    for function, kernels in KERNELS.items():
        KERNELS[function] = tuple(_register(ops, add_op_namespace_prefix, references[function], kernel) for kernel in kernels)
    return references
'''


TRITON_IMPORTS = """
from ._plans import PLANS
from ._triton import define"""
TRITON_DEVICE = '''
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"  # Triton's interpreter runs on the CPU
'''
PLANS = '''"""The launch plans of the Triton kernels, in numbers."""

import torch

{imports}

PLANS = {{
{plans}
}}
'''


def plans_source(kernels):
    """_plans.py, of Triton kernels."""
    imports = "\n".join(f"from . import _{kernel.name}" for kernel in kernels)
    return PLANS.format(imports=imports, plans="\n".join(_triton_plan(kernel) for kernel in kernels))


def _triton_plan(kernel):
    dtypes = kernel.entry["scratch_dtypes"]
    scratch = ", ".join(
        f'{{"name": "{each["name"]}", "elements": {each["bytes"] // _SIZES[dtypes[each["name"]]]}, "dtype": torch.{dtypes[each["name"]]}, "zeroed": {each["zeroed"]}}}'
        for each in kernel.plan["scratch"])
    maps = [_triton_map(each) for each in kernel.plan["tensor_maps"]]
    launches = ",\n            ".join(_triton_launch(launch) for launch in kernel.plan["prepare"] + kernel.plan["launches"])
    constants = {**kernel.options, **kernel.entry["point"]}
    return (f'    "{kernel.name}": {{\n        "module": _{kernel.name},\n        "constants": {constants!r},\n        "scratch": [{scratch}],\n        "maps": {maps!r},\n'
            f'        "launches": [\n            {launches},\n        ],\n    }},')


def _triton_map(described):
    """`of`: a tensor or scratch; None where it is absent."""
    name = described["of"].get("tensor") or described["of"].get("scratch")
    return {"name": described["name"], "of": name, **{key: described[key] for key in ("shape", "strides", "box")}}


def _triton_launch(launch):
    arguments = [("value", None) if kind == "null" else (kind, value) for argument in launch["arguments"] for kind, value in argument.items() if kind != "aligned"]
    fields = {"kernel": launch["kernel"], "grid": launch["grid"], "arguments": arguments, "constexprs": launch.get("constexprs", {})}
    return repr(fields)


_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}


def functions_source(functions):
    """functions.py."""
    text = "\n\n".join(_function(function) for function in functions)
    call = "A call whose sizes, strides, dtype or device no kernel was made for is PyTorch's own."
    return FUNCTIONS.format(call=call, functions="\n" + text).rstrip() + "\n"


def kernels_source(functions, package, needed):
    """_kernels.py. `needed`: what the processor must have; empty for a GPU."""
    references = "\n".join(f"from ._reference_{function.name} import reference as _{function.name}" for function in functions)
    tables = "\n".join(f"    {function.name!r}: (\n{''.join(_entry(kernel) for kernel in function.kernels)}    )," for function in functions)
    reference_functions = "\n\n".join(_reference(function) for function in functions)
    by_name = ", ".join(f"{function.name!r}: _reference_{function.name}" for function in functions)
    triton = functions[0].kernels[0].backend == "triton"
    return KERNELS.format(references=references + (TRITON_IMPORTS if triton else ""), device=TRITON_DEVICE if triton else "", os="import os\n" if triton else "",
                          define="    define(name, kernel, PLANS[kernel.name])\n" if triton else "", needed=needed, tables=tables, reference_functions=reference_functions, by_name=by_name,
                          package=package)


def package_source(name, functions, layers):
    """__init__.py."""
    names = [function.name for function in functions]
    exported = [*names, *(["layers"] if layers else [])]
    return "\n".join([
        f'"""{name}: kernels that were searched, proven and measured by AutoKernel."""',
        "",
        *(["from . import layers"] if layers else []),
        f"from .functions import {', '.join(names)}",
        "",
        f"__all__ = {exported!r}",
        "",
    ])


def layers_source(layers):
    """layers/__init__.py. `layers`: {family: its classes}."""
    exported = [name for names in layers.values() for name in names]
    return "\n".join([
        '"""Layers for `kernels.kernelize`: they have a forward, and no state of their own."""',
        "",
        *(f"from .{family} import {', '.join(names)}" for family, names in layers.items()),
        "",
        f"__all__ = {exported!r}",
        "",
    ])


def classes_of(path):
    """The classes that a family's layers.py has."""
    with open(path, encoding="utf-8") as file:
        return [node.name for node in ast.parse(file.read()).body if isinstance(node, ast.ClassDef)]


def argument_name(option):
    """An option as an argument: WEIGHT_OFFSET is weight_offset."""
    return option.lower()


def _function(function):
    arguments = [tensor["name"] + (" = None" if "optional" in tensor else "") for tensor in _required_first(function.tensors)]
    arguments = [argument.replace(" = ", "=") for argument in arguments]
    arguments += [f"{name}={value!r}" for name, value in function.family.scalars.items()]
    arguments += [f"{argument_name(name)}={value!r}" for name, value in function.options.items()]
    tensors = ", ".join(f'"{tensor["name"]}": {tensor["name"]}' for tensor in function.tensors)
    scalars = ", ".join(f'"{name}": {name}' for name in function.family.scalars)
    present = [f'"{option}": int({tensor} is not None)' for tensor, option in function.presence.items()]
    options = ", ".join(present + [f'"{name}": int({argument_name(name)})' for name in function.options])
    shapes = ", ".join(f"{tensor['name']} [{', '.join(map(str, _seen_shape(function, tensor)))}]" for tensor in function.tensors)
    call = f"({function.name!r}, {{{tensors}}}, {{{scalars}}}, {{{options}}})"
    signature = ", ".join(arguments)
    doc = f'    """{function.summary}\n\n    shapes: {shapes}\n    """\n'
    return f"def {function.name}({signature}):\n{doc}    return run{call}\n".replace("'", '"')


def _seen_shape(function, tensor):
    folded = function.kernels[0].folded
    return ["…, " + str(label) if i == 0 and label in folded else label for i, label in enumerate(tensor["shape"])]


def _required_first(tensors):
    return [tensor for tensor in tensors if "optional" not in tensor] + [tensor for tensor in tensors if "optional" in tensor]


def _reference(function):
    """A call of the family's reference with what it takes."""
    taken = function.arguments_of_reference()
    arguments = [f'{tensor["name"]}=tensors.get("{tensor["name"]}")' for tensor in function.tensors if tensor["name"] in taken]
    arguments += [f'{name}=scalars["{name}"]' for name in function.family.scalars if name in taken]
    arguments += [f'{name}=options["{name}"]' for name in function.family.options if name in taken]
    return f"def _reference_{function.name}(tensors, scalars, options):\n    return _{function.name}({', '.join(arguments)})\n"


def _entry(kernel):
    fields = [
        f'name="{kernel.name}"',
        "device=DEVICE" if kernel.backend == "triton" else f'device="{kernel.device}"',
        f"capability={_capability(kernel)}",
        f"inputs={_specs(kernel.inputs)}",
        f"outputs={_specs(kernel.outputs)}",
        f"scalars={kernel.scalars!r}",
        f"options={kernel.options!r}",
    ]
    return "        Kernel(" + ",\n               ".join(fields) + "),\n"


def _capability(kernel):
    """(9, 0) of "sm_90a" or "sm_90"; None for a CPU, and for Triton, which compiles for what it finds."""
    if kernel.backend == "triton":
        return "None"
    found = re.fullmatch(r"sm_(\d+)(\d)[af]?", kernel.entry["architecture"])
    return f"({found[1]}, {found[2]})" if found else "None"


def _specs(tensors):
    specs = [
        f'Spec("{tensor["name"]}", torch.{tensor["dtype"]}, {tuple(tensor["shape"])!r}, {tuple(tensor["strides"])!r}, {tensor["folds"]}, {tensor["limit"]})'
        for tensor in tensors
    ]
    return "(" + ", ".join(specs) + ",)"
