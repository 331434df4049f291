"""Python solutions before the judge of lower trust: every planted one gets its verdict, every honest twin passes."""

import os
import time

import pytest
from solution_pairs import PAIRS, REFERENCE, source

from autokernel.errors import WorkerError
from autokernel.solution import SolutionJudge, judge_solution
from autokernel.solution_child import find_sandbox

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
