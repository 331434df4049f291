#!/usr/bin/env python3
"""Reproduce the figures of docs/measurements on this machine: the jobs of measure_jobs.py, one after another.

Each job is a command of the product with a limit of time. What it printed, its log and what it needs to go on lie in a folder of its own under --out;
results.json there says what is finished, and the same command goes on with the rest. Nothing but Python's standard library is needed here.
"""

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import measure_jobs
from measure_jobs import ROOT, Setting
from measure_processes import GRACE_S, adopt_what_is_left, run_command
from measure_results import Skipped

ROUND_END_S = 60  # a job that is told its seconds has had them all when so few are left
NO_TESTS = 5  # pytest's exit code
FINISHED = ("passed", "failed")
ORDER = ("passed", "failed", "unfinished", "out of time", "not begun", "skipped")


def main(arguments, jobs=None):
    jobs = measure_jobs.JOBS if jobs is None else jobs
    options = parse(arguments, [job.name for job in jobs])
    if options.list:
        print_table([(job.name, f"{job.limit_s:.0f} s", job.proves) for job in jobs])
        return 0
    chosen = [job for job in jobs if not options.jobs or job.name in options.jobs]
    for ending in (signal.SIGINT, signal.SIGTERM):  # also where this was started with them ignored
        signal.signal(ending, signal.default_int_handler)
    adopt_what_is_left()
    measurement = Measurement(options)
    try:
        for job in chosen:
            measurement.take(job)
    except KeyboardInterrupt:
        measurement.print_results(chosen)
        return 130
    measurement.print_results(chosen)
    return measurement.exit_code(chosen)


def parse(arguments, names):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="the jobs, their limits and what they prove")
    parser.add_argument("--jobs", type=lambda text: text.split(","), help="only these, separated by commas")
    parser.add_argument("--again", action="store_true", help="also what is finished, from its beginning")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a rehearsal with the smallest budgets")
    parser.add_argument("--minutes", type=float, help="of all; a job that does not fit is not begun")
    parser.add_argument("--out", type=Path, default=Path("measurements"), help="results and state (default: measurements)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="the programs (default: build/release)")
    parser.add_argument("--kernelbench", help="a checkout of KernelBench")
    parser.add_argument("--commit", help="of the sources (default: as git says)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.jobs or () if name not in names]
    if unknown:
        parser.error(f"there is no job {', '.join(unknown)}; the jobs are {', '.join(names)}")
    if not options.list and not (options.build / "bin" / "autokernel").exists():
        parser.error(f"{options.build}/bin/autokernel is missing: build first (cmake --preset release && cmake --build build/release), or name the build with --build")
    options.out, options.build = options.out.resolve(), options.build.resolve()
    options.kernelbench = options.kernelbench and str(Path(options.kernelbench).resolve())
    return options


class Measurement:
    """The jobs' results so far, and the time that is left."""

    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
        self.python = os.environ.get("AUTOKERNEL_PYTHON") or sys.executable
        self.file = options.out / "results.json"
        options.out.mkdir(parents=True, exist_ok=True)
        self.results = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.machine = describe_machine(options, self.python)
        if any((found["device"] == "cpu") != (options.device == "cpu") for found in self.results.values()):
            sys.exit(f"measure: {options.out} has results of --device {'cuda' if options.device == 'cpu' else 'cpu'}; name another folder with --out")
        print_table(list(self.machine.items()))

    def left_s(self):
        return self.end - time.monotonic()

    def take(self, job):
        known = self.results.get(job.name, {})
        folder = self.options.out / job.name
        if self.options.again:
            shutil.rmtree(folder, ignore_errors=True)
            known = {}
        if known.get("result") in FINISHED:
            return say(f"{job.name}: {known['result']} already")
        spent = known.get("seconds", 0)
        setting = Setting(self.options.device, self.options.build, folder, self.python, self.options.kernelbench)
        reason = job.missing(setting)
        if reason:
            return self.note(job, "skipped", spent, reason)
        wanted = job.limit_s - (spent if job.budgeted else 0)
        if self.left_s() < min(job.least_s or wanted, wanted) + GRACE_S:
            return self.note(job, known.get("result", "not begun"), spent, known.get("line", f"{max(0, self.left_s()):.0f} s are left, it may take {job.limit_s:.0f}"))
        seconds = min(wanted, self.left_s() - GRACE_S)
        folder.mkdir(parents=True, exist_ok=True)
        say(f"{job.name}: {job.proves} (at most {seconds:.0f} s)")
        began = time.monotonic()
        try:
            result, line = self.run(job, dataclasses.replace(setting, seconds=seconds))
        except KeyboardInterrupt:
            self.note(job, "unfinished", spent + time.monotonic() - began, "interrupted")
            raise
        took = time.monotonic() - began
        if result == "passed" and job.budgeted and not setting.rehearsal and took > seconds - ROUND_END_S and spent + took < job.limit_s - ROUND_END_S:
            result = "unfinished"
        self.note(job, result, spent + took, line)

    def run(self, job, setting):
        """(result, line)"""
        commands, line = job.commands(setting), ""
        environment = self.environment(job, setting)
        deadline = time.monotonic() + setting.seconds
        with open(setting.folder / "log.txt", "a", encoding="utf-8") as log:
            for file, words in commands:
                print(f"$ {shlex.join(words)}", file=log, flush=True)
                code, left = run_command(words, setting.folder / file, log, environment, deadline - time.monotonic())
                if left:
                    print(f"{left} processes were left over and have been ended", file=log, flush=True)
                    line += f"; {left} processes were left over"
                if code != 0:
                    break
        result, numbers = read(job, setting.folder)
        if code is None:
            return "out of time", (last_words(setting.folder / "log.txt") if result == "failed" else numbers) + line
        if result == "skipped" and code in (0, NO_TESTS):
            return result, numbers
        if code != 0 or result == "failed":
            said = f"exit code {code}: {last_words(setting.folder / 'log.txt')}" if code else ""
            return "failed", "; ".join(filter(None, [said, numbers if result != "failed" or not code else ""])) + line
        return result, numbers + line

    def environment(self, job, setting):
        paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        own = {"AUTOKERNEL_HOME": str(ROOT), "AUTOKERNEL_PYTHON": self.python, "AUTOKERNEL_BUILD": str(setting.build), "PYTHONPATH": ":".join(filter(None, paths)),
               "AUTOKERNEL_RUNTIME": str(setting.build / "lib" / "libautokernel.so")}
        return {**os.environ, **own, **job.environment(setting)}

    def note(self, job, result, seconds, line):
        self.results[job.name] = {"result": result, "seconds": round(seconds, 1), "line": line, "device": self.options.device, "machine": self.machine}
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.results, indent=1) + "\n")
        new.replace(self.file)
        say(f"{job.name}: {result}; {line}")

    def print_results(self, jobs):
        known = [(job.name, self.results[job.name]) for job in jobs if job.name in self.results]
        rows = [(name, found["result"], f"{found['seconds']:.0f} s", found["line"] + self.elsewhere(found)) for name, found in known]
        print()
        print_table([("job", "result", "time", "numbers"), *rows])
        counts = {result: sum(found["result"] == result for _, found in known) for result in ORDER}
        print(", ".join(f"{count} {result}" for result, count in counts.items() if count) + f"; files in {self.options.out}")

    def elsewhere(self, found):
        differs = [f"{name} {value}" for name, value in found["machine"].items() if self.machine.get(name) != value]
        return f" [{', '.join(differs)}]" if differs else ""

    def exit_code(self, jobs):
        """0: nothing is left to do; 1: something failed; 3: something is not finished."""
        found = {self.results[job.name]["result"] for job in jobs if job.name in self.results}
        return 1 if "failed" in found else 0 if found <= {"passed", "skipped"} else 3


def read(job, folder):
    """("passed", "failed" or "skipped", line) by what a job wrote."""
    try:
        return "passed", job.read(folder)
    except Skipped as why:
        return "skipped", str(why)
    except (OSError, ValueError, KeyError, IndexError, SyntaxError) as error:  # SyntaxError: of an XML file that ends early
        return "failed", f"no result to read: {type(error).__name__}: {error}"


def last_words(path):
    """The end of a log: a message, and what to do, which is a line of its own."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return " ".join(lines[-2:] if lines[-1:] and lines[-1].startswith("→") else lines[-1:])[:300]


# ---- what is printed


def describe_machine(options, python):
    """Where the figures come from."""
    versions = "import importlib.metadata as m, sys\nprint(sys.version.split()[0])\nfor n in ('torch', 'triton'):\n    try: print(m.version(n))\n    except m.PackageNotFoundError: print('none')"
    torch = answer([python, "-c", versions]).split("\n") + ["unknown"] * 3
    gpu = answer(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).split("\n")[0]
    found = answer(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    if found and answer(["git", "-C", str(ROOT), "status", "--porcelain"]):
        found += ", changed"
    return {"device": (gpu or "no GPU seen by nvidia-smi") if options.device == "cuda" else "the CPU, a rehearsal", "cpus": str(os.cpu_count()), "python": torch[0],
            "torch": torch[1], "triton": torch[2], "program": answer([str(options.build / "bin" / "autokernel"), "--version"]),
            "commit": options.commit or found or "unknown: name it with --commit"}


def answer(words):
    """What a program prints, or nothing."""
    try:
        return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]), flush=True)


def say(text):
    print(f"measure: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
