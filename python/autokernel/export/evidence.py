"""What the run knows of the exported kernels: read from its journal."""

import json
import os


def read(run_dir):
    """{"confirmations": {task: record}, "verification": its content or None, "request": the run's}."""
    found = {"confirmations": {}, "verification": None, "request": {}}
    with open(os.path.join(run_dir, "journal.jsonl"), encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)["record"]
            if record["type"] == "confirmation":
                found["confirmations"][record["task"]] = record
            elif record["type"] == "verification":
                found["verification"] = record["content"]
            elif record["type"] == "run":
                found["request"] = record["request"]
    return found


def judged(kernel, confirmations):
    """{"us", "baseline_us", "kind", "speedup", "stages"}: the kernel against the best that PyTorch has, as the judge measured it."""
    trial, baseline = kernel.entry["trial"], kernel.entry["baseline"] or {}
    confirmed = confirmations.get(kernel.name)
    us = confirmed["kernel_us"] if confirmed else trial["median_us"]
    baseline_us = confirmed["baseline_us"] if confirmed else baseline.get("best_us", 0.0)
    kind = confirmed["kind"] if confirmed else baseline.get("best_kind", "")
    stages = trial["evidence"].get("stages", []) if isinstance(trial["evidence"], dict) else []
    return {"us": us, "baseline_us": baseline_us, "kind": kind, "speedup": baseline_us / us if us else 0.0, "stages": stages}
