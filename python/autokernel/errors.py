"""Errors that cross the worker's protocol, and tracebacks cut down to the user's own frames."""

import os
import traceback


class WorkerError(Exception):
    """A failure with its `kind` ("user", "environment" or "bug") and, for a user's fault, the user's own traceback."""

    def __init__(self, kind, message, trace=None):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.trace = trace


def user_error(message, cause=None):
    """An error of the user's making; `cause` is the exception that their code raised."""
    return WorkerError("user", message, None if cause is None else user_traceback(cause))


def environment_error(message):
    return WorkerError("environment", message)


def describe(error):
    """`ValueError: text` of an exception, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def user_traceback(error):
    """The traceback of `error` with the user's frames only: none of this package, of the import system or of PyTorch."""
    here = os.path.dirname(os.path.abspath(__file__))
    stack = traceback.TracebackException.from_exception(error).stack
    frames = [frame for frame in stack if not frame.filename.startswith((here, "<frozen")) and not _is_torch(frame.filename)]
    lines = ["Traceback (most recent call last):\n"] if frames else []
    lines += traceback.format_list(frames)
    lines += traceback.format_exception_only(type(error), error)
    return "".join(lines)


def _is_torch(filename):
    return f"{os.sep}site-packages{os.sep}torch{os.sep}" in filename
