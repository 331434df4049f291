"""Limits of a process that compiles a candidate: what it may read and write, no network, how much memory, time and disk."""

import ctypes
import os
import pathlib
import resource
import signal
import sys

from autokernel import library

_PR_SET_PDEATHSIG = 1
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def leave_network():
    """Into a network of its own, without any interface, where the kernel lets a user make one. Before die_with_parent(), which it undoes."""
    _libc.unshare(_NEW_USER | _NEW_NETWORK)


def die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def limit_resources(cpu_seconds, memory_bytes, file_bytes):
    """`memory_bytes` come on top of what the process has mapped already."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_AS, mapped + memory_bytes),
    ):
        resource.setrlimit(which, (value, value))


def close(directory, programs):
    """Read Python, Triton and the system's libraries, run `programs`, write in `directory`; no network, no other process. The levels reached: library.confine()."""
    loader = [path for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64") if os.path.exists(path)]  # of a program, which is executed, too
    return library.confine(_readable(), [*loader, *programs], [directory, "/dev/null"])


def _readable():
    import triton

    return {sys.prefix, sys.base_prefix, pathlib.Path(triton.__file__).parent, "/etc/ld.so.cache", "/dev/urandom", "/proc/self", "/proc/cpuinfo"}
