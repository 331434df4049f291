"""What differs between the CPU and a CUDA device: waiting, clocks, an empty cache, memory, graphs of launches."""

import statistics
import time

import torch

from autokernel import models

CPU = torch.device("cpu")
_CYCLES_PER_US = 2000  # at 2 GHz; at a lower clock the device is busy for longer, which does no harm
_CAPTURE_WARM_UP = 3
_HOST_SAMPLES = 15
_KEPT_BYTES = 1 << 30  # of PyTorch's cache, from one request to the next
_NODES_PER_LEAD = 64
_LEAD_US_PER_NODE = 50.0  # the interpreter queues a node in less


def of_request(session, arguments):
    """The device that a request names, else the loaded model's, else the CPU."""
    if arguments.get("device"):
        return models.parse_device(arguments["device"])
    return CPU if session.loaded is None else session.loaded.device


def synchronise(device):
    """Wait until the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device):
    """Give back what PyTorch keeps of device memory, where it is much: the judge works on the same device."""
    if device.type == "cuda" and torch.cuda.memory_reserved(device) > _KEPT_BYTES:
        torch.cuda.empty_cache()


def is_broken():
    """Whether this process has lost its CUDA context: an earlier fault, and every call from then on fails with it."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
        return False
    except RuntimeError:
        return True


def tf32():
    """Whether float32 matrix products may use TF32, here and so in every baseline and fixture of this process."""
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


# --- clocks


def lead(device, us):
    """Keep a CUDA device busy for `us` at least, so that what the host queues meanwhile follows without gaps."""
    if device.type == "cuda" and us > 0:
        torch.cuda._sleep(int(us * _CYCLES_PER_US))


def elapsed_us(device, call, repeats=1, lead_us=0.0):
    """Microseconds from the first of `repeats` calls to the end of their work; on CUDA by events, after a lead of `lead_us`."""
    if device.type != "cuda":
        begin = time.perf_counter_ns()
        for _ in range(repeats):
            call()
        return (time.perf_counter_ns() - begin) / 1000
    begin, end = _event(), _event()
    lead(device, lead_us)
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return 1000 * begin.elapsed_time(end)


def host_us(device, call):
    """Median time that a call keeps the host, the device idle before it."""
    samples = []
    for _ in range(_HOST_SAMPLES):
        synchronise(device)
        begin = time.perf_counter_ns()
        call()
        samples.append((time.perf_counter_ns() - begin) / 1000)
    synchronise(device)
    return statistics.median(samples)


def _event():
    return torch.cuda.Event(enable_timing=True)


def stopwatch(device):
    """Times many short pieces of work in turn: `time(name, call)` returns what the call returns, `end()` {name: microseconds} of the run."""
    return _DeviceStopwatch(device) if device.type == "cuda" else _HostStopwatch()


class _HostStopwatch:
    def __init__(self):
        self.times = {}

    def time(self, name, call):
        begin = time.perf_counter_ns()
        result = call()
        self.times[name] = (time.perf_counter_ns() - begin) / 1000
        return result

    def end(self):
        times, self.times = self.times, {}
        return times


class _DeviceStopwatch:
    """Event pairs, queued behind a lead: the device never waits for the host between the two. An empty pair's time is taken off."""

    def __init__(self, device):
        self.device = device
        self.pairs = {}
        self.empty_us = statistics.median(elapsed_us(device, lambda: None, lead_us=_LEAD_US_PER_NODE) for _ in range(_HOST_SAMPLES))

    def time(self, name, call):
        if len(self.pairs) % _NODES_PER_LEAD == 0:
            synchronise(self.device)
            lead(self.device, _NODES_PER_LEAD * _LEAD_US_PER_NODE)
        begin, end = _event(), _event()
        begin.record()
        result = call()
        end.record()
        self.pairs[name] = (begin, end)
        return result

    def end(self):
        synchronise(self.device)
        pairs, self.pairs = self.pairs, {}
        return {name: max(0.0, 1000 * begin.elapsed_time(end) - self.empty_us) for name, (begin, end) in pairs.items()}


# --- an empty cache


class Flush:
    """Empties the last cache by reading a buffer: writing would leave dirty lines, whose write-back falls into what is timed."""

    def __init__(self, device, size_bytes):
        """`size_bytes`: 0 for no flush; on CUDA at least twice the L2."""
        self.buffer = None
        if size_bytes > 0:
            size_bytes = max(size_bytes, 2 * l2_bytes(device))
            self.buffer = torch.ones(max(1, size_bytes // 4), device=device)
            self.sum = torch.empty((), device=device)
            self()  # its own lines are dirty now
            synchronise(device)

    def __call__(self):
        if self.buffer is not None:
            torch.sum(self.buffer, 0, out=self.sum)


def l2_bytes(device):
    """Size of a CUDA device's L2; 0 where PyTorch does not know."""
    return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) if device.type == "cuda" else 0


# --- graphs of launches


def captured(call, device):
    """A function that replays `call` as one CUDA graph and returns what it returned, in the same memory.

    errors: whatever PyTorch raises for work that cannot be captured.
    """
    stream, outer = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(outer)
    with torch.cuda.stream(stream):
        for _ in range(_CAPTURE_WARM_UP):
            call()
    outer.wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = call()
    finally:
        torch.cuda.set_stream(outer)  # a failed capture leaves its own
        synchronise(device)

    def replay():
        graph.replay()
        return result

    return replay


def in_graph(call, device, check=None):
    """(the call as a replay of its CUDA graph, None), or (the call itself, why there is no graph).

    `check(replay)` raises where the graph does not do what the call does.
    """
    if device.type != "cuda":
        return call, "the CPU has no CUDA graphs"
    try:
        replay = captured(call, device)
        if check is not None:
            check(replay)
        return replay, None
    except Exception as error:  # much cannot be captured; it is timed as it is called
        return call, " ".join(str(error).split())[:200] or type(error).__name__
