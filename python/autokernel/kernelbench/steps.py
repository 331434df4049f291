"""The steps of a problem: set up, solve, bench. Each leaves one result in the run directory, and is not repeated while that holds."""

import dataclasses
import os
import sys

import torch

from autokernel.errors import WorkerError, user_error
from autokernel.kernelbench import isolate, model_new, protocol, search, setup
from autokernel.kernelbench.run_directory import content_hash, write_text

SETUP_S, SETUP_BYTES = 180, 6 << 30
_BASELINES_S = 420  # torch.compile included
_STRICT_S = 600
_NULLS_S, _MOST_NULLS = 900, 8  # at the same time
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


def set_up(run, problem, options):
    """Capture the problem, or note why not: {"status": "ready", …} or {"status": "refused", "reason"}."""
    ((_, result),) = set_up_all(run, [problem], options)
    return result


def set_up_all(run, problems, options):
    """(problem, its result) of each, in their order; several are captured at the same time."""
    known = {problem: _known_setup(run, problem) for problem in problems}
    new = [problem for problem in problems if known[problem] is None]
    _say(f"capturing {len(new)} problems", new)
    answers = isolate.call_all(
        [isolate.Call(setup.set_up, (p.path, _graph(run, p), options.device, options.precision), _log(run, p)) for p in new],
        seconds=SETUP_S, memory_bytes=SETUP_BYTES, at_once=_side_by_side(SETUP_BYTES),
    )
    for problem in problems:
        while known[problem] is None:
            position, answer = next(answers)
            known[new[position]] = _keep_setup(run, new[position], answer)
        yield problem, known[problem]


def _known_setup(run, problem):
    known = run.read(problem.level, problem.number, "setup")
    return known if known is not None and known["key"] == _setup_key(problem) else None


def _setup_key(problem):
    return {"problem": content_hash(problem.path)}


def _keep_setup(run, problem, answer):
    result = {"key": _setup_key(problem), "file": problem.file, "title": problem.title}
    if "result" in answer:
        write_text(run.file(problem.level, problem.number, "model.py"), _MODEL.format(number=problem.number, level=problem.level, path=problem.path))
        result |= {"status": "ready", **answer["result"]}
    else:
        result |= {"status": "refused", "reason": answer["text"], "trace": answer["trace"]}
    run.write(problem.level, problem.number, "setup", result)
    return result


def _say(text, concerned):
    if concerned:
        print(f"autokernel: {text}", file=sys.stderr, flush=True)


def _side_by_side(memory_bytes):
    """How many children that may take so much each run at the same time."""
    return max(1, min(os.cpu_count() or 1, int(isolate.available_bytes() * _SHARE_OF_MEMORY // memory_bytes)))


def _graph(run, problem):
    return run.file(problem.level, problem.number, "graph.json")


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


def solve_all(run, problems, options):
    """(problem, result) of each when it is had: kernels are searched, and its solution is written. A result is {"status": "solved",
    "kernels"} or {"status": "unsolved", "reason"}, with `again` where the search itself failed, which the next call tries once more.
    """
    searched = []
    for problem, known in set_up_all(run, problems, options):
        result = _known_solution(run, problem, options) or _not_searched(known, options)
        if result is None:
            searched.append(problem)
        else:
            yield problem, _keep(run, problem, options, result)
    _say(f"searching kernels for {len(searched)} problems: search.log of the run directory, log.txt of each", searched)
    for problem, failure in search.search_all(run, searched, options):
        result = _written(run, problem, options) if failure is None else _unsolved(failure) | {"again": True}
        yield problem, _keep(run, problem, options, result)


def _known_solution(run, problem, options):
    path, known = run.solution(problem.level, problem.number), run.read(problem.level, problem.number, "solve")
    holds = known is not None and not known.get("again") and known["key"] == _solve_key(problem, options)
    if holds and (known["solution"], known["journal"]) == (content_hash(path), content_hash(_journal(run, problem))):
        return known
    if os.path.exists(path) and (known is None or known["solution"] != content_hash(path)):
        return {"status": "kept", "reason": f"{os.path.basename(path)} was not written by `solve`, and is left as it is"}
    return None


def _solve_key(problem, options):
    return {"problem": content_hash(problem.path), "backend": options.backend, "experiments": options.experiments}


def _journal(run, problem):
    """Kernels may have been searched or edited since."""
    return os.path.join(search.directory(run, problem), "journal.jsonl")


def _not_searched(known, options):
    if known["status"] != "ready":
        return _unsolved(known["reason"])
    reason = why_it_does_not_fit(known["memory"], options, times=_SEARCH_NEEDS)
    return None if reason is None else _unsolved(reason)


def _keep(run, problem, options, result):
    if result["status"] == "kept" or "key" in result:
        return result
    path = run.solution(problem.level, problem.number)
    result = {"key": _solve_key(problem, options), **result, "solution": content_hash(path), "journal": content_hash(_journal(run, problem))}
    run.write(problem.level, problem.number, "solve", result)
    return result


def _written(run, problem, options):
    directory, path = search.directory(run, problem), run.solution(problem.level, problem.number)
    if not os.path.isdir(os.path.join(directory, "bundles")):
        return _without_kernel(path, directory)
    arguments = (problem.path, directory, options.device, options.precision)
    answer = isolate.call(model_new.make_solution, arguments, seconds=_WRITE_S, memory_bytes=SETUP_BYTES * 4, log=_log(run, problem))
    if "result" not in answer:
        return _unsolved(answer["text"])
    text, kernels = answer["result"]
    if text is None:
        return _without_kernel(path, directory)
    write_text(path, text)
    return {"status": "solved", "kernels": kernels}


def _without_kernel(path, directory):
    if os.path.exists(path):
        os.remove(path)  # of an earlier search, whose kernels do not hold any more
    return _unsolved(_why_no_kernel(directory))


def _unsolved(reason):
    return {"status": "unsolved", "reason": reason}


def _why_no_kernel(directory):
    tasks = os.path.join(directory, "tasks")
    names = sorted(os.listdir(tasks)) if os.path.isdir(tasks) else []
    if not names:
        return "No family of ours is found in its graph."
    return f"No kernel beats PyTorch's best there ({', '.join(names)})."


# --- bench


def bench_all(run, problems, options):
    """(problem, result) of each: what is there is judged, {"kb", "strict", "baselines", "nulls"}, or {"refused"}.

    What is not timed comes first, for several problems at the same time.
    """
    refused, judged = {}, {}
    for problem, known in set_up_all(run, problems, options):
        reason = known["reason"] if known["status"] != "ready" else why_it_does_not_fit(known["memory"], options)
        if reason is None:
            judged[problem] = known["memory"]["evaluation"]
        else:
            refused[problem] = reason
    _try_nulls(run, judged, options)
    for problem in problems:
        yield problem, {"refused": refused[problem]} if problem in refused else _judged(run, problem, options)


def _try_nulls(run, problems, options):
    """`problems`: with the bytes that the evaluation of each needs."""
    new = [problem for problem in problems if _known(run, problem, "nulls", _key(problem, options)) is None]
    if not new:
        return
    _say(f"trying null candidates on {len(new)} problems", new)
    capacity = _SHARE_OF_MEMORY * min(isolate.available_bytes(), device_bytes() if options.device == "cuda" else float("inf"))
    calls = [isolate.Call(protocol.passing_null_candidates, (p.source(), options.device, options.precision), _log(run, p), problems[p]) for p in new]
    limits = {"seconds": _NULLS_S, "memory_bytes": int(_SHARE_OF_MEMORY * isolate.available_bytes())}
    for position, answer in isolate.call_all(calls, **limits, at_once=min(_MOST_NULLS, os.cpu_count() or 1), capacity=capacity):
        result = {"passing": answer["result"]} if "result" in answer else {"passing": None, "error": answer["text"]}
        run.write(new[position].level, new[position].number, "nulls", {"key": _key(new[position], options), **result})


def _judged(run, problem, options):
    path, key = run.solution(problem.level, problem.number), _key(problem, options)
    result = {"nulls": _known(run, problem, "nulls", key)}
    if os.path.exists(path):
        own = {**key, "solution": content_hash(path)}
        result["baselines"] = _once(run, problem, "baselines", key, _baselines, options)
        result["kb"] = _once(run, problem, "kb", own, _kb, options)
        result["strict"] = _once(run, problem, "strict", own, _strict, options)
    return result


def _key(problem, options):
    return {"problem": content_hash(problem.path), "device": options.device, "precision": options.precision, "torch": torch.__version__}


def _known(run, problem, step, key):
    known = run.read(problem.level, problem.number, step)
    return known if known is not None and known["key"] == key else None


def _once(run, problem, step, key, function, options):
    known = _known(run, problem, step, key)
    if known is not None:
        return known
    result = {"key": key, **function(run, problem, options)}
    run.write(problem.level, problem.number, step, result)
    return result


def _isolated(run, problem, function, arguments, seconds):
    limit = int(isolate.available_bytes() * _SHARE_OF_MEMORY)
    return isolate.call(function, arguments, seconds=seconds, memory_bytes=limit, log=_log(run, problem))


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
