"""The families' starters on a GPU, launched by the judge under compute-sanitizer: no access out of bounds, no race in shared memory, no read of what
nobody wrote. On the CPU the same cases pass without it, which shows that they are what they should be."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import Program
from test_cases import Bench
from test_families import FAMILIES

from autokernel import fixtures, safetensors
from autokernel.session import Session

TOOLS = {"memcheck": ["--report-api-errors", "no"], "racecheck": [], "initcheck": []}
LARGEST = 1 << 21  # elements a dim product: instrumented launches are some hundred times slower, and the judge gives up after two seconds
SANITIZER = shutil.which("compute-sanitizer") or next((str(p) for p in Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """For what the tools share: the program's run and the compiled starters."""
    return tmp_path_factory.mktemp("sanitizer")


@pytest.fixture(scope="module")
def tasks(folder):
    """A task of every family and spelling of the suite, in two dtypes, made by the program."""
    program = Program(folder)
    program.ok("bench", "--suite", "nine", "--device", "null", "--dtype", "float32,float16", "--trials", "0", "--run-dir", program.run_dir)
    made = [json.loads(path.read_text()) for path in sorted((program.run_dir / "tasks").glob("*/task.json"))]
    return list({(task["family"], task["dtype"], task["spelling"]): task for task in made}.values())


def small_cases(task):
    """The workload, a shape of the sweep and three odd ones with elements in them."""

    def small(bindings):
        sizes = [torch.Size(binding["dims"].values()).numel() for binding in bindings]
        return [binding for binding, size in zip(bindings, sizes) if 0 < size <= LARGEST]

    odd = small(task["edges"])
    return [*task["workload"], *small(task["sweep"])[:1], *odd[:1], *odd[-2:]]


def checked(bench, task, directory, cases):
    """(dims, verdict, evidence) of the starter in these cases of the task."""
    verdicts = []
    for number, binding in enumerate(cases):
        case = {**binding, "generator": "normal", "seed": 1 + number}
        arguments = {"task": task, "case": case, "directory": str(directory / "case"), "device": bench.device}
        made = fixtures.fixtures(Session(), arguments, lambda *_: None)
        layout = safetensors.read(made["inputs"])[1]
        case["strides"] = {name.removesuffix(".strides"): json.loads(text) for name, text in layout.items() if name.endswith(".strides")}
        files = {"inputs": made["inputs"], "expected": made["expected"]}
        of_case = {**task, "workload": [{"dims": case["dims"], "strides": case["strides"], "calls": 1}]}
        reply = bench.check(of_case, case, files, bench.starter(of_case, case))
        verdicts.append((binding["dims"], reply["verdict"], reply["evidence"]))
    return verdicts


def test_the_starters_pass_in_these_cases(tasks, folder):
    assert {task["family"] for task in tasks} == FAMILIES
    bench = Bench("cpu", folder)
    for task in tasks:
        if task["family"] == "softmax" and task["dtype"] == "float32":
            cases = small_cases(task)
            assert len(cases) == 5
            verdicts = checked(bench, task, folder, [cases[0], cases[-1]])
            assert [verdict for _, verdict, _ in verdicts] == ["pass", "pass"], verdicts
    assert bench.judge.close() == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
@pytest.mark.skipif(SANITIZER is None, reason="there is no compute-sanitizer: it comes with the CUDA toolkit, or put it into PATH")
@pytest.mark.parametrize("tool", TOOLS)
def test_no_starter_is_caught_by_the_sanitizer(tasks, folder, tool):
    log = folder / f"{tool}.txt"
    words = [SANITIZER, "--tool", tool, *TOOLS[tool], "--target-processes", "application-only", "--error-exitcode", "9", "--log-file", str(log)]
    try:
        bench = Bench("cuda", folder, words)
    except AssertionError:
        if "not supported" in log.read_text():
            pytest.skip(f"compute-sanitizer does not work on this machine: {log.read_text()[-300:]}")
        raise
    failed = [(task["family"], task["dtype"], *verdict) for task in tasks for verdict in checked(bench, task, folder, small_cases(task)) if verdict[1] != "pass"]
    code = bench.judge.close()
    assert failed == []
    assert code == 0, log.read_text()[-4000:]
    assert "SUMMARY: 0 " in log.read_text()
