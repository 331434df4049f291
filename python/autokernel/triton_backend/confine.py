"""Limits of a process that compiles a candidate: what it may read and write, no network, how much memory, time and disk."""

import ctypes
import os
import pathlib
import resource
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls of Landlock, the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1, 4, 8
_ALL_FILES = (1 << 14) - 1  # of version 2, the first that lets a file be renamed into another directory, as Triton's cache does
_WRITE_FILE = 2
_NETWORK = 3  # bind and connect, from version 4
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("directory", ctypes.c_int32)]


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


def close_files(directory, programs):
    """By Landlock, where the kernel has version 2 of it: read Python, Triton and the system's libraries, run `programs`, write in `directory`, connect to nothing."""
    version = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    if version < 2:
        return
    handled = _Ruleset(_ALL_FILES, _NETWORK)
    rules = _libc.syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(16 if version >= 4 else 8), 0)
    if rules < 0:
        return
    for readable in _readable():
        _allow(rules, readable, _READ_FILE | _READ_DIRECTORY)
    for library in ("/lib", "/lib64", "/usr/lib", "/usr/lib64"):
        _allow(rules, library, _READ_FILE | _READ_DIRECTORY | _EXECUTE)  # the loader of a program is executed, too
    for program in programs:
        _allow(rules, program, _READ_FILE | _EXECUTE)
    _allow(rules, "/dev/null", _READ_FILE | _WRITE_FILE)
    _allow(rules, directory, _ALL_FILES & ~_EXECUTE)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _readable():
    import triton

    return {sys.prefix, sys.base_prefix, pathlib.Path(triton.__file__).parent, "/etc/ld.so.cache", "/dev/urandom", "/proc/self", "/proc/cpuinfo"}


def _allow(rules, path, access):
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        access &= _EXECUTE | _READ_FILE | _WRITE_FILE
    rule = _PathRule(access, descriptor)
    _libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(descriptor)
