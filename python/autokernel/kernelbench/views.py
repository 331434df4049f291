"""Files that the benchmark's own scripts read, made of a run's results: eval_results.json a level, and baselines."""

import os

from autokernel.kernelbench.run_directory import write_json

_FIELDS = ("compiled", "correctness", "metadata", "runtime", "runtime_stats")
_BASELINE_FILES = {"eager": "baseline_time_torch.json", "compile": "baseline_time_torch_compile_inductor_default.json"}


def write(run):
    """Write them anew for all that was judged so far."""
    evaluations, baselines = {}, {kind: {} for kind in _BASELINE_FILES}
    for level, number in run.known():
        kb, times = run.read(level, number, "kb"), (run.read(level, number, "baselines") or {}).get("times") or {}
        if kb is not None:
            evaluations.setdefault(level, {})[str(number)] = [{"sample_id": 0, **{field: kb[field] for field in _FIELDS}}]
        for kind, stats in times.items():
            if stats and "mean" in stats:
                baselines[kind].setdefault(f"level{level}", {})[run.read(level, number, "setup")["file"]] = stats
    for level, results in evaluations.items():
        write_json(os.path.join(run.level(level), "eval_results.json"), results, indent=4)
    for kind, name in _BASELINE_FILES.items():
        if baselines[kind]:
            write_json(os.path.join(run.root, "timing", name), baselines[kind])
