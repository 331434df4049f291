"""What the jobs of scripts/measure.py wrote, each as one line of the numbers that matter."""

import json
import re
import xml.etree.ElementTree as xml


class Skipped(Exception):
    """A job that could not show anything here; the text says why."""


def last_json(path):
    return json.loads(path.read_text().strip().splitlines()[-1])


def read_self_test(folder):
    found = last_json(folder / "self_test.md")
    return f"{found['caught']} of {found['pairs']} caught, {found['honest_passed']} honest twins passed"


def read_judge_rate(folder):
    found = last_json(folder / "judge_rate.json")
    rate, repeated = found["rate"], found["repeated"]
    copies = ", ".join(f"{copy['ratio']:.3f}" for copy in found["copies"])
    agree = f"{repeated['agree']} of {repeated['times']} within 1.5 %" if repeated["times"] else "none kept to repeat"
    return f"{rate['per_hour']:.0f} an hour; {agree}; our copy over the system's {copies}"


def read_crashes(folder):
    found = last_json(folder / "crashes.json")
    left = f"{found['processes_left']} processes and {found['files_left']} files left, {found['device_memory_growth_mb']} MB of device memory"
    return f"{found['as_expected']} of {found['trials']} as expected, {found['twins_kept']} of {found['twins']} twins kept, {left}"


def read_suite(folder):
    header, *rows = [line.split("\t") for line in (folder / "suite.tsv").read_text().strip().splitlines()]
    label, mean = rows.pop()
    at = header.index("best/ours")
    ratios = [float(row[at]) for row in rows if row[at] != "-"]
    return f"{label} {mean}; {sum(ratio >= 1 for ratio in ratios)} of {len(rows)} rows at 1 or more"


def read_model(folder):
    text = (folder / "summary.txt").read_text()
    against = re.findall(r"^(\S.*?)\s+([\d.]+)x\s+([\d.]+) to ([\d.]+)$", text, re.M)
    beaten = re.search(r"(\d+ experiments).*?(\d+ of \d+ kernels beat)", text)
    if not against:
        return "not verified in the model"
    return "; ".join([*(f"{name.strip()} {factor}x ({low}-{high})" for name, factor, low, high in against), *(beaten.groups() if beaten else ())])


def read_pytest(folder):
    """Counts of a JUnit file. errors: Skipped where nothing ran."""
    counts, reasons = {"passed": 0, "failed": 0, "skipped": 0}, []
    for case in xml.parse(folder / "junit.xml").iter("testcase"):
        skipped = case.find("skipped")
        broken = case.find("failure") is not None or case.find("error") is not None
        counts["failed" if broken else "passed" if skipped is None else "skipped"] += 1
        if skipped is not None:  # of a whole file, the reason is in the text
            reasons += re.findall(r"Skipped: (.*?)['\"]\)?$", skipped.text or "", re.M) or [skipped.get("message", "")]
    if counts["passed"] + counts["failed"] == 0:
        raise Skipped(reasons[0] if reasons else "no test was found")
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def read_export(folder):
    return "; ".join((folder / name).read_text().strip().splitlines()[-1] for name in ("hf.txt", "torch.txt"))


def read_kernelbench(folder):
    totals = last_json(folder / "score.json")["totals"]["all"]
    parts = [f"{verdict} {totals[verdict]['correct']} correct of {totals[verdict]['judged']} judged" for verdict in ("kb", "strict") if totals.get(verdict)]
    return "; ".join(parts)
