"""`python -m autokernel.kernelbench REQUEST`: what `autokernel kernelbench` asks for, as one JSON object."""

import json
import os
import sys

import torch

from autokernel.errors import WorkerError, user_error
from autokernel.kernelbench import pages, score, steps, views
from autokernel.kernelbench.problems import LEVELS, find_problems, parse_numbers
from autokernel.kernelbench.run_directory import RunDirectory, write_json, write_text

_INTERRUPTED = 130
_RESULTS = ("setup", "solve", "nulls", "baselines", "kb", "strict")


def main(text):
    """Do what the request says; returns the exit code."""
    request = json.loads(text)
    try:
        return _VERBS[request["verb"]](Request(request))
    except KeyboardInterrupt:
        print("autokernel: interrupted; the same command goes on", file=sys.stderr)
        return _INTERRUPTED
    except WorkerError as error:
        print(f"autokernel: {error.message}", file=sys.stderr)
        if request["json"]:
            print(json.dumps({"error": {"message": error.message, "what_to_do": ""}}))
        return 1


class Request:
    """The words of the command line, settled."""

    def __init__(self, given):
        self.given = given
        self.json = given["json"]
        self.run = RunDirectory(given["run_dir"])
        device = "cpu" if given["backend"] == "cpu" else "cuda"
        self.options = steps.Options(device, given["backend"], given["precision"], given["experiments"], given["program"], given["evaluation_s"])

    def problems(self):
        if not self.given["source"]:
            raise user_error("Name the checkout of KernelBench with --source DIR.")
        levels = parse_numbers(self.given["level"]) or LEVELS
        return find_problems(self.given["source"], sorted(levels), parse_numbers(self.given["problems"]))

    def begin(self):
        """The problems, in a run directory that is of the same device and precision."""
        problems = self.problems()
        self.run.require_same({"device": self.options.device, "precision": self.options.precision})
        return problems

    def tell(self, problem, result, line):
        if self.json:
            print(json.dumps({"level": problem.level, "problem": problem.number, **result}), flush=True)
        else:
            print(f"{problem.level}/{problem.number:<4}{problem.title[:44]:<46}{line}", flush=True)


# --- verbs


def _list(request):
    for problem in request.problems():
        request.tell(problem, {"file": problem.file}, problem.file)
    return 0


def _setup(request):
    for problem, known in steps.set_up_all(request.run, request.begin(), request.options):
        fields = ("status", "reason", "family", "memory", "notes", "inputs", "outputs")
        request.tell(problem, {name: known[name] for name in fields if name in known}, _setup_line(known))
    return 0


def _setup_line(known):
    if known["status"] != "ready":
        return f"refused: {known['reason'].splitlines()[0][:160]}"
    notes = "".join(f"; {note['text']}" for note in known["notes"])
    return f"{known['family']}, {known['memory']['evaluation'] / 2**30:.1f} GiB{notes}"


def _solve(request):
    for problem, result in steps.solve_all(request.run, request.begin(), request.options):
        detail = result.get("reason") or ", ".join(kernel["task"] for kernel in result["kernels"])
        request.tell(problem, {name: result[name] for name in ("status", "reason", "kernels") if name in result}, f"{result['status']}: {detail[:200]}")
    return 0


def _bench(request):
    for problem, result in steps.bench_all(request.run, request.begin(), request.options):
        views.write(request.run)
        row = _row(request.run, problem.level, problem.number)
        line = f"not judged: {result['refused']}" if "refused" in result else _bench_line(row)
        request.tell(problem, {"refused": result.get("refused"), **row}, line)
    return 0


def _bench_line(row):
    speeds = [f"{verdict} {row[verdict]['eager']:.2f}x" for verdict in score.VERDICTS if row[verdict] and row[verdict]["eager"]]
    return ", ".join([row["status"] + (", degenerate" if row["degenerate"] else ""), *speeds, *filter(None, [row["reason"][:120]])])


def _score(request):
    run = request.run
    settings = run.settings()
    rows = [_row(run, level, number) for level, number in run.known()]
    content = {"schema": score.SCHEMA, "settings": settings, "torch": torch.__version__, "problems": rows, "totals": score.summarise(rows)}
    write_json(os.path.join(run.root, "score.json"), content)
    write_text(os.path.join(run.root, "kernelbench.html"), pages.page(content))
    views.write(run)
    print(json.dumps(content) if request.json else f"{pages.text(content)}\n\npage: {os.path.join(run.root, 'kernelbench.html')}")
    return 0


def _row(run, level, number):
    return score.row_of(level, number, {step: run.read(level, number, step) for step in _RESULTS})


_VERBS = {"list": _list, "setup": _setup, "solve": _solve, "bench": _bench, "score": _score}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
