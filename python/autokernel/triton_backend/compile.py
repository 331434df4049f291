"""One kernel file and the specification of its launches to cubins, with what launching them takes. Runs in a confined child."""

import json
import pathlib
import re
import struct
import traceback

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError

from autokernel.triton_backend import descriptors
from autokernel.triton_backend.source import KernelSource, SourceError

# Tunables by these names are the compiler's, not the kernel's; a kernel may have a constexpr of the name, too.
RESERVED = {"NUM_WARPS": "num_warps", "NUM_STAGES": "num_stages", "NUM_CTAS": "num_ctas", "MAXNREG": "maxnreg"}
_WIDTH_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_ARGUMENT_BYTES = {"i32": 4, "i64": 8, "fp32": 4}  # and 8 of a pointer
_MAP_BYTES = 128  # CUtensorMap
_FIRST_WITH_MAPS = 90  # compute capability


def compile_module(source_path, specification, module_path):
    """Write the module of docs/formats/triton.md.

    errors: SourceError with the line; whatever Triton raises, see `explain`.
    """
    source = KernelSource(pathlib.Path(source_path).read_text())
    _check_tunables(source, specification)
    kernels = _load(source_path, source)
    launches, images, known = [], [], {}
    for launch in specification["launches"]:
        key = json.dumps(launch, sort_keys=True)
        if key not in known:
            cubin, entry = _compile_launch(source, kernels, launch, specification)
            known[key] = {**entry, "image": len(images)}
            images.append(cubin)
        launches.append(known[key])
    _write(module_path, images, {"triton": triton.__version__, "launches": json.dumps(launches)})


def explain(error, source_path):
    """An exception of compile_module as the lines that a person needs: `kernel.py:LINE: what`."""
    if isinstance(error, SourceError):
        return str(error)
    if isinstance(error, CompilationError):
        return "\n".join(_compilation_chain(error, pathlib.Path(source_path).read_text()))
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return f"Triton {triton.__version__} does not compile it: {text}"


def _load(source_path, source):
    """The module's device functions, by name. Only what KernelSource allows is executed."""
    namespace = {"__name__": "kernel", "__file__": str(source_path), "__builtins__": {"__import__": _import_triton}}
    exec(compile(source.text, str(source_path), "exec", dont_inherit=True), namespace)
    return {name: namespace[name] for name in source.functions}


def _import_triton(name, *arguments, **keywords):
    if name.split(".")[0] != "triton":
        raise ImportError(f"a kernel file may import triton alone, not {name}")
    return __import__(name, *arguments, **keywords)


def _check_tunables(source, specification):
    used = {name for function in source.functions for name in source.parameters(function)[1]}
    for name in specification["tunables"]:
        if name not in used and name not in RESERVED and len(re.findall(rf"\b{name}\b", source.block)) < 2:
            raise SourceError(
                source.line_of(rf"^\s*{name}\s*="),
                f"tunable {name} turns nothing: no kernel has a constexpr of the name, no expression uses it, and it is none of {', '.join(RESERVED)}",
            )


def _compile_launch(source, kernels, launch, specification):
    name = launch["kernel"]
    if name not in kernels:
        raise SourceError(source.line_of(rf"kernel\s*=\s*[\"']{re.escape(name)}[\"']"), f"the plan launches {name}, which is no @triton.jit function of this file")
    capability = int(specification["architecture"].removeprefix("sm_"))
    if capability < _FIRST_WITH_MAPS and any(map(descriptors.is_descriptor, launch["arguments"])):
        raise SourceError(source.functions[name].lineno, f"{name} takes a tensor map, and {specification['architecture']} has none: guard its variant with `compute_capability >= {_FIRST_WITH_MAPS}`")
    compiled = triton.compile(_ast_source(source, kernels[name], launch), target=GPUTarget("cuda", capability, 32), options=_options(source, launch))
    return compiled.asm["cubin"], _entry(source, launch, compiled)


def _ast_source(source, kernel, launch):
    """Specialised as the JIT does it: an int that is 1 and a pointer that is null are constants, divisibility by 16 is known."""
    name, line = launch["kernel"], source.functions[launch["kernel"]].lineno
    arguments, constants = source.parameters(name)
    if len(arguments) != len(launch["arguments"]):
        raise SourceError(line, f"the plan gives {name} {len(launch['arguments'])} arguments, it takes {len(arguments)}")
    types = {}
    for parameter, argument in zip(arguments, launch["arguments"]):
        types[parameter] = argument["type"]
    for parameter in constants:
        if parameter not in launch["constexprs"]:
            raise SourceError(line, f"constexpr {parameter} of {name} is not in the plan: neither a tunable, nor an option, nor one of the launch's constexprs")
    values = {parameter: launch["constexprs"][parameter] for parameter in constants}
    values.update({p: a["value"] for p, a in zip(arguments, launch["arguments"]) if a["type"] == "constexpr"})
    divisible = {p for p, a in zip(arguments, launch["arguments"]) if a.get("divisible")}
    return ASTSource(
        fn=kernel,
        signature={p: types.get(p, "constexpr") for p in kernel.arg_names},
        constexprs=values,
        attrs={(i,): [["tt.divisibility", 16]] for i, p in enumerate(kernel.arg_names) if p in divisible},
    )


def _options(source, launch):
    options = {"enable_fp_fusion": True}
    options |= {option: launch["constexprs"][name] for name, option in RESERVED.items() if launch["constexprs"].get(name)}
    for flag in ("launch_cooperative_grid", "launch_pdl"):
        if launch.get(flag):
            options[flag] = True
    for name, option in RESERVED.items():
        if option in ("num_warps", "num_ctas") and option in options and options[option] & (options[option] - 1):
            raise SourceError(source.line_of(rf"\b{name}\b"), f"{name} is {options[option]}: it must be a power of 2")
    return options


def _entry(source, launch, compiled):
    """What the launch of a compiled kernel takes, as this version of Triton says it."""
    metadata, line = compiled.metadata, source.functions[launch["kernel"]].lineno
    try:
        maps = descriptors.describe(launch["arguments"], metadata)
    except descriptors.DescriptorError as error:
        raise SourceError(line, str(error)) from None
    clusters = tuple(getattr(metadata, "cluster_dims", None) or (metadata.num_ctas, 1, 1))
    scratch = [{"bytes": getattr(metadata, f"{kind}_scratch_size", 0) or 0, "alignment": getattr(metadata, f"{kind}_scratch_align", 1) or 1} for kind in ("global", "profile")]
    parameters = _parameter_bytes(compiled.asm["ptx"], metadata.name)
    if not _takes(parameters, launch["arguments"], maps, len(scratch)):
        raise SourceError(line, f"Triton {triton.__version__} compiled {launch['kernel']} to parameters of {parameters} bytes, a way to pass its arguments that this program does not know")
    return {
        "kernel": metadata.name,
        "threads": 32 * metadata.num_warps,
        "cluster": clusters[0] * clusters[1] * clusters[2],
        "shared": metadata.shared,
        "cooperative": bool(getattr(metadata, "launch_cooperative_grid", False)),
        "overlap": bool(getattr(metadata, "launch_pdl", False)),
        "parameters": parameters,
        "descriptors": maps,
        "scratch": scratch,
    }


def _parameter_bytes(ptx, kernel):
    """Sizes of the entry's parameters, in order: the binary interface as the compiler made it."""
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\s*\((.*?)\)", ptx, re.DOTALL)
    sizes = []
    for parameter in entry.group(1).split(".param")[1:] if entry else []:
        width = re.search(r"\.[busf](8|16|32|64)\b", parameter)
        count = re.search(r"\[(\d+)\]", parameter)
        sizes.append(_WIDTH_BYTES[width.group(1)] * (int(count.group(1)) if count else 1))
    return sizes


def _takes(parameters, arguments, maps, pointers):
    """Whether the parameters are those of the arguments, and at most `pointers` more. What a descriptor passes beside its map is an integer of either width."""
    wanted, maps = [], iter(maps)
    for argument in arguments:
        if descriptors.is_descriptor(argument):
            wanted += [{_MAP_BYTES} if "map" in each else {4, 8} for each in next(maps)["passes"]]
        elif argument["type"] != "constexpr":
            wanted.append({_ARGUMENT_BYTES.get(argument["type"], 8)})
    extra = parameters[len(wanted) :]
    return len(parameters) >= len(wanted) and all(size in sizes for size, sizes in zip(parameters, wanted)) and len(extra) <= pointers and all(size == 8 for size in extra)


def _compilation_chain(error, text):
    """The innermost line of the file first, then who called it; Triton's own functions have no line here."""
    lines, message = [], ""
    while isinstance(error, CompilationError):
        line, message = _line_in_file(error, text), error.error_message or message
        if line:
            lines.append(line)
        error = error.__cause__
    if error is not None and str(error) not in message:
        message += f" ({type(error).__name__}: {error})"
    innermost, *callers = reversed(lines or [1])
    return [f"kernel.py:{innermost}: {message}", *(f"kernel.py:{line}: called from here" for line in callers)]


def _line_in_file(error, text):
    """Triton counts lines from the function's `def`. None for a function of another file."""
    begin = text.find(error.src.rstrip()) if error.src else -1
    return text.count("\n", 0, begin) + getattr(error.node, "lineno", 1) if begin >= 0 else None


def _write(path, images, metadata):
    """In safetensors layout: the cubins as bytes, the rest as metadata."""
    header, offset = {"__metadata__": metadata}, 0
    for i, image in enumerate(images):
        header[f"image{i}"] = {"dtype": "U8", "shape": [len(image)], "data_offsets": [offset, offset + len(image)]}
        offset += len(image)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for image in images:
            file.write(image)
