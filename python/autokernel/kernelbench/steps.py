"""The steps of a problem: set up, solve, bench. Each leaves one result in the run directory, and is not repeated while that holds."""

import dataclasses
import json
import os
import subprocess

import torch

from autokernel.errors import WorkerError, user_error
from autokernel.kernelbench import isolate, model_new, protocol, setup
from autokernel.kernelbench.run_directory import content_hash, write_text

SETUP_S, SETUP_BYTES = 180, 6 << 30
_BASELINES_S = 420  # torch.compile included
_STRICT_S = 600
_SEARCH_S, _SEARCH_S_PER_EXPERIMENT = 1200, 30
_WRITE_S = 300
_SEARCH_NEEDS = 3  # times the memory of an evaluation: references in float64, and a file of each
_SHARE_OF_MEMORY = 0.8  # that one problem may take
_MODEL = '''"""Problem {number} of level {level}, as `autokernel run` takes it: its inputs, and its weights, are those of the benchmark's seed."""

from autokernel.kernelbench.problems import as_model


def problem():
    return as_model({path!r})
'''


@dataclasses.dataclass
class Options:
    """What the command line asked for."""

    device: str = "cpu"  # "cpu" or "cuda"
    backend: str = "cpu"  # of the kernels: cpu, cuda, triton or both
    precision: str = "float32"
    experiments: int = 100
    program: str = "autokernel"
    evaluation_s: float = 180.0


# --- set up


def set_up(run, problem):
    """Capture the problem, or note why not: {"status": "ready", …} or {"status": "refused", "reason"}."""
    key = {"problem": content_hash(problem.path)}
    known = run.read(problem.level, problem.number, "setup")
    if known is not None and known["key"] == key:
        return known
    graph = run.file(problem.level, problem.number, "graph.json")
    os.makedirs(os.path.dirname(graph), exist_ok=True)
    answer = isolate.call(setup.set_up, (problem.path, graph), seconds=SETUP_S, memory_bytes=SETUP_BYTES, log=_log(run, problem))
    result = {"key": key, "file": problem.file, "title": problem.title}
    if "result" in answer:
        write_text(run.file(problem.level, problem.number, "model.py"), _MODEL.format(number=problem.number, level=problem.level, path=problem.path))
        result |= {"status": "ready", **answer["result"]}
    else:
        result |= {"status": "refused", "reason": answer["text"], "trace": answer["trace"]}
    run.write(problem.level, problem.number, "setup", result)
    return result


def _log(run, problem):
    return run.file(problem.level, problem.number, "log.txt")


def why_it_does_not_fit(memory, options, times=1):
    """A sentence where `times` the memory of an evaluation is more than this machine has, else None."""
    needed, host = times * memory["evaluation"], isolate.available_bytes() * _SHARE_OF_MEMORY
    if options.device == "cpu" and needed > host:
        return f"It needs about {_gib(needed)} of memory, and {_gib(host)} may be taken here."
    if options.device == "cuda":
        there = device_bytes() * _SHARE_OF_MEMORY
        if memory["evaluation"] > there:
            return f"It needs about {_gib(memory['evaluation'])} of the GPU's memory, and {_gib(there)} may be taken."
        if times * (memory["inputs"] + memory["outputs"]) > host:
            return f"Its tensors need about {_gib(times * (memory['inputs'] + memory['outputs']))} of the host's memory, and {_gib(host)} may be taken."
    return None


def _gib(size):
    return f"{size / 2**30:.1f} GiB"


_device_bytes = []


def device_bytes():
    """Memory of the GPU, asked once, in a child: this process makes no context."""
    if not _device_bytes:
        answer = isolate.call(_total_memory, (), seconds=60, memory_bytes=SETUP_BYTES, log=os.devnull)
        if "result" not in answer:
            raise user_error(f"There is no CUDA device: {answer['text']} Use --backend cpu.")
        _device_bytes.append(answer["result"])
    return _device_bytes[0]


def _total_memory():
    return torch.cuda.get_device_properties(0).total_memory


# --- solve


def solve(run, problem, options):
    """Search kernels for the problem and write its solution: {"status": "solved", "kernels"} or {"status": "unsolved", "reason"}, with
    `again` where the search itself failed, which the next `solve` tries once more.
    """
    journal = os.path.join(run.file(problem.level, problem.number, "run"), "journal.jsonl")  # kernels may have been searched or edited since
    key = {"problem": content_hash(problem.path), "backend": options.backend, "experiments": options.experiments}
    path = run.solution(problem.level, problem.number)
    known = run.read(problem.level, problem.number, "solve")
    if known is not None and not known.get("again") and known["key"] == key and (known["solution"], known["journal"]) == (content_hash(path), content_hash(journal)):
        return known
    if os.path.exists(path) and (known is None or known["solution"] != content_hash(path)):
        return {"status": "kept", "reason": f"{os.path.basename(path)} was not written by `solve`, and is left as it is"}
    result = {"key": key, **_solved(run, problem, options, path)}
    result |= {"solution": content_hash(path), "journal": content_hash(journal)}
    run.write(problem.level, problem.number, "solve", result)
    return result


def _solved(run, problem, options, path):
    known = set_up(run, problem)
    if known["status"] != "ready":
        return _unsolved(known["reason"])
    reason = why_it_does_not_fit(known["memory"], options, times=_SEARCH_NEEDS)
    if reason is not None:
        return _unsolved(reason)
    failure = _search(run, problem, options)
    if failure is not None:
        return _unsolved(failure) | {"again": True}
    directory = run.file(problem.level, problem.number, "run")
    answer = isolate.call(
        model_new.make_solution, (problem.path, directory, options.device), seconds=_WRITE_S, memory_bytes=SETUP_BYTES * 4, log=_log(run, problem)
    )
    if "result" not in answer:
        return _unsolved(answer["text"])
    text, kernels = answer["result"]
    if text is None:
        if os.path.exists(path):
            os.remove(path)  # of an earlier search, whose kernels do not hold any more
        return _unsolved(_why_no_kernel(directory))
    write_text(path, text)
    return {"status": "solved", "kernels": kernels}


def _unsolved(reason):
    return {"status": "unsolved", "reason": reason}


def _search(run, problem, options):
    """Run the pipeline on the problem; None, or why it failed."""
    model = run.file(problem.level, problem.number, "model.py")
    command = [options.program, "run", f"{model}:problem", "--device", options.device, "--backend", options.backend, "--dtype", options.precision,
               "--experiments", str(options.experiments), "--rounds", "0", "--json", "--run-dir", run.file(problem.level, problem.number, "run")]
    seconds = _SEARCH_S + _SEARCH_S_PER_EXPERIMENT * options.experiments
    with open(_log(run, problem), "a", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=isolate.die_with_parent)
        try:
            output, _ = process.communicate(timeout=seconds)
        except BaseException as error:  # Ctrl-C too: the search ends, and keeps what it has
            process.terminate()
            process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"The search took longer than {seconds} s."
        log.write(output)
    return None if process.returncode == 0 else _failure_in(output, process.returncode)


def _failure_in(output, code):
    for line in reversed(output.splitlines()):
        try:
            return json.loads(line)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            continue
    return f"`autokernel run` ended with exit code {code}; see log.txt of the problem."


def _why_no_kernel(directory):
    tasks = os.path.join(directory, "tasks")
    names = sorted(os.listdir(tasks)) if os.path.isdir(tasks) else []
    if not names:
        return "No family of ours is found in its graph."
    return f"No kernel beats PyTorch's best there ({', '.join(names)})."


# --- bench


def bench(run, problem, options):
    """Judge what is there: {"kb", "strict", "baselines", "nulls"}, each a result or None."""
    known = set_up(run, problem)
    if known["status"] != "ready":
        return {"refused": known["reason"]}
    reason = why_it_does_not_fit(known["memory"], options)
    if reason is not None:
        return {"refused": reason}
    path = run.solution(problem.level, problem.number)
    key = {"problem": content_hash(problem.path), "device": options.device, "precision": options.precision, "torch": torch.__version__}
    result = {"nulls": _once(run, problem, "nulls", key, _nulls, options)}
    if os.path.exists(path):
        own = {**key, "solution": content_hash(path)}
        result["baselines"] = _once(run, problem, "baselines", key, _baselines, options)
        result["kb"] = _once(run, problem, "kb", own, _kb, options)
        result["strict"] = _once(run, problem, "strict", own, _strict, options)
    return result


def _once(run, problem, step, key, function, options):
    known = run.read(problem.level, problem.number, step)
    if known is not None and known["key"] == key:
        return known
    result = {"key": key, **function(run, problem, options)}
    run.write(problem.level, problem.number, step, result)
    return result


def _isolated(run, problem, function, arguments, seconds):
    limit = int(isolate.available_bytes() * _SHARE_OF_MEMORY)
    return isolate.call(function, arguments, seconds=seconds, memory_bytes=limit, log=_log(run, problem))


def _nulls(run, problem, options):
    arguments = (problem.source(), options.device, options.precision)
    answer = _isolated(run, problem, protocol.passing_null_candidates, arguments, options.evaluation_s)
    return {"passing": answer["result"]} if "result" in answer else {"passing": None, "error": answer["text"]}


def _baselines(run, problem, options):
    arguments = (problem.source(), options.device, options.precision)
    answer = _isolated(run, problem, protocol.measure_baselines, arguments, _BASELINES_S)
    return {"times": answer["result"]} if "result" in answer else {"times": None, "error": answer["text"]}


def _kb(run, problem, options):
    with open(run.solution(problem.level, problem.number), encoding="utf-8") as file:
        solution = file.read()
    build = run.file(problem.level, problem.number, "build")
    os.makedirs(build, exist_ok=True)
    backend = "triton" if "@triton.jit" in solution else "cuda"
    arguments = (problem.source(), solution, options.device, options.precision, backend, build)
    answer = _isolated(run, problem, protocol.evaluate, arguments, options.evaluation_s)
    if "result" in answer:
        return answer["result"]
    text = "Evaluation timed out" if answer["failed"] == "timed_out" else answer["text"]
    return protocol.failed(text)


def _strict(run, problem, options):
    arguments = (run.solution(problem.level, problem.number), problem.path, options.device, options.precision, options.evaluation_s)
    answer = _isolated(run, problem, judge_strictly, arguments, _STRICT_S)
    return answer["result"] if "result" in answer else {"verdict": "failed_environment", "reason": answer["text"]}


def judge_strictly(solution, reference, device, precision, load_s):
    """Our judge's verdict on a solution in Python (docs/formats/solution.md), which may take `load_s` to load."""
    try:
        from autokernel.solution import judge_solution
    except ImportError:
        return {"verdict": "unavailable", "reason": "this installation has no judge of solutions in Python"}
    try:
        return judge_solution(solution, reference, device=device, dtype=None if precision == "float32" else precision, limits={"load_seconds": load_s})
    except WorkerError as error:
        return {"verdict": "failed_environment", "reason": error.message}
