"""Where the parts of AutoKernel lie that are not Python."""

import glob
import os

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))


class NotInstalled(Exception):
    """A part is missing; the text says what to do."""


def families_directory():
    """Where kernels/<family>/ lie: $AUTOKERNEL_FAMILIES, $AUTOKERNEL_HOME/kernels, beside this package (wheel), or in the checkout."""
    home = os.environ.get("AUTOKERNEL_HOME")
    named = os.environ.get("AUTOKERNEL_FAMILIES")
    candidates = (named, home and os.path.join(home, "kernels"), os.path.join(_HERE, "kernels"), os.path.join(_ROOT, "kernels"))
    for directory in candidates:
        if directory and os.path.isdir(directory):
            return directory
    raise NotInstalled("the directory of kernel families was not found: set AUTOKERNEL_FAMILIES")


def library_path():
    """$AUTOKERNEL_RUNTIME, else beside this file (wheel), else the newest build of the checkout."""
    named = os.environ.get("AUTOKERNEL_RUNTIME")
    if named:
        return named
    built = glob.glob(os.path.join(_ROOT, "build", "[!d]*", "lib", "libautokernel.so"))  # not build/dev: sanitizers cannot be loaded late
    found = glob.glob(os.path.join(_HERE, "libautokernel.so")) + sorted(built, key=os.path.getmtime, reverse=True)
    if not found:
        raise NotInstalled("libautokernel.so was not found: build it, or set AUTOKERNEL_RUNTIME to its path")
    return found[0]
