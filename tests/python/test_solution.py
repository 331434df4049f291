"""Python solutions before the judge of lower trust: every planted one gets its verdict, every honest twin passes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from solution_pairs import PAIRS, REFERENCE, source

from autokernel.errors import WorkerError
from autokernel.solution import SolutionJudge
from autokernel.solution_child import Child, Refusal, find_sandbox, held_memory, held_on_disk
from autokernel.solution_memory import HostArena

try:
    find_sandbox()
except WorkerError as error:
    pytest.skip(error.message, allow_module_level=True)

LIMITS = {"load_seconds": 240.0, "call_seconds": 8.0, "memory_bytes": 3 << 30}


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "reference.py"
    path.write_text(REFERENCE)
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    with SolutionJudge(str(path), limits=LIMITS) as made:
        made.path = str(path)
        yield made
    os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)


def judged(judge, tmp_path, text, **options):
    path = tmp_path / "solution.py"
    path.write_text(source(text).replace("REFERENCE", repr(judge.path)))
    return judge.judge(str(path), **{"rounds": 0, **options})


@pytest.mark.parametrize("name", PAIRS)
def test_a_planted_solution_is_caught(judge, tmp_path, name):
    planted, _, verdict, rule, options = PAIRS[name]
    got = judged(judge, tmp_path, planted, **options)
    assert (got["verdict"], got["rule"]) == (verdict, rule), got["evidence"]
    assert got["trust"] == "lower"
    assert not got["correct"]


@pytest.mark.parametrize("name", PAIRS)
def test_its_honest_twin_passes(judge, tmp_path, name):
    _, twin, _, _, options = PAIRS[name]
    got = judged(judge, tmp_path, twin, **options)
    assert got["correct"], got
    assert got["evidence"]["weights"] == "by name" or name == "does not parse"


def processes_with(word):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path] if word in path.read_bytes() else []
        except OSError:  # it has ended
            continue
    return found


def test_the_log_is_what_was_printed_and_no_file_that_stands_in_its_place(tmp_path):
    child = object.__new__(Child)
    with open(tmp_path / "log", "w+b") as child._log:
        os.write(child._log.fileno(), b"1" * 5000 + b"printed")
        (tmp_path / "log").unlink()
        (tmp_path / "log").symlink_to("/etc/hostname")
        assert child.log_tail().endswith("1printed") and len(child.log_tail()) == 2000


def test_room_that_a_child_takes_is_seen_in_processes_and_files(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"1" * (1 << 20))
    assert 1 << 20 <= held_on_disk(tmp_path) < 2 << 20
    program = "import mmap, time\nm = mmap.mmap(-1, 64 << 20)\nm.write(b'1' * (64 << 20))\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, process_group=0) as process:
        try:
            process.stdout.readline()
            assert 64 << 20 <= held_memory(process.pid) < 256 << 20
            child = object.__new__(Child)
            child.process, child.directory, child.arena = process, tmp_path, HostArena()
            child.limits = {"memory_bytes": 256 << 20}
            child._check_room()
            child.limits = {"memory_bytes": 32 << 20}
            with pytest.raises(Refusal, match="more than 32 MiB") as refused:
                child._check_room()
            assert refused.value.verdict == "out_of_memory"
            assert process.wait(10) == -signal.SIGKILL
        finally:
            process.kill()


def test_no_process_is_left_of_a_solution(judge, tmp_path):
    got = judged(judge, tmp_path, "subprocess.Popen(['sleep', '86399.25'])\nreturn self.right(x)", seeds=2)
    assert got["correct"], got
    assert processes_with(b"86399.25") == []


def test_weak_references_are_told(tmp_path):
    reference, solution = tmp_path / "reference.py", tmp_path / "solution.py"
    text = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return (x - x).sum(1) * 0.5\n\n"
    reference.write_text(text + "def get_inputs():\n    return [torch.randn(8, 16)]\n\ndef get_init_inputs():\n    return []\n")
    solution.write_text(text.replace("class Model", "class ModelNew"))
    with SolutionJudge(str(reference), limits=LIMITS) as weak:
        got = weak.judge(str(solution), rounds=0, seeds=2)
    assert got["correct"]
    assert {"zeros", "answer to other data"} <= set(got["evidence"]["null_candidates"])


@pytest.mark.parametrize("text,part", [("class Model(:", "SyntaxError"), ("x = 1\n", "has no Model"), (REFERENCE.replace("torch.randn(64", "torch.randn(-64"), "RuntimeError")])
def test_a_reference_at_fault_is_the_users_error(tmp_path, text, part):
    path = tmp_path / "reference.py"
    path.write_text(text)
    with pytest.raises(WorkerError, match=part) as raised:
        SolutionJudge(str(path), limits=LIMITS)
    assert raised.value.kind == "user"
