"""The `autokernel` command of an installed wheel: the native program in this package, told which Python and which files are its own."""

import os
import sys
from pathlib import Path


def main() -> None:
    package = Path(__file__).resolve().parent
    program = package / "bin" / "autokernel"
    os.environ.setdefault("AUTOKERNEL_PYTHON", sys.executable)
    os.environ.setdefault("AUTOKERNEL_HOME", str(package))
    os.execv(program, ["autokernel", *sys.argv[1:]])
