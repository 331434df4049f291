"""The verb `baseline`: times PyTorch's own ways of doing a task, with a cold cache, interleaved."""

import time

import torch

from autokernel.errors import WorkerError, describe, user_error
from autokernel.fixtures import build_inputs, read_task
from autokernel.profile import wait_for

_WARM_UP = 2
_KINDS = ("eager", "library", "compile")


def baseline(session, arguments, progress):
    """Samples of each kind: `eager` is the spelling as the model wrote it,
    `library` the family's reference, `compile` the compiled spelling.
    """
    task = read_task(session, arguments)
    kinds = arguments.get("kinds") or list(_KINDS)
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise user_error(f"Unknown baseline '{unknown[0]}': use {', '.join(_KINDS)}.")
    tensors = build_inputs(task, {**arguments["binding"], "generator": "normal", "seed": arguments.get("seed") or 0})
    results, calls = {}, {}
    with torch.no_grad():
        for position, kind in enumerate(kinds):
            progress(f"Preparing the baseline {kind}", position, len(kinds))
            try:
                calls[kind] = _prepared(task, tensors, kind)
            except Exception as error:  # a baseline that does not run says so; the others stand
                results[kind] = {"error": error.message if isinstance(error, WorkerError) else describe(error)}
        samples = _measure(calls, max(1, int(arguments.get("rounds") or 20)), int(arguments.get("flush_bytes") or 0))
    return {"kinds": {**results, **{kind: {"samples_us": values} for kind, values in samples.items()}}}


def _prepared(task, tensors, kind):
    """A call without arguments, warmed up."""
    if kind == "library":
        call = lambda: task.reference(tensors)  # noqa: E731
    else:
        call = _spelled(task, tensors, compiled=kind == "compile")
    for _ in range(_WARM_UP):
        call()
    return call


def _spelled(task, tensors, compiled):
    name = task.table.get("spelling")
    if not name:
        return lambda: task.reference(tensors)
    spelling = task.family.spelling(name, tensors, task.table.get("options", {}))
    function = task.family.function(name)
    scalars = {key: task.table.get("scalars", {}).get(key, task.family.scalars.get(key)) for key in spelling.get("scalars", [])}
    arguments = {
        tensor["name"]: as_spelled(tensors[tensor["name"]], tensor["shape"], spelling["labels"][tensor["name"]]) for tensor in task.inputs()
    }
    if compiled:
        torch._dynamo.reset()
        function = torch.compile(function, dynamic=False)
    return lambda: function(**arguments, **scalars)


def as_spelled(tensor, shape, labels):
    """A contract's tensor seen as a spelling receives it: permuted, with dims of size 1, without dims it broadcasts over."""
    wanted = [str(label).lstrip("*") for label in labels]
    dims = [str(dim) for dim in shape]
    for position in reversed(range(len(dims))):
        if dims[position] not in wanted:
            tensor = tensor.select(position, 0)
            del dims[position]
    order = []
    for label in (label for label in wanted if label in dims):
        order.append(next(i for i, dim in enumerate(dims) if dim == label and i not in order))
    tensor = tensor.permute(order)
    for position, label in enumerate(wanted):
        if label not in dims:
            tensor = tensor.unsqueeze(position)
    return tensor


def _measure(calls, rounds, flush_bytes):
    """Samples in microseconds of each call, one of each in every round, the cache emptied before each by reading."""
    flush = torch.ones(flush_bytes // 4) if flush_bytes >= 4 else None
    device = torch.device("cpu")
    samples = {kind: [] for kind in calls}
    for _ in range(rounds):
        for kind, call in calls.items():
            if flush is not None:
                flush.sum()
            start = time.perf_counter_ns()
            call()
            wait_for(device)
            samples[kind].append((time.perf_counter_ns() - start) / 1000)
    return samples
