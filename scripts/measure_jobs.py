"""The jobs of scripts/measure.py: what each runs, how long it may take, what it proves, and which of its numbers matter.

On the CPU a job is a rehearsal with the smallest budget: it shows that the commands hold, and its figures mean nothing.
"""

import dataclasses
import datetime
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from measure_results import read_crashes, read_export, read_judge_rate, read_kernelbench, read_model, read_pytest, read_self_test, read_suite

ROOT = Path(__file__).resolve().parents[1]
MEMORY_BOUND = "rmsnorm,layernorm,softmax,reduce,cross_entropy,rotary_embedding"
MODEL_MINUTES = 5  # of search
ROUND_MODEL_S = 240  # what set-up, baselines and verification of a model take beside it
ROUND_SUITE_S = 30  # what the start and the end of a suite's slice take
CRASHES = 60
CPU, CUDA = "cpu", "cuda"


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the commands of a job depend on."""

    device: str
    build: Path
    folder: Path  # of the job: its results, logs and state
    python: str
    kernelbench: str | None = None  # a checkout
    seconds: float = 0  # that the job has, in this call

    @property
    def program(self):
        return str(self.build / "bin" / "autokernel")

    @property
    def rehearsal(self):
        return self.device == CPU

    def file(self, name):
        return str(self.folder / name)


def nothing(_setting):
    return None


@dataclasses.dataclass(frozen=True)
class Job:
    """`commands(setting)`: [(name of the file for standard output, words)], run one after another while they succeed.

    `read(folder)`: one line of the numbers that matter, from the files there: measure_results.py. errors: Skipped.
    `missing(setting)`: why the job cannot run here, or None.
    """

    name: str
    proves: str
    limit_s: float  # of wall clock, after which it is ended; it is not begun with less
    commands: Callable
    read: Callable
    least_s: float | None = None  # a job that goes on where it was may begin with this much
    budgeted: bool = False  # its command is told its seconds, and it is finished when it has had limit_s of them in all
    missing: Callable = nothing
    environment: Callable = lambda setting: {}


# ---- what is missing


def needs_gpu(setting):
    return "needs a CUDA device" if setting.rehearsal else None


def needs_pytest(setting):
    found = subprocess.run([setting.python, "-c", "import pytest"], capture_output=True, check=False)
    return None if found.returncode == 0 else f"{setting.python} has no pytest: install it, or put a folder that has it into PYTHONPATH"


def needs_kernelbench(setting):
    if setting.kernelbench is None:
        return "needs a checkout: --kernelbench DIR (git clone https://github.com/ScalingIntelligence/KernelBench)"
    return None


def first_of(*checks):
    return lambda setting: next((reason for reason in (check(setting) for check in checks) if reason), None)


# ---- commands


def self_test(setting):
    return [("self_test.md", [setting.program, "bench", "--self-test", "--device", setting.device])]


def judge_rate(setting):
    minutes = "0.02" if setting.rehearsal else "0.25"
    return [("judge_rate.json", [setting.program, "bench", "--judge-rate", "--device", setting.device, "--minutes", minutes, "--json"])]


def crashes(setting):
    count = 4 if setting.rehearsal else CRASHES
    return [("crashes.json", [setting.program, "bench", "--self-test", "--crashes", str(count), "--device", setting.device, "--json"])]


def triton_canary(setting):
    """The canary is proven before the first candidate of the backend."""
    rows = ["--families", "softmax", "--shapes", "1024x1024", "--dtype", "float16", "--trials", "1"]
    return [("suite.tsv", [setting.program, "bench", "--suite", "nine", "--device", CUDA, "--backend", "triton", *rows, "--run-dir", setting.file("run")])]


def suite(*options):
    def commands(setting):
        least = ["--families", "softmax", "--shapes", "256x1024", "--trials", "1"] if setting.rehearsal else []
        chosen = [*options, *least]
        minutes = f"{max(0.5, (setting.seconds - ROUND_SUITE_S) / 60):.2f}"
        kept = ["--state", setting.file("state"), "--run-dir", setting.file("run")]
        return [("suite.tsv", [setting.program, "bench", "--suite", "nine", "--device", setting.device, *chosen, "--minutes", minutes, *kept])]

    return commands


def memory_bound(dtype):
    return lambda setting: suite(*([] if setting.rehearsal else ["--families", MEMORY_BOUND, "--dtype", dtype]))(setting)


def both_backends(setting):
    return suite(*([] if setting.rehearsal else ["--backend", "both", "--trials", "4"]))(setting)


def searched_s(journal):
    """Seconds of search that a journal has: from the first to the last trial of each start."""
    spans = []
    for line in journal.read_text().splitlines() if journal.exists() else ():
        record = json.loads(line)["record"]
        if record["type"] == "run":
            spans.append([])
        elif record["type"] == "trial" and spans:
            spans[-1].append(datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00")))
    return sum((span[-1] - span[0]).total_seconds() for span in spans if span)


def model(name, shape, small):
    def commands(setting):
        left = MODEL_MINUTES - searched_s(setting.folder / "run" / "journal.jsonl") / 60
        minutes = max(0.1, min(left, (setting.seconds - ROUND_MODEL_S) / 60))
        budget = ["--experiments", "1", "--rounds", "1", "--top", "1"] if setting.rehearsal else ["--minutes", f"{minutes:.2f}"]
        given = ["--input-shape", small if setting.rehearsal else shape, "--dtype", "float32" if setting.rehearsal else "float16"]
        kept = ["--state", setting.file("state"), "--run-dir", setting.file("run")]
        return [("summary.txt", [setting.program, "run", str(ROOT / "examples" / "models" / name), *given, "--device", setting.device, *budget, *kept])]

    return commands


def pytest(*words):
    def commands(setting):
        return [("pytest.txt", [setting.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", f"--junitxml={setting.file('junit.xml')}", *words])]

    return commands


def e2e_tests(setting):
    files = ["tests/e2e/test_cases.py", "tests/e2e/test_null_candidates.py", "tests/e2e/test_crashes.py"]
    return pytest(*files, "-k", "cpu and rotary" if setting.rehearsal else "cuda")(setting)


LOAD = """
import importlib, importlib.util, pathlib, sys
import torch
kind, tree, device = sys.argv[1:]
tree = pathlib.Path(tree)
if kind == "torch":
    sys.path.insert(0, str(tree))
    module = importlib.import_module("measured")
elif importlib.util.find_spec("kernels"):
    import kernels
    module = kernels.get_local_kernel(tree, **({"backend": "cpu"} if device == "cpu" else {}))
else:
    (variant,) = (tree / "build").iterdir()
    spec = importlib.util.spec_from_file_location("ak_softmax", variant / "__init__.py", submodule_search_locations=[str(variant)])
    module = sys.modules["ak_softmax"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
assert not any(name.split(".")[0] == "autokernel" for name in sys.modules)
(kernel,) = sys.modules[module.__name__ + "._dispatch"].KERNELS["softmax"]
x = torch.randn(*((256, 1024) if device == "cpu" else (1024, 1024)), device=device, dtype=torch.float32 if device == "cpu" else torch.float16)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    y = module.softmax(x)
calls = sum(event.count for event in profile.key_averages() if event.key.endswith("::" + kernel.name))
assert calls == 1, "the kernel was not called"
error = (y.double() - torch.softmax(x.double(), -1)).abs().max().item()
assert error < 1e-3, error
print(f"{kind}: {kernel.name} called from its package, error {error:.1e}")
"""


def export(setting):
    shape, dtype = ("256x1024", "float32") if setting.rehearsal else ("1024x1024", "float16")
    search = ["--families", "softmax", "--shapes", shape, "--dtype", dtype, "--trials", "3"]
    commands = [("suite.tsv", [setting.program, "bench", "--suite", "nine", "--device", setting.device, *search, "--run-dir", setting.file("run")])]
    for kind, name in (("hf", "ak-softmax"), ("torch", "measured")):
        tree = setting.file(f"{kind}-{os.getpid()}")  # an export goes into a new folder
        commands.append((f"export_{kind}.txt", [setting.program, "export", "softmax", tree, "--to", kind, "--name", name, "--run-dir", setting.file("run")]))
        commands.append((f"{kind}.txt", [setting.python, "-c", LOAD, kind, tree, setting.device]))
    return commands


def kernelbench(setting):
    """Levels 1 and 2, each verb going on where it was."""
    problems = ["--level", "1", "--problems", "1"] if setting.rehearsal else ["--level", "1-2"]
    words = [setting.program, "kernelbench"]
    which = ["--source", setting.kernelbench, "--backend", setting.device, *problems]
    place = ["--run-dir", setting.file("run"), "--json"]
    return [
        ("solve.json", [*words, "solve", *which, "--experiments", "1" if setting.rehearsal else "10", *place]),
        ("bench.json", [*words, "bench", *which, *place]),
        ("score.json", [*words, "score", *place]),
    ]


JOBS = [
    Job("self_test", "the judge catches every planted candidate and passes every honest twin", 240, self_test, read_self_test),
    Job("judge_rate", "judgements an hour, and whether they agree", 150, judge_rate, read_judge_rate),
    Job("crashes", "crashes, hangs and memory hogs in a row leave nothing behind", 240, crashes, read_crashes),
    Job("triton_canary", "Triton's modules are launched as they say", 100, triton_canary, read_suite, missing=needs_gpu),
    Job("tests_gpu", "runtime, worker and judge of solutions on this GPU", 400, pytest("tests/gpu", "--ignore=tests/gpu/test_kernelbench_upstream.py"), read_pytest,
        missing=needs_pytest),
    Job("tests_e2e", "the families' hard cases, null candidates and crashes on this GPU", 400, e2e_tests, read_pytest, missing=needs_pytest,
        environment=lambda setting: {"AUTOKERNEL_CRASHES": "20"}),
    Job("kernelbench_upstream", "our verdict kb is that of KernelBench's own evaluation", 300, pytest("tests/gpu/test_kernelbench_upstream.py"), read_pytest,
        missing=first_of(needs_kernelbench, needs_pytest), environment=lambda setting: {"KERNELBENCH_SOURCE": setting.kernelbench}),
    Job("sanitizer", "memcheck, racecheck and initcheck find nothing in the families' CUDA starters", 420, pytest("tests/e2e/test_sanitizer.py", "-k", "caught_by_the_sanitizer"),
        read_pytest, missing=first_of(needs_gpu, needs_pytest)),
    Job("suite_float16", "the memory-bound families against PyTorch's best and the floor, float16", 480, memory_bound("float16"), read_suite, 150, True),
    Job("suite_bfloat16", "the same, bfloat16", 480, memory_bound("bfloat16"), read_suite, 150, True),
    Job("suite_both", "all families in CUDA C++ and in Triton, a few trials each", 480, both_backends, read_suite, 150, True),
    Job("llama", "LLaMA compact, 1x2048, end to end", 900, model("llama.py:Llama", "1,2048", "1,16"), read_model, 330),
    Job("gpt2", "GPT-2, 1x1024, end to end", 900, model("gpt2.py:GPT2", "1,1024", "1,16"), read_model, 330),
    Job("bert", "BERT-base, 8x512, end to end", 900, model("bert.py:BertBase", "8,512", "1,16"), read_model, 330),
    Job("export", "a kept kernel as a package for the Hub and for pip, loaded without AutoKernel", 200, export, read_export),
    Job("tests_export", "exported packages serve layers, are differentiated and compiled on this GPU", 300, pytest("tests/e2e/test_export.py", "-k", "cuda"), read_pytest,
        missing=first_of(needs_gpu, needs_pytest)),
    Job("kernelbench", "levels 1 and 2 of KernelBench, solved and judged by both verdicts", 1700, kernelbench, read_kernelbench, 240, missing=needs_kernelbench),
]
