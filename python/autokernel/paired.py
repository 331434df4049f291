"""Times several functions beside each other, so that drift of the machine falls on all alike."""

import gc
import time

import torch

from autokernel import device as devices

_SAMPLE_S = 2e-3  # shorter calls are repeated within a sample, so that the clock's grain does not matter
_RESAMPLES = 4000


def interleaved(functions, rounds, maximum_s, device=devices.CPU):
    """{name: [seconds a call]} of `rounds` rounds A B C C B A, a sample being the mean of a round's two visits.

    Ends early, after at least 5 rounds, when `maximum_s` have passed. On CUDA a sample ends when the device has done its work.
    """
    names = list(functions)
    repeats = {name: _repeats(functions[name], device) for name in names}
    samples = {name: [] for name in names}
    begin = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()
    try:
        for done in range(rounds):
            visits = {name: 0.0 for name in names}
            for name in names + names[::-1]:
                visits[name] += _time(functions[name], repeats[name], device) / 2
            for name in names:
                samples[name].append(visits[name])
            if done >= 4 and time.perf_counter() - begin > maximum_s:
                break
    finally:
        if collecting:
            gc.enable()
    return samples


def _repeats(function, device):
    once = min(_time(function, 1, device) for _ in range(2))
    return max(1, min(1000, int(_SAMPLE_S / max(once, 1e-7))))


def _time(function, repeats, device):
    devices.synchronise(device)
    return devices.elapsed_us(device, function, repeats) / (1e6 * repeats)


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def speedup(baseline, ours, seed=0):
    """(median of the paired ratios baseline / ours, low and high end of its 95 % bootstrap interval)."""
    ratios = torch.tensor([b / o for b, o in zip(baseline, ours)], dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(0, len(ratios), (_RESAMPLES, len(ratios)), generator=generator)
    medians = ratios[picks].quantile(0.5, dim=1)
    return median(ratios.tolist()), medians.quantile(0.025).item(), medians.quantile(0.975).item()
