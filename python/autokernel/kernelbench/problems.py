"""The problems of a KernelBench checkout: which there are, and what a problem's file defines."""

import dataclasses
import os
import re

import torch

from autokernel.errors import describe, user_error

LEVELS = (1, 2, 3, 4)
PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SEED = 42  # of weights and inputs, as the benchmark's own evaluation has it
_FILE_NAME = re.compile(r"(\d+)_(\w[\w.-]*)\.py")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One file of the checkout."""

    level: int
    number: int
    path: str

    @property
    def file(self):
        return os.path.basename(self.path)

    @property
    def title(self):
        return self.file.removesuffix(".py").partition("_")[2].strip("_").replace("_", " ")

    def source(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()


def find_problems(source, levels=LEVELS, numbers=None):
    """The problems of the checkout `source`, by level and number; `numbers`: None for all.

    errors: `source` is no checkout, a level or a number that it does not have.
    """
    found = [problem for level in levels for problem in _of_level(source, level)]
    if numbers is not None:
        missing = sorted(set(numbers) - {problem.number for problem in found})
        if missing:
            raise user_error(f"There is no problem {_listed(missing)} in level {_listed(levels)} of {source}: `autokernel kernelbench list` shows all.")
        found = [problem for problem in found if problem.number in numbers]
    return found


def _of_level(source, level):
    folder = os.path.join(problems_folder(source), f"level{level}")
    if not os.path.isdir(folder):
        raise user_error(f"{source} has no level {level}: levels are {_listed(LEVELS)}.")
    matches = [(name, _FILE_NAME.fullmatch(name)) for name in os.listdir(folder)]
    problems = [Problem(level, int(match[1]), os.path.join(folder, name)) for name, match in matches if match]
    return sorted(problems, key=lambda problem: problem.number)


def problems_folder(source):
    """The folder that holds level1 and so on: KernelBench/ of a checkout, or `source` itself."""
    for folder in (os.path.join(source, "KernelBench"), source):
        if os.path.isdir(os.path.join(folder, "level1")):
            return os.path.abspath(folder)
    raise user_error(
        f"{source} is no checkout of KernelBench, which has KernelBench/level1: "
        "git clone https://github.com/ScalingIntelligence/KernelBench, and name its folder with --source."
    )


def parse_numbers(text):
    """{1, 2, 3, 36} of "1-3,36"; None for an empty text."""
    numbers = set()
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise user_error(f"--problems {text} is no list of numbers and ranges: write it like 1-20,36.")
        numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers or None


def _listed(values):
    return ", ".join(str(value) for value in values)


# --- what a file defines


@dataclasses.dataclass
class Definition:
    """The names that every problem's file has."""

    Model: type
    get_inputs: object
    get_init_inputs: object

    def model(self):
        """The reference with its weights from the seed, on the CPU (or on what is the default device)."""
        torch.manual_seed(SEED)
        arguments = self.get_init_inputs()
        torch.manual_seed(SEED)
        return self.Model(*arguments)

    def inputs(self, seed=SEED):
        torch.manual_seed(seed)
        return self.get_inputs()


def define(path):
    """Execute a problem's file. errors: kind `user`, with the file's own traceback."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    names = {"__name__": "problem"}
    try:
        exec(compile(text, path, "exec"), names)
    except ModuleNotFoundError as error:
        raise user_error(f"It needs the package {error.name}: pip install {error.name}.", error) from error
    except (Exception, SystemExit) as error:
        raise user_error(f"The problem's file does not run: {describe(error)}", error) from error
    missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if name not in names]
    if missing:
        raise user_error(f"The problem's file defines no {_listed(missing)}.")
    return Definition(names["Model"], names["get_inputs"], names["get_init_inputs"])


def as_model(path):
    """(model, inputs) for `autokernel run`: in training mode whoever asks, as the benchmark evaluates it."""
    definition = define(path)
    with torch.no_grad():
        model = definition.model()
    model.train = lambda mode=True: model
    return model, tuple(definition.inputs())
