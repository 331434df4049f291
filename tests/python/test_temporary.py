"""Directories in shared memory do not outlive their processes for long."""

import subprocess
import sys
from pathlib import Path

from autokernel.temporary import TemporaryDirectory

PREFIX = "autokernel-temporary-test-"
KILLED = f"import os, signal; from autokernel.temporary import TemporaryDirectory; print(TemporaryDirectory('{PREFIX}').path, flush=True); os.kill(os.getpid(), signal.SIGKILL)"


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays():
    used = TemporaryDirectory(PREFIX)
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True)
    left = Path(killed.stdout.strip())
    assert killed.returncode < 0 and left.is_dir()
    (left / "data").write_bytes(b"1")
    following = TemporaryDirectory(PREFIX)
    assert not left.exists() and used.path.is_dir() and following.path.is_dir()
    for each in (used, following):
        each.close()
        assert not each.path.exists()
