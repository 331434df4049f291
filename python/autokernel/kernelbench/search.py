"""Searches the kernels of problems: one `autokernel run-all` for all of them, whose events are followed."""

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import time

from autokernel.kernelbench import isolate

_BEFORE_S = 60  # for each problem, before the first search begins: matching, and PyTorch's compiler for its baselines
_SEARCH_S, _SEARCH_S_PER_EXPERIMENT = 1200, 30
_ENDING_S = 60  # after SIGTERM


def directory(run, problem):
    """The run directory of a problem's search."""
    return run.file(problem.level, problem.number, "run")


def search_all(run, problems, options):
    """(problem, None or why its search failed), one after another. Where the program dies or hangs, the problem that it was at has failed,
    and another goes on with the rest.
    """
    waiting = {directory(run, problem): problem for problem in problems}
    while waiting:
        reason, at = "", next(iter(waiting))
        with contextlib.closing(_Engine(run, list(waiting.values()), options)) as engine:
            for event in engine.events():
                if event.get("event") == "model":
                    at = event["run_dir"]
                elif event.get("event") == "model_done":
                    yield waiting.pop(event["run_dir"]), event["error"]["message"] if "error" in event else None
                elif "error" in event:
                    reason = event["error"]["message"]
        if waiting:
            yield waiting.pop(at if at in waiting else next(iter(waiting))), reason or engine.ending


class _Engine:
    """The program at work on a list of problems."""

    def __init__(self, run, problems, options):
        self.logs = {directory(run, p): run.file(p.level, p.number, "log.txt") for p in problems}
        self.limit_s = _SEARCH_S + _SEARCH_S_PER_EXPERIMENT * options.experiments
        self.before_s = _BEFORE_S * len(problems)
        self.ending = ""
        self._list = tempfile.NamedTemporaryFile("w", suffix=".json")
        models = [(f"{run.file(p.level, p.number, 'model.py')}:problem", run.file(p.level, p.number, "graph.json"), directory(run, p)) for p in problems]
        json.dump([{"model": model, "graph": graph, "run_dir": own} for model, graph, own in models], self._list)
        self._list.flush()
        command = [options.program, "run-all", self._list.name, "--device", options.device, "--backend", options.backend, "--dtype", options.precision,
                   "--experiments", str(options.experiments), "--rounds", "0", "--json"]
        self._errors = open(os.path.join(run.root, "search.log"), "a", encoding="utf-8")
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, preexec_fn=isolate.die_with_parent)

    def events(self):
        """What it prints, until it ends or is silent about a problem for too long; each line goes into the log of its problem, too."""
        deadline, log, rest = time.monotonic() + self.before_s, None, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    self.ending = f"`autokernel run-all` ended with exit code {self._process.wait()}; see search.log."
                    return
                *lines, rest = (rest + part).split(b"\n")
                for event in map(_parsed, lines):
                    if event.get("event") == "model":
                        log = self.logs[event["run_dir"]]
                        deadline = time.monotonic() + (self.limit_s if event["step"] == "search" else self.before_s)
                    if log is not None:
                        _append(log, event)
                    yield event
            self.ending = "The search took too long, and was ended."

    def close(self):
        """End it where it still works: by what it does at a SIGTERM, so that it keeps what it has."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        self._list.close()


def _append(path, event):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def _parsed(line):
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
