#!/usr/bin/env python3
"""Check that clang-format would change nothing; `--fix` lets it. Version 14, since versions disagree on details."""

import shutil
import subprocess
import sys

from changed import cpp_files


def main(arguments):
    formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not formatter:
        print("format: skipped, no clang-format here (Debian: apt-get install clang-format-14)")
        return 0
    files = [str(path) for path in cpp_files()]
    if not files:
        return 0
    if "--fix" in arguments:
        return subprocess.run([formatter, "-i", *files]).returncode
    done = subprocess.run([formatter, "--dry-run", "--Werror", "--ferror-limit=1", *files])
    if done.returncode:
        print("format: run scripts/check_format.py --fix")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
