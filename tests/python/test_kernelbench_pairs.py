"""The pairs that are given to KernelBench's own evaluation and to ours (tests/gpu) are what they say, by our verdict kb on the CPU."""

import pytest
from kernelbench_pairs import FAMILIES, OUTCOMES, PAIRS, backend, outcome

from autokernel.kernelbench import protocol


def test_every_family_has_a_right_solution_and_wrong_ones():
    outcomes = {family: [pair[2] for name, pair in PAIRS.items() if name.startswith(f"{family}: ")] for family in FAMILIES}
    assert all("correct" in found and len(found) >= 3 for found in outcomes.values())
    assert {pair[2] for pair in PAIRS.values()} == set(OUTCOMES)


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    reference, solution, expected = PAIRS[name]
    record = protocol.evaluate(reference, solution, "cpu", "float32", backend(solution), str(tmp_path), timed=0)
    assert outcome(record) == expected, record
