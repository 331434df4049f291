"""Operators from Triton kernels: launched as their plans say, by Triton's own launcher."""

import inspect

import torch

COMPILER = {"NUM_WARPS": "num_warps", "NUM_STAGES": "num_stages", "NUM_CTAS": "num_ctas", "MAXNREG": "maxnreg"}  # 0: the compiler's default

ALIGNMENT_BYTES = 16  # what Triton is told of pointers


def define(name, kernel, plan):
    """Define the operator `name` for a kernel. `plan`: its module, launches, scratch and constants."""

    def launch(*given: torch.Tensor):
        inputs = [_aligned(tensor, spec) for tensor, spec in zip(given, kernel.inputs)]
        outputs = [torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=inputs[0].device) for spec in kernel.outputs]
        named = dict(zip((spec.name for spec in kernel.inputs + kernel.outputs), [*inputs, *outputs]))
        for each in plan["scratch"]:
            make = torch.zeros if each["zeroed"] else torch.empty
            named[each["name"]] = make(each["elements"], dtype=each["dtype"], device=inputs[0].device)
        for each in plan["maps"]:
            named[each["name"]] = _descriptor(named[each["of"]], each) if each["of"] else None
        for each in plan["launches"]:
            _launch(plan, each, named)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    namespace, operator = name.split("::")
    arguments = ", ".join(f"Tensor {spec.name}" for spec in kernel.inputs)
    results = "Tensor" if len(kernel.outputs) == 1 else f"({', '.join(['Tensor'] * len(kernel.outputs))})"
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(f"{operator}({arguments}) -> {results}")
    library.impl(operator, launch, "CPU" if kernel.device == "cpu" else "CUDA")
    _LIBRARIES.append(library)


def _aligned(tensor, spec):
    """The tensor, or a copy of it where a plan for aligned memory could not take it."""
    if tensor.data_ptr() % ALIGNMENT_BYTES == 0:
        return tensor
    return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=tensor.device).copy_(tensor)


_LIBRARIES = []  # an operator lives as long as the library that defined it


def _descriptor(tensor, described):
    """What a kernel takes that has the host make its tensor maps."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(tensor, described["shape"], described["strides"], described["box"])


def _launch(plan, launch, named):
    function = getattr(plan["module"], launch["kernel"])
    values = [named[value] if kind in ("tensor", "scratch", "tensor_map") else value for kind, value in launch["arguments"]]
    known = {**plan["constants"], **launch["constexprs"]}
    parameters = inspect.signature(function.fn).parameters
    constants = {name: value for name, value in known.items() if name in parameters}
    options = {option: known[name] for name, option in COMPILER.items() if known.get(name)}
    function[tuple(launch["grid"])](*values, **constants, **options)
