#!/usr/bin/env python3
"""Run clang-tidy on the changed C++ sources, against the compile commands of the build folder given."""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import time

from changed import ROOT, changed_files

BUDGET_SECONDS = 360  # a change that touches everything must not hold up CI; the latest files come first


def tidy(program, build, path, deadline):
    if time.monotonic() > deadline:
        return None
    return subprocess.run([program, "--quiet", "-p", build, str(path)], capture_output=True, text=True)


def main(arguments):
    program = shutil.which("clang-tidy")
    if not program:
        print("tidy: skipped, no clang-tidy here (Debian: apt-get install clang-tidy)")
        return 0
    files = [path for path in changed_files() if path.suffix == ".cpp"]
    deadline = time.monotonic() + BUDGET_SECONDS
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        results = list(pool.map(lambda path: tidy(program, arguments[0], path, deadline), files))
    failed = left_out = 0
    for path, done in zip(files, results):
        if done is None:
            left_out += 1
        elif done.returncode or "warning:" in done.stdout:
            failed += 1
            print(f"{path.relative_to(ROOT)}\n{done.stdout}{done.stderr if done.returncode else ''}")
    print(f"tidy: {len(files) - left_out} files looked at, {failed} with findings" + (f", {left_out} left out after {BUDGET_SECONDS} s" if left_out else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
