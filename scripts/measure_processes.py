"""Commands in sessions of their own, and the end of all that they started."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

GRACE_S = 20  # to write down what there is, after Ctrl-C
_ROOT = Path(__file__).resolve().parents[1]
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def adopt_what_is_left():
    """Let what a job leaves behind come to this process, which ends it."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)


def run_command(words, output, log, environment, seconds):
    """Run it in a session of its own; (exit code or None where the time was over, how many processes it left)."""
    with open(output, "w", encoding="utf-8") as file:
        try:
            process = subprocess.Popen(words, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=log, start_new_session=True)
        except OSError as error:
            print(error, file=log, flush=True)
            return 127, 0
        try:
            return process.wait(max(0.0, seconds)), end_left_over()
        except subprocess.TimeoutExpired:
            ask_to_end(process)
            return None, 0
        except BaseException:
            ask_to_end(process)
            raise
        finally:
            end_left_over()


def ask_to_end(process):
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_left_over():
    """Kill whatever descends from this process, which has waited for its own children; how many there were."""
    ended = set()
    while found := descendants(os.getpid()):
        ended |= found
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    with contextlib.suppress(ChildProcessError):  # those that came to this process are its to reap
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return len(ended)


def descendants(ancestor):
    """Processes below this one that have not ended."""
    parents, ended = {}, set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        parents[int(name)] = int(parent)
        if state in "ZX":
            ended.add(int(name))
    found, layer = set(), {ancestor}
    while layer := {child for child, parent in parents.items() if parent in layer} - found:
        found |= layer
    return found - ended
