"""Problems in the format of KernelBench through the real program: a solution of our kernels, and the playbook's commands."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from conftest import PROGRAM, ROOT

sys.path.insert(0, str(ROOT / "tests" / "python"))
from kernelbench_checkout import PROBLEMS, write_checkout  # noqa: E402

NORMED = PROBLEMS["1_Probabilities"].replace("return torch.softmax(self.layers(x) + self.shift, dim=-1)", """h = self.layers(x) + self.shift
        return torch.softmax(h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6), dim=-1)""")

# What `solve` does after the search, on the starters in the place of winners: whether a kernel wins depends on the machine.
PLANT = """
import json, os, sys, tomllib
from autokernel.kernelbench.model_new import make_solution
problem, run, path = sys.argv[1:]
for name in os.listdir(run + "/tasks"):
    with open(f"{run}/tasks/{name}/kernel.cpp") as file:
        kernel = file.read()
    with open(f"{run}/tasks/{name}/task.json") as file:
        task = json.load(file)
    task.pop("profile")
    block = tomllib.loads(kernel.partition("/*autokernel")[2].partition("*/")[0])
    point = {key: value["default"] for key, value in block["tune"].items() if key != "require"}
    bundle = {"schema": "autokernel.bundle/1", "task": task, "kernel_file": "kernel.cpp", "module": "kernel.so", "backend": "cpu", "architecture": "", "point": point,
              "us": 1.0, "replaces_us": 2.0}
    os.makedirs(f"{run}/bundles/{name}")
    for content, file_name in ((kernel, "kernel.cpp"), ("", "kernel.so"), (json.dumps(bundle), "bundle.json")):
        with open(f"{run}/bundles/{name}/{file_name}", "w") as file:
            file.write(content)
text, kernels = make_solution(problem, run, "cpu")
with open(path, "w") as file:
    file.write(text)
print(json.dumps(sorted(kernel["family"] for kernel in kernels)))
"""


@pytest.fixture
def bench(program):
    """A program with a checkout, one problem of which two families take a part."""
    program.checkout = write_checkout(program.directory / "checkout")
    (program.checkout / "KernelBench" / "level1" / "1_Probabilities.py").write_text(NORMED)
    program.environment["AUTOKERNEL_RUNTIME"] = str(PROGRAM.parent.parent / "lib" / "libautokernel.so")
    return program


def kernelbench(program, verb, *arguments, problems="1"):
    where = () if verb == "score" else ("--source", program.checkout, "--level", "1", "--problems", problems, "--backend", "cpu")
    done = program.ok("kernelbench", verb, *where, "--run-dir", program.run_dir, "--json", *arguments)
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_solution_of_our_kernels_passes_and_needs_nothing_but_pytorch(bench):
    kernelbench(bench, "setup")
    problem = bench.run_dir / "level1" / "problems" / "001"
    for step in (("prepare", f"{problem}/model.py:problem", "--device", "cpu"), ("profile",), ("extract", "--min-share", "0")):
        bench.ok(*step, "--run-dir", problem / "run")
    solution = bench.run_dir / "level1" / "level_1_problem_1_sample_0_kernel.py"
    python = os.environ.get("AUTOKERNEL_PYTHON", sys.executable)
    source = bench.checkout / "KernelBench" / "level1" / "1_Probabilities.py"
    environment = dict(bench.environment, PYTHONPATH=str(ROOT / "python"))
    done = subprocess.run([python, "-c", PLANT, source, problem / "run", solution], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    families = json.loads(done.stdout)
    assert "rmsnorm" in families, families
    text = solution.read_text()
    assert "autokernel.kernelbench" not in text and "class Model(" not in text and "import autokernel" not in text
    (row,) = kernelbench(bench, "bench")
    assert row["kb"] and row["kb"]["correct"], row
    bare = {name: value for name, value in bench.environment.items() if not name.startswith(("AUTOKERNEL", "PYTHONPATH"))}
    alone = subprocess.run([python, "-I", "-c", CHECK_ALONE, str(source), str(solution)], env=bare, cwd=bench.directory, capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr
    (score,) = kernelbench(bench, "score")
    assert score["totals"]["all"]["kb"]["correct"] == 1 and (bench.run_dir / "kernelbench.html").stat().st_size > 1000


CHECK_ALONE = """
import sys, torch
names = {}
exec(open(sys.argv[1]).read(), names)
exec(open(sys.argv[2]).read(), names)
torch.manual_seed(42); reference = names["Model"](*names["get_init_inputs"]())
torch.manual_seed(42); ours = names["ModelNew"](*names["get_init_inputs"]())
assert list(reference.state_dict()) == list(ours.state_dict())
assert all(torch.equal(a, b) for a, b in zip(reference.parameters(), ours.parameters()))
for round in range(2):
    inputs = names["get_inputs"]()
    torch.testing.assert_close(ours(*inputs), reference(*inputs), atol=1e-5, rtol=1e-5)
    with torch.no_grad():  # what was prepared of the weights is prepared again
        for model in (reference, ours):
            for parameter in model.parameters():
                parameter.mul_(1.5)
try:
    ours(*(value[:3] for value in inputs))
except ValueError as error:
    assert "this file is for" in str(error)
else:
    raise AssertionError("another shape was taken")
assert "autokernel" not in sys.modules
"""


def test_a_problem_in_which_no_family_is_found_is_unsolved(bench):
    (result,) = kernelbench(bench, "solve", "--experiments", "1", problems="13")
    assert result["status"] == "unsolved" and result["reason"]
    (score,) = kernelbench(bench, "score")
    assert score["problems"][0]["status"] == "unsolved" and score["totals"]["all"]["kb"]["against"]["eager"]["fast_p"]["0"] == 0


def test_a_search_that_was_killed_goes_on(bench):
    where = ("--source", bench.checkout, "--level", "1", "--problems", "1", "--backend", "cpu", "--run-dir", bench.run_dir)
    with bench.start("kernelbench", "solve", *where, "--experiments", "400", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        journal = bench.run_dir / "level1" / "problems" / "001" / "run" / "journal.jsonl"
        while process.poll() is None and (not journal.exists() or '"type":"trial"' not in journal.read_text()):
            time.sleep(0.1)
        process.kill()
    before = journal.read_text().count('"type":"trial"')
    (result,) = kernelbench(bench, "solve", "--experiments", str(before + 1))
    assert result["status"] in ("solved", "unsolved") and before <= journal.read_text().count('"type":"trial"') <= before + 2


def commands():
    text = (ROOT / "playbook" / "program_kb.md").read_text()
    lines = [line.strip() for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.S | re.M) for line in block.splitlines()]
    return [re.sub(r"--experiments \d+", "--experiments 1", line) for line in lines if line]


def test_every_command_of_the_playbook_runs(bench):
    assert {line.split()[2] for line in commands()} == {"list", "setup", "solve", "bench", "score"}
    environment = dict(bench.environment, PATH=f"{PROGRAM.parent}:{os.environ['PATH']}")
    environment.update(SOURCE=str(bench.checkout), RUN=str(bench.run_dir), LEVEL="1", PROBLEMS="1,9", BACKEND="cpu")
    for line in commands():
        done = subprocess.run(["bash", "-c", line], cwd=bench.directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert "degenerate" in done.stdout


def test_bad_input_is_said(bench):
    failed = bench("kernelbench", "list", "--source", bench.directory)
    assert failed.returncode == 1 and "no checkout" in failed.err
    assert bench("kernelbench", "fly").returncode == 2
    assert "--source" in bench("kernelbench", "setup", "--backend", "cpu").err
