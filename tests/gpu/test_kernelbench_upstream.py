"""Our verdict kb agrees with KernelBench's own evaluation on every pair of kernelbench_pairs: compiled, correct, and the reason.

KERNELBENCH_SOURCE names a checkout of ScalingIntelligence/KernelBench. Its evaluation is imported from there unchanged, in a process that is started
afresh, as is ours; this process makes no CUDA context. What stands in for packages that the evaluation imports and does not use is said in
tests/python/kernelbench_upstream.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from kernelbench_pairs import PAIRS, outcome  # noqa: E402

SOURCE = os.environ.get("KERNELBENCH_SOURCE")
CHILD = ROOT / "tests" / "python" / "kernelbench_upstream.py"
SAME = ("correctness_trials", "correctness_issue", "runtime_error_name", "compilation_error_name", "max_difference")  # of the metadata

if not SOURCE:
    pytest.skip("needs a checkout of KernelBench: KERNELBENCH_SOURCE names it", allow_module_level=True)
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device, and the benchmark evaluates on nothing else", allow_module_level=True)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """{"upstream": {name: record}, "ours": {name: record}}"""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "pairs.json").write_text(json.dumps({name: pair[:2] for name, pair in PAIRS.items()}))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"}
    found = {}
    for who, source in (("upstream", SOURCE), ("ours", "ours")):
        command = [sys.executable, str(CHILD), source, str(folder / "pairs.json"), str(folder / f"{who}.json")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-4000:]
        found[who] = json.loads((folder / f"{who}.json").read_text())
    return found


@pytest.mark.parametrize("name", PAIRS)
def test_both_evaluations_say_the_same(records, name):
    upstream, ours = records["upstream"][name], records["ours"][name]
    assert outcome(upstream) == outcome(ours) == PAIRS[name][2], (upstream, ours)
    assert (upstream["compiled"], upstream["correctness"]) == (ours["compiled"], ours["correctness"])
    told = [{key: str(record["metadata"][key]) for key in SAME if key in record["metadata"]} for record in (upstream, ours)]
    assert told[0] == told[1]
    assert (upstream["runtime"] > 0) == (ours["runtime"] > 0) == (PAIRS[name][2] == "correct")
