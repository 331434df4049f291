"""The files of a KernelBench run: a result a problem and step, each written at once, so that a killed run goes on where it was."""

import hashlib
import json
import os

from autokernel.errors import user_error

FORMAT = 1


class RunDirectory:
    """`root`/levelN/ is a run directory of the benchmark's own scripts; problems/ below it is ours."""

    def __init__(self, root):
        self.root = os.path.abspath(root)

    def require_same(self, settings):
        """Note what the run is of; errors: it was begun with other settings."""
        path = os.path.join(self.root, "kernelbench.json")
        settings = {"format": FORMAT, **settings}
        known = read_json(path)
        if known is None:
            write_json(path, settings)
        elif known != settings:
            different = [f"{name} {known.get(name)}" for name in sorted({*known, *settings}) if known.get(name) != settings.get(name)]
            raise user_error(f"The run in {self.root} is of {', '.join(different)}: name another directory with --run-dir.")

    def settings(self):
        """errors: there is no run."""
        settings = read_json(os.path.join(self.root, "kernelbench.json"))
        if settings is None:
            raise user_error(f"There is no KernelBench run in {self.root}: begin one with `autokernel kernelbench setup`, or name one with --run-dir.")
        return settings

    def level(self, level):
        return os.path.join(self.root, f"level{level}")

    def folder(self, level, number):
        return os.path.join(self.level(level), "problems", f"{number:03d}")

    def file(self, level, number, name):
        return os.path.join(self.folder(level, number), name)

    def solution(self, level, number):
        """Where the benchmark's scripts look for the solution."""
        return os.path.join(self.level(level), f"level_{level}_problem_{number}_sample_0_kernel.py")

    def read(self, level, number, step):
        """The result of a step ("setup", "solve", "kb", "strict", "baselines"), or None."""
        return read_json(self.file(level, number, f"{step}.json"))

    def write(self, level, number, step, result):
        write_json(self.file(level, number, f"{step}.json"), result)

    def known(self):
        """(level, number) of every problem that was set up."""
        found = []
        for name in sorted(os.listdir(self.root)) if os.path.isdir(self.root) else ():
            problems = os.path.join(self.root, name, "problems")
            if name.startswith("level") and os.path.isdir(problems):
                numbers = sorted(int(number) for number in os.listdir(problems) if number.isdigit())
                found += [(int(name.removeprefix("level")), number) for number in numbers if self.read(int(name[5:]), number, "setup")]
        return found


def content_hash(path):
    """Of a file; None where there is none."""
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def read_json(path):
    """What the file holds; None where it is missing or was cut off by other hands."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None


def write_text(path, text):
    """By rename, so that a reader never sees half of it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.part{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def write_json(path, content, indent=2):
    write_text(path, json.dumps(content, indent=indent, allow_nan=False) + "\n")
