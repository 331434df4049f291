"""Functions in children of their own, within limits of time and memory: whatever happens there is a result here."""

import ctypes
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


def call(function, arguments, *, seconds, memory_bytes, log):
    """`function(*arguments)`, which returns what JSON can hold, in a forked child that logs to the file `log`.

    Returns {"result": …} or {"failed": "error" | "timed_out" | "out_of_memory" | "died", "text": …, "trace": …}.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _run_child(function, arguments, write_end, log)
    os.close(write_end)
    try:
        return _watch(child, read_end, seconds, memory_bytes)
    finally:
        os.close(read_end)
        _end(child)


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


def _watch(child, read_end, seconds, memory_bytes):
    deadline, parts = time.monotonic() + seconds, []
    while True:
        ready, _, _ = select.select([read_end], [], [], _POLL_S)
        if ready:
            part = os.read(read_end, 1 << 20)
            if not part:
                return _read(parts, child)
            parts.append(part)
        if time.monotonic() > deadline:
            return {"failed": "timed_out", "text": f"It took longer than {seconds:.0f} s.", "trace": None}
        if resident_bytes(child) > memory_bytes:
            return {"failed": "out_of_memory", "text": f"It took more than {memory_bytes / 2**30:.1f} GiB of memory.", "trace": None}


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


def _end(child):
    """Kill what is left of the child's group, and reap it."""
    for kill in (os.killpg, os.kill):  # it may not have made its group yet
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.waitpid(child, 0)
