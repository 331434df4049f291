"""The pairs that are given to KernelBench's own evaluation and to ours (tests/gpu) are what they say, by our verdict kb on the CPU."""

import json
import os
import subprocess
import sys

import pytest
from kernelbench_pairs import FAMILIES, OUTCOMES, PAIRS, backend, outcome

from autokernel.kernelbench import protocol


def test_every_family_has_a_right_solution_and_wrong_ones():
    outcomes = {family: [pair[2] for name, pair in PAIRS.items() if name.startswith(f"{family}: ")] for family in FAMILIES}
    assert all("correct" in found and len(found) >= 3 for found in outcomes.values())
    assert {pair[2] for pair in PAIRS.values()} == set(OUTCOMES)


def evaluate_apart(*arguments):
    """The record by a process of its own: Triton decides when it is first imported whether it interprets its kernels."""
    script = "import json, sys; from autokernel.kernelbench import protocol; print(json.dumps(protocol.evaluate(*json.load(sys.stdin), timed=0), default=str))"
    environment = dict(os.environ, TRITON_INTERPRET="1", PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", script], input=json.dumps(arguments), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_what_it_says(name, tmp_path):
    reference, solution, expected = PAIRS[name]
    arguments = (reference, solution, "cpu", "float32", backend(solution), str(tmp_path))
    record = evaluate_apart(*arguments) if backend(solution) == "triton" else protocol.evaluate(*arguments, timed=0)
    assert outcome(record) == expected, record
