"""libautokernel.so through ctypes: what it answers, and how it confines a process. Needs no PyTorch."""

import ctypes
import functools
import json

from autokernel import installation


class RuntimeFailure(Exception):
    """libautokernel.so is missing, or refused; the text says why."""


@functools.cache
def loaded():
    """The library, its functions declared. errors: RuntimeFailure."""
    try:
        library = ctypes.CDLL(installation.library_path())
    except (OSError, installation.NotInstalled) as error:
        raise RuntimeFailure(f"libautokernel.so cannot be loaded: {error}") from None
    for name, result, arguments in (
        ("ak_match", ctypes.c_void_p, [ctypes.c_char_p] * 3),
        ("ak_open", ctypes.c_int64, [ctypes.c_char_p] * 2),
        ("ak_plan", ctypes.c_void_p, [ctypes.c_char_p] * 2),
        ("ak_register", ctypes.c_int, []),
        ("ak_calls", ctypes.c_int64, [ctypes.c_int64]),
        ("ak_weights_changed", None, []),
        ("ak_confine", ctypes.c_void_p, [ctypes.c_char_p]),
        ("ak_close", None, [ctypes.c_int64]),
        ("ak_last_error", ctypes.c_char_p, []),
        ("ak_free", None, [ctypes.c_void_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def failure():
    """The library's last error in this thread, to be raised."""
    return RuntimeFailure(loaded().ak_last_error().decode())


def answer(text):
    """The JSON that a function of the library returned, which is freed here. errors: RuntimeFailure where it returned nothing."""
    if not text:
        raise failure()
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        loaded().ak_free(text)


def confine(read, run, write):
    """Confine this process for good to these files, and to the calls that a compiler needs; the levels reached, of "files" and "calls"."""
    rules = {"read": [*map(str, read)], "run": [*map(str, run)], "write": [*map(str, write)]}
    return answer(loaded().ak_confine(json.dumps(rules).encode()))["levels"]
