"""Crashes, hangs and memory hogs in a row: each gets its verdict, and nothing is left of them. AUTOKERNEL_CRASHES says how many."""

import json
import os

import pytest
import torch

CRASHES = int(os.environ.get("AUTOKERNEL_CRASHES", "60"))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_trial_is_lost_and_nothing_leaks(program, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    result = program.last_json("bench", "--self-test", "--crashes", CRASHES, "--device", device, timeout=120 + 8 * CRASHES)
    assert result["trials"] == result["as_expected"] == CRASHES
    assert result["twins"] == result["twins_kept"] > 0
    assert result["processes_left"] == result["files_left"] == 0
