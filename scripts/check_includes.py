#!/usr/bin/env python3
"""Check that includes between the folders of src/ go one way: a folder sees those on lower levels, and itself."""

import re
import sys
from pathlib import Path

LEVELS = [
    ["core"],
    ["kernel"],  # the contracts: kernel file, task, launch plan
    ["graph", "store", "bridge"],
    ["device"],
    ["compile"],
    ["judge"],
    ["search"],
    ["plan"],
    ["exporting", "report", "kernelbench"],
    ["cli"],
]
RANK = {folder: rank for rank, folders in enumerate(LEVELS) for folder in folders}
ONLY = {"runtime": {"core", "graph", "kernel", "device"}}  # it goes into the user's process, and stays small

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"/]+)/[^"]+"')


def may_include(folder, other):
    if folder == other:
        return True
    if folder in ONLY:
        return other in ONLY[folder]
    return folder in RANK and other in RANK and RANK[other] < RANK[folder]


def violations(source):
    """Lines `file:line: what` of a src/ folder that break the order."""
    found = []
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cpp") or path.parent == source:
            continue
        folder = path.relative_to(source).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and (source / match[1]).is_dir() and not may_include(folder, match[1]):
                found.append(f"{path.relative_to(source.parent)}:{number}: {folder} may not include {match[1]}")
    return found


def main(arguments):
    source = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1] / "src"
    found = violations(source)
    print("\n".join(found) if found else "includes go one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
