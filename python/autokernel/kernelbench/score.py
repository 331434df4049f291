"""What a run is worth: fast_p and geometric means over measured solutions, by level and by family.

A problem without a measured, correct solution counts in every denominator and in no numerator. Degenerate problems, which answers that
compute nothing pass too, are counted apart.
"""

import math

THRESHOLDS = (0, 0.5, 0.8, 1, 1.5, 2, 3, 5)
VERDICTS = ("kb", "strict")
AGAINST = ("eager", "best")  # the best of eager and torch.compile
SCHEMA = "autokernel.kernelbench-score/1"


def row_of(level, number, results):
    """One problem's line of the table. `results`: {"setup", "solve", "nulls", "baselines", "kb", "strict"}, each a result or None."""
    setup, solve = results["setup"], results.get("solve") or {}
    times = (results.get("baselines") or {}).get("times") or {}
    row = {
        "level": level, "number": number, "title": setup["title"], "family": setup.get("family"),
        "degenerate": (results.get("nulls") or {}).get("passing"),
        "kb": _kb(results.get("kb"), times), "strict": _strict(results.get("strict"), times),
    }
    row["status"], row["reason"] = _status(row, setup, solve, results)
    return row


def _kb(result, times):
    if result is None:
        return None
    eager_ms = (times.get("eager") or {}).get("mean")
    measured = result["correctness"] and result["runtime"] > 0 and eager_ms
    speedup = eager_ms / result["runtime"] if measured else None
    return {"built": result["compiled"], "correct": result["correctness"], "eager": speedup, "best": _against_best(speedup, times)}


def _strict(result, times):
    if result is None or result.get("verdict") in ("unavailable", "failed_environment"):
        return None
    speedup = result.get("speedup") if result.get("correct") else None
    return {"built": bool(result.get("compiled")), "correct": bool(result.get("correct")), "eager": speedup, "best": _against_best(speedup, times),
            "verdict": result["verdict"]}


def _against_best(speedup, times):
    """A speed-up over eager, by what the best baseline gains over eager on one clock."""
    known = [time["mean"] for time in times.values() if time and time.get("mean")]
    return None if speedup is None or not times.get("eager") else speedup * min(known) / times["eager"]["mean"]


def _status(row, setup, solve, results):
    """(one word, why) of how far a problem came."""
    if setup["status"] != "ready":
        return "refused", setup["reason"]
    if row["kb"] is None:
        return "unsolved", solve.get("reason") or "it has no solution that was measured"
    metadata = results["kb"]["metadata"]
    if not row["kb"]["built"]:
        return "failed build", _first_of(metadata, "compilation_error", "cuda_error", "other_error", "error")
    if not row["kb"]["correct"]:
        return "wrong", _first_of(metadata, "runtime_error", "correctness_issue")
    if row["strict"] is not None and not row["strict"]["correct"]:
        return "correct for kb alone", row["strict"]["verdict"]
    return ("faster" if (row["kb"]["best"] or 0) > 1 else "not faster"), ""


def _first_of(metadata, *names):
    return next((str(metadata[name])[:200] for name in names if name in metadata), "")


# --- sums


def summarise(rows):
    """{"levels": {"1": …}, "families": {"matmul": …}, "all": …}, each {"kb": …, "strict": …} of `totals`."""
    return {
        "levels": {str(level): _both([row for row in rows if row["level"] == level]) for level in sorted({row["level"] for row in rows})},
        "families": {family: _both([row for row in rows if (row["family"] or "not set up") == family])
                     for family in sorted({row["family"] or "not set up" for row in rows})},
        "all": _both(rows),
    }


def _both(rows):
    return {verdict: totals(rows, verdict) for verdict in VERDICTS}


def totals(rows, verdict):
    """Counts, fast_p and geometric means by one verdict; of degenerate problems only counts, and the fast_p with them for comparison."""
    degenerate = [row for row in rows if row["degenerate"]]
    counted = [row for row in rows if not row["degenerate"]]
    return {
        "problems": len(counted), "judged": sum(row[verdict] is not None for row in counted),
        "built": _count(counted, verdict, "built"), "correct": _count(counted, verdict, "correct"),
        "against": {against: _speed(counted, verdict, against) for against in AGAINST},
        "degenerate": {"problems": len(degenerate), "correct": _count(degenerate, verdict, "correct")},
        "with_degenerate": {against: _fast(rows, verdict, against) for against in AGAINST},
    }


def _count(rows, verdict, what):
    return sum(bool(row[verdict] and row[verdict][what]) for row in rows)


def _speed(rows, verdict, against):
    speedups = _speedups(rows, verdict, against)
    return {
        "fast_p": _fast(rows, verdict, against),
        "geometric_mean": geometric_mean(speedups),
        "geometric_mean_of_faster": geometric_mean([speedup for speedup in speedups if speedup > 1]),
    }


def _speedups(rows, verdict, against):
    return [row[verdict][against] for row in rows if row[verdict] and row[verdict]["correct"] and row[verdict][against] is not None]


def _fast(rows, verdict, against):
    """{p: share of all problems whose solution is correct and more than p times as fast}"""
    speedups = _speedups(rows, verdict, against)
    return {str(p): sum(speedup > p for speedup in speedups) / len(rows) if rows else 0.0 for p in THRESHOLDS}


def geometric_mean(values):
    """None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
