"""A directory in shared memory that is removed after use, or after a kill by the next process that makes one: src/core/file.h has the same in C++."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_OWNER_FILE = ".owner"  # locked as long as the directory is in use


class TemporaryDirectory:
    """`path` is a new directory; close() removes it with all its content."""

    def __init__(self, prefix):
        where = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
        _remove_abandoned(where, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        unlocked = self.path / f"{_OWNER_FILE}.new"
        self._owner = open(unlocked, "wb")
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        os.rename(unlocked, self.path / _OWNER_FILE)  # nobody sees it before it is locked

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)
        self._owner.close()


def _remove_abandoned(where, prefix):
    for path in where.glob(f"{prefix}*"):
        try:
            owner = os.open(path / _OWNER_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # another user's, or being made
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass  # in use
        finally:
            os.close(owner)
