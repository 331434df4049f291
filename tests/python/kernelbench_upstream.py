"""KernelBench's own evaluation, and ours, of pairs of a reference and a solution: each in a process of its own, started afresh.

`python kernelbench_upstream.py SOURCE PAIRS RESULTS` reads {name: [reference, solution]} from the file PAIRS and writes {name: record} to RESULTS: by the
evaluation of the checkout SOURCE, imported from there unchanged, or by ours where SOURCE is `ours`.
Of what the checkout's package imports, its evaluation of a solution does not use dotenv, tqdm, openai, litellm and requests: where these are not
installed, empty modules stand in for them, and where pydantic is not, a plain record for its BaseModel.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import types

from kernelbench_pairs import backend

TIMED = 3  # calls: this is not about time


class Record:
    """What a pydantic model without validation is: its annotated defaults, and what was given."""

    def __init__(self, **given):
        for name in type(self).__annotations__:
            value = getattr(type(self), name)
            setattr(self, name, dict(value) if isinstance(value, dict) else value)
        for name, value in given.items():
            setattr(self, name, value)


def stand_in(name, **content):
    """Put an empty module in the place of one that is not installed."""
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(content)


def import_evaluation(source):
    """kernelbench.eval of a checkout."""
    stand_in("dotenv", load_dotenv=lambda *_: None)
    stand_in("tqdm", tqdm=iter)
    stand_in("openai", OpenAI=None)
    stand_in("litellm", completion=None)
    stand_in("requests")
    stand_in("pydantic", BaseModel=Record)
    sys.path.insert(0, os.path.join(source, "src"))
    return importlib.import_module("kernelbench.eval")


def upstream(evaluation, reference, solution, build):
    """The record, with what the benchmark's script makes of an exception that its evaluation lets through."""
    import torch

    try:
        found = evaluation.eval_kernel_against_ref(
            reference, solution, num_correct_trials=5, num_perf_trials=TIMED, measure_performance=True, build_dir=build, device=torch.device("cuda:0"),
            backend=backend(solution), precision=torch.float32)
    except Exception as error:
        kind = "cuda_error" if "CUDA error" in str(error) else "other_error"
        return {"compiled": False, "correctness": False, "metadata": {kind: str(error)}, "runtime": -1.0}
    return {name: getattr(found, name) for name in ("compiled", "correctness", "metadata", "runtime")}


def ours(reference, solution, build, device="cuda"):
    """The record of our verdict kb."""
    from autokernel.kernelbench import protocol

    record = protocol.evaluate(reference, solution, device, "float32", backend(solution), build, timed=TIMED)
    return {name: record[name] for name in ("compiled", "correctness", "metadata", "runtime")}


def main(source, pairs, results):
    with open(pairs, encoding="utf-8") as file:
        asked = json.load(file)
    evaluation = None if source == "ours" else import_evaluation(source)
    found = {}
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as build:
        for name, (reference, solution) in asked.items():
            found[name] = ours(reference, solution, build) if evaluation is None else upstream(evaluation, reference, solution, build)
    with open(results, "w", encoding="utf-8") as file:
        json.dump(found, file, default=str)


if __name__ == "__main__":
    main(*sys.argv[1:])
