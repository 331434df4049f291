"""The verb `fixtures`: the inputs of one case of a task, and what PyTorch makes of them in float64 and in the working dtype."""

import dataclasses
import json
import math
import os
import time

import torch
from torch.utils import _pytree as pytree

from autokernel import device as devices
from autokernel import expression, generators, safetensors
from autokernel.errors import describe, user_error
from autokernel.families import call_accepted, read_family, tensor_dtype
from autokernel.graph_json import dtype_name

_MISALIGNED_BY = 4  # elements
_MAX_SHRINKS = 10
_SHRINK = 0.25
_HEADROOM = 0.25  # of the dtype's largest number, left to results


@dataclasses.dataclass
class Task:
    """A task.json with its family's functions at hand."""

    table: dict
    family: object

    @property
    def dtype(self):
        return self.table["dtype"]

    def inputs(self):
        return [t for t in self.table["tensors"] if t["role"] != "output" and not t.get("absent")]

    def outputs(self):
        return [t for t in self.table["tensors"] if t["role"] == "output" and not t.get("absent")]

    def reference(self, tensors):
        """The outputs of the oracle, as a list."""
        absent = {t["name"]: None for t in self.table["tensors"] if t.get("absent") and t["role"] != "output"}
        named = {
            **self.family.scalars,
            **self.family.options,
            **self.table.get("scalars", {}),
            **self.table.get("options", {}),
            **absent,
            **tensors,
        }
        function = self.family.function(self.table.get("reference", {}).get("function", "reference"))
        return pytree.tree_leaves(call_accepted(function, named))


def read_task(session, arguments):
    """The task of a request: its JSON, or the path of a task.json."""
    table = arguments["task"]
    if isinstance(table, str):
        with open(table, encoding="utf-8") as file:
            table = json.load(file)
    kind = table.get("reference", {"kind": "family"}).get("kind")
    if kind != "family":
        raise user_error(f"The worker knows references of kind 'family', not '{kind}'.")
    name = table.get("reference", {}).get("family", table["family"])
    return Task(table, read_family(os.path.join(session.families_directory(arguments), name)))


def fixtures(session, arguments, progress):
    """Write inputs.safetensors and expected.safetensors of a case, computed on the device; `seconds` says where the time went."""
    task, case, device = read_task(session, arguments), arguments["case"], devices.of_request(session, arguments)
    clock = _Laps(device)
    tensors = build_inputs(task, case, device)
    clock.lap("inputs")
    reference, eager = expected(task, tensors, case)
    clock.lap("expected")
    directory = arguments["directory"]
    os.makedirs(directory, exist_ok=True)
    inputs_path, expected_path = os.path.join(directory, "inputs.safetensors"), os.path.join(directory, "expected.safetensors")
    size = safetensors.write(inputs_path, *_stored_inputs(tensors))
    size += safetensors.write(expected_path, *_stored_outputs(task, case, reference, eager))
    clock.lap("files")
    del tensors, reference, eager
    devices.release(device)
    return {"inputs": inputs_path, "expected": expected_path, "bytes": size, "seconds": clock.seconds}


class _Laps:
    """Wall-clock seconds of the steps of a request, each with its work on the device."""

    def __init__(self, device):
        self.device = device
        self.begin = time.perf_counter()
        self.seconds = {}

    def lap(self, name):
        devices.synchronise(self.device)
        now = time.perf_counter()
        self.seconds[name], self.begin = now - self.begin, now


def build_inputs(task, case, device=devices.CPU):
    """{name: tensor} of a case, with the layout it asks for; a tensor's storage is exactly what it spans."""
    generators.check_generator(case.get("generator") or "normal")
    special = _special_tensor(task, case)
    return {tensor["name"]: _build(task, case, tensor, position, special, device) for position, tensor in enumerate(task.inputs())}


def expected(task, tensors, case):
    """(outputs in float64, outputs in the working dtype).

    Data whose result leaves the working dtype's range is scaled down where that helps.
    """
    with torch.no_grad():
        first = _both(task, tensors)
        if not _may_be_scaled(task, case) or not _out_of_range(*first):
            return first
        originals = {name: whole_storage(tensor).clone() for name, tensor in tensors.items()}
        for _ in range(_MAX_SHRINKS):
            _shrink_data(task, tensors)
            shrunk = _both(task, tensors)
            if not _out_of_range(*shrunk):
                return shrunk
        for name, tensor in tensors.items():
            whole_storage(tensor).copy_(originals[name])
    return first


def _may_be_scaled(task, case):
    generator = case.get("generator") or "normal"
    near_one = generator == "normal" and any(tensor.get("factors") for tensor in task.inputs())
    return generator in generators.MAY_BE_SCALED and not near_one


def _both(task, tensors):
    wide = {name: _widened(tensor) for name, tensor in tensors.items()}
    aligned = {name: _from_the_start(tensor) for name, tensor in tensors.items()}
    return _call(task, wide, "in float64"), _call(task, aligned, f"in {task.dtype}")


def _call(task, tensors, how):
    try:
        outputs = task.reference(tensors)
        if any(output is None for output in outputs):  # CUDA's attention gives nothing at all for no queries
            device = next(iter(tensors.values())).device
            outputs = [output.to(device) for output in task.reference({name: tensor.cpu() for name, tensor in tensors.items()})]
        return outputs
    except torch.OutOfMemoryError:
        raise  # no fault of the reference
    except Exception as error:
        raise user_error(f"The reference of {task.table['family']} fails {how}: {describe(error)}", error) from error


def _out_of_range(reference, eager):
    for wide, narrow in zip(reference, eager):
        if not narrow.is_floating_point():
            continue
        finite = torch.isfinite(wide)
        too_large = ~torch.isfinite(narrow) | (wide.abs() > _HEADROOM * torch.finfo(narrow.dtype).max)
        if bool((finite & too_large).any()):
            return True
    return False


def _shrink_data(task, tensors):
    for tensor in task.inputs():
        values = tensors[tensor["name"]]
        if tensor["role"] == "data" and values.is_floating_point():
            whole_storage(values).mul_(_SHRINK)


def _widened(tensor):
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _from_the_start(tensor):
    """The tensor, at the beginning of its memory: PyTorch's attention on CUDA reads amiss where data is not aligned to 16 bytes."""
    offset = tensor.storage_offset()
    return whole_storage(tensor)[offset:].clone().as_strided(tensor.shape, tensor.stride()) if offset else tensor


# --- one tensor


def _special_tensor(task, case):
    """The name of the one data tensor that gets infinities or NaN."""
    names = [t["name"] for t in task.inputs() if t["role"] == "data" and tensor_dtype(t, task.dtype).is_floating_point]
    return names[case.get("seed", 0) % len(names)] if names else None


def _build(task, case, tensor, position, special, device):
    dims, dtype = case["dims"], tensor_dtype(tensor, task.dtype)
    shape = [expression.evaluate(size, dims) for size in tensor["shape"]]
    strides, offset = _layout(case, tensor, shape)
    random = torch.Generator(device).manual_seed((case.get("seed", 0) * 7919 + position) % 2**63)
    varied = [1 if stride == 0 and size > 1 else size for size, stride in zip(shape, strides)]
    values = _values(task, case, tensor, varied, dtype, special, random)
    return _placed(values, shape, varied, strides, offset)


def _values(task, case, tensor, shape, dtype, special, random):
    generator = case.get("generator") or "normal"
    if tensor["role"] == "weight":
        return generators.weight(shape, dtype, random)
    if tensor["role"] == "index":
        limit = expression.evaluate(tensor.get("range", 1), case["dims"])
        return generators.index(generator, shape, dtype, limit, task.table.get("scalars", {}).get(tensor.get("ignored")), random)
    if generator in generators.ONE_TENSOR_ONLY and tensor["name"] != special:
        generator = "normal"
    if tensor.get("hides"):
        return generators.additive_mask(generator, shape, dtype, random)
    if tensor.get("factors"):
        return generators.factors(generator, shape, dtype, _factors_of_an_answer(task, case, shape), random)
    return generators.data(generator, shape, dtype, random)


def _factors_of_an_answer(task, case, shape):
    answers = math.prod(expression.evaluate(size, case["dims"]) for size in task.outputs()[0]["shape"])
    return math.prod(shape) // max(answers, 1)


def contiguous_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return strides


def _layout(case, tensor, shape):
    """(strides, offset in elements) of a tensor in a case."""
    given = (case.get("strides") or {}).get(tensor["name"])
    if given is not None:
        if len(given) != len(shape):
            raise user_error(f"The case gives {len(given)} strides for the {len(shape)} dims of {tensor['name']}.")
        return list(given), 0
    layout = case.get("layout") or "contiguous"
    if layout == "contiguous":
        return contiguous_strides(shape), 0
    if layout == "misaligned":
        return contiguous_strides(shape), _MISALIGNED_BY
    if layout not in ("strided", "transposed"):
        raise user_error(f"Unknown layout '{layout}': use contiguous, strided, misaligned or transposed.")
    if tensor["role"] != "data" or len(shape) < 2:
        return contiguous_strides(shape), 0
    if layout == "strided":
        padded = contiguous_strides([*shape[:-1], shape[-1] + (3 if case.get("seed", 0) % 2 else 8)])
        return padded, 0
    swapped = contiguous_strides([*shape[:-2], shape[-1], shape[-2]])
    return [*swapped[:-2], swapped[-1], swapped[-2]], 0


def _placed(values, shape, varied, strides, offset):
    """`values` in a storage of exactly the span of the layout, what lies between being NaN or zero."""
    span = 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    storage = torch.full((offset + span,), float("nan") if values.is_floating_point() else 0, dtype=values.dtype, device=values.device)
    if span:
        storage.as_strided(varied, strides, offset).copy_(values)
    return storage.as_strided(shape, strides, offset)


def whole_storage(tensor):
    """The 1-D storage that a tensor made here lies in."""
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())


# --- files


def _stored_inputs(tensors):
    metadata = {}
    for name, tensor in tensors.items():
        metadata[f"{name}.shape"] = json.dumps(list(tensor.shape))
        metadata[f"{name}.strides"] = json.dumps(list(tensor.stride()))
        metadata[f"{name}.offset"] = str(tensor.storage_offset())
        metadata[f"{name}.dtype"] = dtype_name(tensor.dtype)
    return {name: whole_storage(tensor) for name, tensor in tensors.items()}, metadata


def _stored_outputs(task, case, reference, eager):
    outputs = task.outputs()
    if len(outputs) != len(eager):
        raise user_error(f"The reference of {task.table['family']} returns {len(eager)} outputs where the task has {len(outputs)}.")
    tensors, metadata = {}, {}
    for tensor, wide, narrow in zip(outputs, reference, eager):
        name = tensor["name"]
        _check_output(task, case, tensor, narrow)
        tensors[f"{name}.reference"] = wide.to(_stored_reference(narrow.dtype)).contiguous()
        tensors[f"{name}.eager"] = (narrow if narrow.is_floating_point() else narrow.to(torch.int64)).contiguous()
        strides = (case.get("strides") or {}).get(name) or contiguous_strides(list(narrow.shape))
        metadata[f"{name}.shape"] = json.dumps(list(narrow.shape))
        metadata[f"{name}.strides"] = json.dumps(strides)
        metadata[f"{name}.dtype"] = dtype_name(narrow.dtype)
    return tensors, metadata


def _stored_reference(dtype):
    """Twice the digits of an output's dtype say as much of its error as all of them, in a smaller file."""
    if not dtype.is_floating_point:
        return torch.int64
    return torch.float32 if dtype.itemsize == 2 else torch.float64


def _check_output(task, case, tensor, made):
    shape, dtype = [expression.evaluate(size, case["dims"]) for size in tensor["shape"]], tensor_dtype(tensor, task.dtype)
    if list(made.shape) != shape or made.dtype != dtype:
        raise user_error(
            f"The reference of {task.table['family']} gives {tensor['name']} as {dtype_name(made.dtype)} {list(made.shape)}; "
            f"the task says {dtype_name(dtype)} {shape}."
        )
