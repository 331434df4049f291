"""The verb `baseline`: times PyTorch's own ways of doing a task, with a cold cache, interleaved."""

import contextlib
import dataclasses
import json
import time
from pathlib import Path
from unittest import mock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from autokernel import device as devices
from autokernel.errors import WorkerError, describe, user_error
from autokernel.fixtures import build_inputs, read_task

_WARM_UP = 2
_WARM_UP_S = 0.2  # of a CUDA device, so that its clock is up
_LEAD_US = 20.0
_MOST_ATTEMPTS = 3
_TOLERATED_WAIT_US, _TOLERATED_WAIT_SHARE = 40.0, 0.05  # of all threads together: waking up costs as much; as the judge has it
_LEAST_CLEAN = 5
_COMPILE_MODES = {"compile": None, "compile_max_autotune": "max-autotune-no-cudagraphs"}
_SDPA_BACKENDS = {
    "library_flash": SDPBackend.FLASH_ATTENTION,
    "library_cudnn": SDPBackend.CUDNN_ATTENTION,
    "library_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "library_math": SDPBackend.MATH,
}
_KINDS = ("eager", "library", *_COMPILE_MODES, *_SDPA_BACKENDS)


@dataclasses.dataclass
class _Prepared:
    """A way of doing the task: a call without arguments, warmed up."""

    call: object
    lead_us: float = 0.0
    about: dict = dataclasses.field(default_factory=dict)  # what the reply says of it beside its samples


def baseline(session, arguments, progress):
    """Samples of each kind: `eager` is the spelling as the model wrote it, `library` the family's reference (on CUDA also with each backend
    of SDPA forced, where it calls that), `compile` and `compile_max_autotune` the compiled spelling.
    """
    device = devices.of_request(session, arguments)
    ways = _ways_of(session, arguments, device)
    with torch.no_grad():
        kinds = _kinds(ways.task, ways.tensors, arguments.get("kinds"), device)
        for position, kind in enumerate(kinds):
            progress(f"Preparing the baseline {kind}", position, len(kinds))
            ways.prepare(kind)
        rounds, flush_bytes = max(1, int(arguments.get("rounds") or 20)), int(arguments.get("flush_bytes") or 0)
        prepared = {kind: ways.prepared[kind] for kind in kinds if kind in ways.prepared}
        samples = _measure(prepared, rounds, devices.Flush(device, flush_bytes), device)
    results = {kind: {"error": ways.errors[kind]} for kind in kinds if kind in ways.errors}
    for kind, values in samples.items():
        results[kind] = {"samples_us": values, **prepared[kind].about}
    return {"kinds": results, **({"tf32": devices.tf32()} if device.type == "cuda" else {})}


def compile_ahead(session, arguments, progress):
    """Fill Inductor's caches for baselines to come. Other processes may keep the device busy, so which of its choices were fastest is not kept."""
    device = devices.of_request(session, arguments)
    wanted, failed = arguments["tasks"], 0
    with torch.no_grad(), _choices_forgotten():
        for position, task in enumerate(wanted):
            progress("Compiling baselines ahead", position, len(wanted))
            ways = _Ways("", session, {**task, "seed": arguments.get("seed")}, device)
            for kind in arguments["kinds"]:
                try:
                    _spelled(ways.task, ways.tensors, kind)()
                except Exception:  # it says so where it is measured
                    failed += 1
            devices.release(device)
    return {"tasks": len(wanted), "failed": failed}


@contextlib.contextmanager
def _choices_forgotten():
    from torch._inductor.runtime import autotune_cache

    def save(*_, **__):
        """A compiled graph is cached with this method in it, by its name."""

    with mock.patch.object(autotune_cache.AutotuneCache, "save", save):
        yield


def _ways_of(session, arguments, device):
    """The ways of the task that was asked for last are kept: its winner is measured against them once more, and compiling takes long."""
    key = json.dumps([arguments["task"], arguments["binding"], arguments.get("seed"), str(device)], sort_keys=True)
    if session.ways is None or session.ways.key != key:
        session.ways = None
        devices.release(device)
        session.ways = _Ways(key, session, arguments, device)
    return session.ways


class _Ways:
    """The inputs of a task, and the ways of doing it on them that were asked for so far."""

    def __init__(self, key, session, arguments, device):
        self.key = key
        self.device = device
        self.task = read_task(session, arguments)
        case = {**arguments["binding"], "generator": "normal", "seed": arguments.get("seed") or 0}
        self.tensors = build_inputs(self.task, case, device)
        self.prepared, self.errors = {}, {}
        torch._dynamo.reset()

    def prepare(self, kind):
        if kind in self.prepared or kind in self.errors:
            return
        try:
            self.prepared[kind] = _prepare(self.task, self.tensors, kind, self.device)
        except Exception as error:  # a baseline that does not run says so; the others stand
            self.errors[kind] = error.message if isinstance(error, WorkerError) else describe(error)


def _kinds(task, tensors, asked, device):
    """What to time: as asked, and on CUDA every backend of SDPA where `library` calls that."""
    kinds = list(asked or ["eager", "library", "compile", *(["compile_max_autotune"] if device.type == "cuda" else [])])
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise user_error(f"Unknown baseline '{unknown[0]}': use {', '.join(_KINDS)}.")
    if device.type == "cuda" and "library" in kinds and _calls_sdpa(task, tensors):
        kinds += [kind for kind in _SDPA_BACKENDS if kind not in kinds]
    return kinds


class SdpaSeen(TorchFunctionMode):
    """Notes whether scaled_dot_product_attention is called."""

    seen = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen |= function is torch.nn.functional.scaled_dot_product_attention
        return function(*args, **(kwargs or {}))


def _calls_sdpa(task, tensors):
    with SdpaSeen() as mode, contextlib.suppress(Exception):  # where it does not run, preparing it says so
        task.reference(tensors)
    return mode.seen


def _prepare(task, tensors, kind, device):
    if kind in _SDPA_BACKENDS:
        call = _forced(lambda: task.reference(tensors), _SDPA_BACKENDS[kind])
    elif kind == "library":
        call = lambda: task.reference(tensors)  # noqa: E731
    else:
        call = _spelled(task, tensors, kind)
    for _ in range(_WARM_UP):
        call()
    if device.type != "cuda":
        return _Prepared(call)
    host_us = devices.host_us(device, call)
    call, no_graph = devices.in_graph(call, device)
    about = {"host_us": host_us, "graph": no_graph is None, **({"graph_error": no_graph} if no_graph else {})}
    return _Prepared(call, _LEAD_US + (2 * host_us if no_graph else 0), about)


def _forced(call, backend):
    def forced():
        with sdpa_kernel(backend):
            return call()

    return forced


def _spelled(task, tensors, kind):
    name = task.table.get("spelling")
    if not name:
        return lambda: task.reference(tensors)
    spelling = task.family.spelling(name, tensors, task.table.get("options", {}))
    function = task.family.function(name)
    scalars = {key: task.table.get("scalars", {}).get(key, task.family.scalars.get(key)) for key in spelling.get("scalars", [])}
    arguments = {
        tensor["name"]: as_spelled(tensors[tensor["name"]], tensor["shape"], spelling["labels"][tensor["name"]]) for tensor in task.inputs()
    }
    if kind in _COMPILE_MODES:
        function = torch.compile(function, mode=_COMPILE_MODES[kind], dynamic=False)
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


def _measure(prepared, rounds, flush, device, waited_us=None):
    """Samples in microseconds of each call, one of each in every round, the cache emptied before each.

    On a CPU other work may keep the threads waiting, which says nothing about PyTorch: such a sample is taken again, at most twice. Where
    nearly all are disturbed, the fastest are nearest to the truth, and no kernel is to gain by a baseline that was.
    """
    waited_us = waited_us or (_waited_us if device.type == "cpu" else lambda: 0.0)
    _warm(prepared, device)
    samples, clean = {kind: [] for kind in prepared}, {kind: [] for kind in prepared}
    for _ in range(rounds):
        for kind, way in prepared.items():
            for _ in range(_MOST_ATTEMPTS):
                flush()
                before = waited_us()
                us = devices.elapsed_us(device, way.call, lead_us=way.lead_us)
                samples[kind].append(us)
                if waited_us() - before <= _TOLERATED_WAIT_US + _TOLERATED_WAIT_SHARE * us:
                    clean[kind].append(us)
                    break
    least = min(rounds, _LEAST_CLEAN)
    return {kind: clean[kind] if len(clean[kind]) >= least else sorted(samples[kind])[:least] for kind in samples}


def _waited_us():
    """How long the threads of this process were ready to run and had no CPU; 0 where the system does not tell."""
    waited_ns = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError):  # a thread may have ended
            waited_ns += int(file.read_text().split()[1])
    return waited_ns / 1e3


def _warm(prepared, device):
    begin = time.perf_counter()
    while prepared and device.type == "cuda" and time.perf_counter() - begin < _WARM_UP_S:
        for way in prepared.values():
            way.call()
        devices.synchronise(device)
