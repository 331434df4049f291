"""What this machine's processor can do."""

import platform


def missing_instructions(needed):
    """Those of `needed` (a machine's name, then names of /proc/cpuinfo) that this processor lacks, in words; empty where it has all."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith(("flags", "Features"))]
    except OSError:
        lines = []
    present = {platform.machine(), *(lines[0].partition(":")[2].split() if lines else ())}
    return " ".join(sorted(set(needed.split()) - present))
