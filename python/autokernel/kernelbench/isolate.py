"""Functions in children of their own, within limits of time and memory: whatever happens there is a result here."""

import ctypes
import dataclasses
import json
import os
import select
import signal
import sys
import time

from autokernel.errors import WorkerError, describe, user_traceback

_POLL_S = 0.05
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "Cannot allocate memory")


@dataclasses.dataclass(frozen=True)
class Call:
    """`function(*arguments)`, which returns what JSON can hold, in a forked child that logs to the file `log`."""

    function: object
    arguments: tuple
    log: str
    weight: float = 0.0  # its part of what those at the same time may take together


def call(function, arguments, *, seconds, memory_bytes, log):
    """One call: {"result": …} or {"failed": "error" | "timed_out" | "out_of_memory" | "died", "text": …, "trace": …}."""
    ((_, answer),) = call_all([Call(function, arguments, log)], seconds=seconds, memory_bytes=memory_bytes)
    return answer


def call_all(calls, *, seconds, memory_bytes, at_once=1, capacity=1.0):
    """(position, answer) of each call when it ends; `at_once` of them run at the same time, while their weights are within `capacity`
    together. A call of a larger weight runs alone.
    """
    waiting, running = list(enumerate(calls)), {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once and _fits(waiting[0][1], running.values(), capacity):
                position, begun = waiting.pop(0)
                running[position] = _Child(begun, seconds, memory_bytes)
            ready, _, _ = select.select([child.read_end for child in running.values()], [], [], _POLL_S)
            for position, child in list(running.items()):
                answer = child.advance(child.read_end in ready)
                if answer is not None:
                    running.pop(position).end()
                    yield position, answer
    finally:
        for child in running.values():
            child.end()


def _fits(begun, running, capacity):
    return not running or begun.weight + sum(child.weight for child in running) <= capacity


def available_bytes():
    """Memory that a process may take now without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    raise OSError("/proc/meminfo does not say what is available")


def die_with_parent():
    """To be called in a child: a parent that is killed cannot end it."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


# --- the child


def _run_child(function, arguments, write_end, log):
    code = 1
    try:
        os.setsid()
        die_with_parent()
        _place_log(log)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # if the machine runs out of memory, it is this process that goes
        answer = _answer(function, arguments)
        with os.fdopen(write_end, "w", encoding="utf-8") as pipe:
            json.dump(answer, pipe, allow_nan=False)
        code = 0
    except BaseException as error:  # nothing of the parent may run on in here
        print(describe(error), file=sys.stderr, flush=True)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _place_log(log):
    os.makedirs(os.path.dirname(os.path.abspath(log)), exist_ok=True)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, source in ((0, nothing), (1, target), (2, target)):
        os.dup2(source, descriptor)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1, closefd=False) for descriptor in (1, 2))


def _answer(function, arguments):
    try:
        return {"result": function(*arguments)}
    except WorkerError as error:
        return {"failed": "error", "text": error.message, "trace": error.trace}
    except (Exception, SystemExit) as error:
        kind = "out_of_memory" if _is_out_of_memory(error) else "error"
        return {"failed": kind, "text": describe(error)[:2000], "trace": user_traceback(error)}


def _is_out_of_memory(error):
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(text in str(error) for text in _OUT_OF_MEMORY)


# --- the parent


class _Child:
    """A call that was begun."""

    def __init__(self, begun, seconds, memory_bytes):
        self.weight, self.seconds, self.memory_bytes = begun.weight, seconds, memory_bytes
        self.deadline, self.parts = time.monotonic() + seconds, []
        self.read_end, write_end = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            os.close(self.read_end)
            _run_child(begun.function, begun.arguments, write_end, begun.log)
        os.close(write_end)

    def advance(self, can_read):
        """The answer, or None where it is not there yet."""
        if can_read:
            part = os.read(self.read_end, 1 << 20)
            if not part:
                return _read(self.parts, self.process)
            self.parts.append(part)
        if time.monotonic() > self.deadline:
            return {"failed": "timed_out", "text": f"It took longer than {self.seconds:.0f} s.", "trace": None}
        if resident_bytes(self.process) > self.memory_bytes:
            return {"failed": "out_of_memory", "text": f"It took more than {self.memory_bytes / 2**30:.1f} GiB of memory.", "trace": None}
        return None

    def end(self):
        """Kill what is left of its group, and reap it."""
        os.close(self.read_end)
        for kill in (os.killpg, os.kill):  # it may not have made its group yet
            try:
                kill(self.process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.waitpid(self.process, 0)


def resident_bytes(process):
    """Memory that a process holds; 0 where it has ended."""
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            return _PAGE_BYTES * int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _read(parts, child):
    try:
        return json.loads(b"".join(parts))
    except ValueError:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        return {"failed": "died", "text": f"Its process ended by {_ending(ended)}.", "trace": None}


def _ending(ended):
    if ended.si_code == os.CLD_EXITED:
        return f"exit code {ended.si_status}"
    return f"signal {ended.si_status} ({signal.strsignal(ended.si_status)})"
