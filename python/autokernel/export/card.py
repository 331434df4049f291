"""The card of a package: what it is, when it is used, and what was measured."""

import platform

import torch

from autokernel.export import evidence
from autokernel.export.measure import ROUNDS
from autokernel.export.python_part import argument_name

CARD = """{front}# {name}

{summary} Each kernel was searched by AutoKernel, judged right and timed against the best that PyTorch has for the same operation.

{use}

## When a kernel is used

A kernel was made for one call: sizes, strides, dtype, scalars and device as in the table. Leading dims are folded where they are one dim in memory. Every other call, and
every call under autocast, is computed by PyTorch's own operations: the result is right, and no faster. A gradient is computed by PyTorch's operations from the saved inputs.
{limits}

| kernel | function | call | scalars and options |
|---|---|---|---|
{calls}

## What was measured

On {device}, PyTorch {torch}.

| kernel | as judged | best of PyTorch | speed-up | stages passed | as exported | PyTorch's operation | speed-up (95 % interval) |
|---|---|---|---|---|---|---|---|
{measured}

*As judged*: {clock}, against the best of eager, library and torch.compile (its kind is named). *As exported*: the function of this package called from Python
against PyTorch's operation called from Python, {rounds} rounds in turn, caches warm. The stages are 1 smoke, 2 shapes, 3 numerical stability, 4 determinism, 5 edges.

## Functions
{functions}
{layers}
## Licence

MIT.
"""

USE_HF = """```python
from kernels import get_kernel  # or get_local_kernel(Path("{directory}"){backend_argument})

module = get_kernel("{repository}", version=1{backend_argument})
{call}
```
"""
USE_TORCH = """```
pip install ./{directory}
```

```python
import {module}

{module}.{call}
```
"""


def card(package, measurements, kind, repository=None):
    """README.md."""
    request = package.request
    found = evidence.read(request["run_dir"])
    call = _example(package.functions[0])
    backend_argument = ', backend="cpu"' if package.backend == "cpu" else ""
    if kind == "hf":
        use = USE_HF.format(directory="path/to/" + package.name, repository=repository or f"YOUR-ORGANISATION/{package.name}",
                            call="module." + call, backend_argument=backend_argument)
        front = "---\nlibrary_name: kernels\nlicense: mit\ntags:\n- kernels\n---\n\n"
    else:
        use = USE_TORCH.format(directory=package.name, module=package.module, call=call)
        front = ""
    return CARD.format(
        front=front, name=package.name, use=use.strip(), rounds=ROUNDS,
        summary=" ".join(function.summary for function in package.functions),
        limits=_limits(package), clock=_clock(package), device=_device(package), torch=torch.__version__,
        calls="\n".join(_call_row(function, kernel) for function in package.functions for kernel in function.kernels),
        measured="\n".join(_measured_row(kernel, found, measurements) for kernel in package.kernels),
        functions="\n".join(_function(function) for function in package.functions), layers=_layers(package))


def _limits(package):
    if package.backend == "cpu":
        return f"The kernels need these instructions of the processor, and stand aside where one is missing: {package.needed}."
    if package.backend == "triton":
        return "The kernels are Triton's: they are compiled for the GPU at hand at their first call. Weights that a kernel packs are packed in each call."
    architectures = sorted({kernel.entry["architecture"] for kernel in package.kernels})
    return (f"The kernels were compiled for {', '.join(architectures)} alone, and are launched by the NVIDIA driver. "
            "Weights that a kernel packs are packed in each call.")


def _clock(package):
    return "the kernel alone on the judge's clock, cold caches" + ("" if package.backend == "cpu" else ", device time")


def _device(package):
    if package.backend == "cpu":
        return f"{_processor()}, {torch.get_num_threads()} threads"
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "a GPU"


def _processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _call_row(function, kernel):
    call = ", ".join(f"{t['name']} {t['dtype']} {_sizes(t)}" for t in kernel.inputs)
    values = {**kernel.scalars, **{argument_name(name): kernel.options[name] for name in function.options}}
    return f"| `{kernel.name}` | `{function.name}` | {call} | {', '.join(f'{name} = {value}' for name, value in values.items()) or '–'} |"


def _sizes(tensor):
    text = "×".join(map(str, tensor["shape"]))
    step, contiguous = 1, True
    for size, stride in zip(reversed(tensor["shape"]), reversed(tensor["strides"])):
        contiguous &= size == 1 or stride == step
        step *= size
    return text if contiguous else f"{text} (strides {', '.join(map(str, tensor['strides']))})"


def _measured_row(kernel, found, measurements):
    judged, ours = evidence.judged(kernel, found["confirmations"]), measurements[kernel.name]
    stages = " ".join(map(str, judged["stages"])) or "all"
    return (f"| `{kernel.name}` | {judged['us']:.1f} us | {judged['baseline_us']:.1f} us ({judged['kind']}) | {judged['speedup']:.2f}x | {stages} "
            f"| {ours['us']:.1f} us | {ours['pytorch_us']:.1f} us | {ours['speedup']:.2f}x ({ours['ci_low']:.2f} to {ours['ci_high']:.2f}) |")


def _example(function):
    arguments = ", ".join(tensor["name"] for tensor in function.tensors if "optional" not in tensor)
    return f"{function.name}({arguments})"


def _function(function):
    return f"- `{_example(function)}`: {function.summary}"


def _layers(package):
    if not package.layers:
        return ""
    rows = "\n".join(f"- `{name}`" for names in package.layers.values() for name in names)
    return f"\n## Layers\n\nFor `kernels.kernelize`:\n\n{rows}\n"
