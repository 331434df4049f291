"""Prints the C++ part: each plan as a table, the operators' registration, and a wrapper that gives a CPU kernel its macros and a name of its own."""

import json

_SCALAR_TYPES = {"float64": "Double", "float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
                 "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool"}
_DISPATCH_KEYS = {"cpu": "CPU", "cuda": "CUDA"}


def plans_source(kernels):
    """torch-ext/plans.cpp."""
    backend = kernels[0].backend
    lines = [
        "// The launch plan of each kernel, made concrete for the one shape that it was tuned for.",
        '#include "plans.h"',
        "",
    ]
    if backend == "cpu":
        lines += [f"extern \"C\" const autokernel_host::KernelRecord {record};" for kernel in kernels for record in _records(kernel)]
    else:
        lines += [f"extern \"C\" const unsigned char {image_name(kernel)}[];" for kernel in kernels]
    lines += ["", "namespace autokernel_host {", ""]
    for kernel in kernels:
        lines += [_plan(kernel), ""]
    return "\n".join([*lines, "}  // namespace autokernel_host", ""])


def plans_header(kernels):
    """torch-ext/plans.h."""
    lines = [f"extern const Plan {plan_name(kernel)};" for kernel in kernels]
    return "\n".join([
        "// The tuned kernels.",
        "#pragma once",
        "",
        f'#include "host_{kernels[0].backend}.h"',
        "",
        "namespace autokernel_host {",
        "",
        *lines,
        "",
        "}  // namespace autokernel_host",
        "",
    ])


def binding_source(kernels):
    """torch-ext/torch_binding.cpp."""
    backend = kernels[0].backend
    state, call = {"cpu": ("CpuState", "call_on_cpu"), "cuda": ("CudaState", "call_on_cuda")}[backend]
    host = "autokernel_host::"
    definitions = [f'  ops.def("{schema(kernel)}");' for kernel in kernels]
    implementations = [f'  ops.impl("{kernel.name}", &{host}boxed<{host}{plan_name(kernel)}, {host}{state}, {host}{call}>);' for kernel in kernels]
    return "\n".join([
        "// An operator for each tuned kernel.",
        "#include <torch/csrc/stable/library.h>",
        "",
        '#include "plans.h"',
        '#include "registration.h"',
        "",
        "STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {",
        *definitions,
        "}",
        "",
        f"STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, {_DISPATCH_KEYS[backend]}, ops) {{",
        *implementations,
        "}",
        "",
        "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)",
        "",
    ])


def schema(kernel):
    """The operator's schema, without its namespace."""
    arguments = ", ".join(f"Tensor {tensor['name']}" for tensor in kernel.inputs)
    results = "Tensor" if len(kernel.outputs) == 1 else f"({', '.join(['Tensor'] * len(kernel.outputs))})"
    return f"{kernel.name}({arguments}) -> {results}"


def wrapper_source(kernel):
    """<package>_cpu/<task>.cpp: the kernel file under its tunables, its functions renamed, so that several files may be linked together."""
    names = sorted({launch["kernel"] for launch in _launches(kernel)})
    renamed = [name for each in names for name in (each, f"ak_kernel_{each}")]
    return "\n".join([
        f"// {kernel.name}.h is the kernel file; here it gets its macros, and names that no other kernel has.",
        *(f"#define {name} {value}" for name, value in kernel.entry["macros"]),
        *(f"#define {name} {name}_{suffix(kernel)}" for name in renamed),
        f'#include "{kernel.name}.h"',
        "",
    ])


def image_source(kernel, cubin):
    """<package>_cuda/<task>.cpp: the compiled kernel as an array."""
    rows = [", ".join(str(byte) for byte in cubin[at : at + 32]) for at in range(0, len(cubin), 32)]
    body = ",\n    ".join(rows)
    return "\n".join([
        f"// {kernel.name}.cu at the point that was kept, compiled for {kernel.entry['architecture']}.",
        f'extern "C" {{\nextern const unsigned char {image_name(kernel)}[];',
        f"alignas(64) const unsigned char {image_name(kernel)}[] = {{\n    {body}}};\n}}",
        "",
    ])


def plan_name(kernel):
    return f"plan_{kernel.name}"


def image_name(kernel):
    return f"image_{kernel.name}"


def suffix(kernel):
    """The hash in a task's id."""
    return kernel.name.rsplit("_", 1)[1]


def _launches(kernel):
    return kernel.plan["launches"] + kernel.plan["prepare"]


def _records(kernel):
    return [f"ak_kernel_{name}_{suffix(kernel)}" for name in sorted({launch["kernel"] for launch in _launches(kernel)})]


def _plan(kernel):
    """The definition of a Plan, member by member in the order of host.h."""
    scratch = [each for each in kernel.plan["scratch"] if not each["per_worker"]]
    prepared_names = {argument["scratch"] for launch in kernel.plan["prepare"] for argument in launch["arguments"] if "scratch" in argument}
    places = {}
    for kind, of_kind in (("scratch", [each for each in scratch if each["name"] not in prepared_names]),
                          ("prepared", [each for each in scratch if each["name"] in prepared_names])):
        places.update({each["name"]: (kind, i, each) for i, each in enumerate(of_kind)})
    own = next((each for each in kernel.plan["scratch"] if each["per_worker"]), {"bytes": 0, "zeroed": False})
    weights = [i for i, tensor in enumerate(kernel.inputs) if tensor["role"] == "weight"]
    tensors = [tensor["name"] for tensor in kernel.inputs + kernel.outputs]

    def launches(which):
        return _list(_launch(kernel, launch, places, tensors) for launch in kernel.plan[which])

    def memory(kind):
        return _list(_scratch(each) for place, _, each in places.values() if place == kind)

    members = [
        _text(kernel.name),
        image_name(kernel) if kernel.backend == "cuda" else "nullptr",
        _list(_spec(tensor) for tensor in kernel.inputs),
        _list(_spec(tensor) for tensor in kernel.outputs),
        _list(map(str, weights)),
        memory("scratch"),
        memory("prepared"),
        _scratch(own),
        str(kernel.entry["workers"]),
        launches("prepare"),
        launches("launches"),
    ]
    body = ",\n    ".join(members)
    return f"const Plan {plan_name(kernel)} = {{\n    {body}}};"


def _launch(kernel, launch, places, tensors):
    record = f"&ak_kernel_{launch['kernel']}_{suffix(kernel)}" if kernel.backend == "cpu" else "nullptr"
    arguments = _list(_argument(argument, places, tensors) for argument in launch["arguments"])
    extents = [_list(map(str, launch[name])) for name in ("grid", "block", "cluster")]
    flags = [_flag(launch["overlap"]), _flag(launch["cooperative"])]
    return f"{{{', '.join([_text(launch['kernel']), record, *extents, str(launch['shared']), *flags, arguments])}}}"


def _argument(argument, places, tensors):
    (kind, value), = argument.items()
    if kind == "tensor":
        return f"{{Argument::tensor, {tensors.index(value)}}}"
    if kind == "scratch":
        place, index, _ = places[value]
        return f"{{Argument::{place}, {index}}}"
    if kind == "null":
        return "{Argument::null}"
    if kind == "float":
        return f"{{Argument::real, 0, {_float(value)}}}"
    return f"{{Argument::integer, {value}}}"


def _float(value):
    """As a literal; JSON has no infinity, so a plan's value is finite."""
    return f"static_cast<float>({float(value)!r})"


def _spec(tensor):
    sizes = ", ".join((_list(map(str, tensor["shape"])), _list(map(str, tensor["strides"]))))
    return f"{{{_text(tensor['name'])}, ScalarType::{_SCALAR_TYPES[tensor['dtype']]}, {sizes}}}"


def _scratch(each):
    return f"{{{each['bytes']}, {_flag(each['zeroed'])}}}"


def _flag(value):
    return "true" if value else "false"


def _text(value):
    return json.dumps(value)


def _list(items):
    return f"{{{', '.join(items)}}}"

