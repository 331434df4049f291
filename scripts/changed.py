"""The source files of a change: which C++ files there are, and which differ from where the branch began."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests")
SUFFIXES = (".cpp", ".h")


def git(*arguments):
    """Lines that git prints, or None where it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else None


def cpp_files():
    """Every C++ file of the product and its tests. Kernel files are laid out by hand, and are not among them."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def base():
    """The commit to compare with: where this branch left main, or the commit before on main itself; None in a first commit."""
    head = git("rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        fork = git("merge-base", main, "HEAD")
        if fork and fork != head:
            return fork[0]
    before = git("rev-parse", "--verify", "--quiet", "HEAD~1")
    return before[0] if before else None


def changed_files():
    """C++ files that the branch or the working tree changed, the latest first; all of them where there is nothing to compare with."""
    start = base()
    names = (git("diff", "--name-only", "--diff-filter=d", start) if start else None)
    if names is None:
        return cpp_files()
    names += git("ls-files", "--others", "--exclude-standard") or []
    changed = {ROOT / name for name in names}
    return sorted((path for path in cpp_files() if path in changed), key=lambda path: -path.stat().st_mtime)
