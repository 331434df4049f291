"""What is exported: kernels, and the functions that choose among them."""

import dataclasses
import functools
import hashlib
import inspect
import json
import os
import tomllib

from autokernel import families
from autokernel.bundles import DEVICES
from autokernel.expression import evaluate
from autokernel.fixtures import contiguous_strides


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kept kernel: one entry of the request's `tasks`."""

    entry: dict
    scalars: dict
    options: dict
    folded: frozenset  # dims of the contract that stand for any number of leading dims

    @property
    def task(self):
        return self.entry["task"]

    @property
    def name(self):
        """The task's id, which names the operator too."""
        return self.task["id"]

    @property
    def family(self):
        return self.task["family"]

    @property
    def backend(self):
        return self.entry["backend"]

    @property
    def device(self):
        """PyTorch's type of the device that it runs on."""
        return DEVICES[self.backend]

    @property
    def plan(self):
        """The launch plan in numbers (docs/formats/judge.md)."""
        return self.entry["plan"]

    @functools.cached_property
    def inputs(self):
        return [self._tensor(tensor) for tensor in self.task["tensors"] if tensor["role"] != "output" and not tensor.get("absent")]

    @functools.cached_property
    def outputs(self):
        return [self._tensor(tensor) for tensor in self.task["tensors"] if tensor["role"] == "output" and not tensor.get("absent")]

    def _tensor(self, tensor):
        """{"name", "role", "dtype", "shape", "strides", "folds", "limit"} with numbers."""
        binding = self.task["workload"][0]
        shape = [evaluate(label, binding["dims"]) for label in tensor["shape"]]
        strides = (binding.get("strides") or {}).get(tensor["name"]) or contiguous_strides(shape)
        folds = bool(tensor["shape"]) and tensor["shape"][0] in self.folded
        limit = evaluate(tensor.get("range", 2), binding["dims"])
        return {"name": tensor["name"], "role": tensor["role"], "dtype": tensor["dtype"], "shape": shape, "strides": strides, "folds": folds, "limit": limit}


@dataclasses.dataclass(frozen=True)
class Function:
    """A family's function: its arguments, PyTorch's way to compute it, and its kernels."""

    family: families.Family
    summary: str
    kernels: tuple

    @property
    def name(self):
        return self.family.name

    @property
    def tensors(self):
        """Arguments that are tensors; `optional` names the option that says whether one is there."""
        return [tensor for tensor in self.family.tensors if tensor["role"] != "output"]

    @property
    def presence(self):
        """{tensor: the option that says whether it is there}."""
        return {tensor["name"]: tensor["optional"] for tensor in self.tensors if "optional" in tensor}

    @property
    def options(self):
        """Options that are arguments: those that no tensor's presence says."""
        return {name: value for name, value in self.family.options.items() if name not in self.presence.values()}

    @property
    def layers_file(self):
        """kernels/<family>/layers.py, or None."""
        path = os.path.join(self.family.folder, "layers.py")
        return path if os.path.exists(path) else None

    def arguments_of_reference(self):
        return set(inspect.signature(self.family.function("reference")).parameters)


def functions_of(request):
    """The functions of a request, by name."""
    by_family = {}
    for entry in request["tasks"]:
        by_family.setdefault(entry["task"]["family"], []).append(entry)
    return [_function(os.path.join(request["families"], name), entries) for name, entries in sorted(by_family.items())]


def _function(folder, entries):
    family = families.read_family(folder)
    folded = _folded_dims(family)
    with open(os.path.join(folder, "family.toml"), "rb") as file:
        summary = tomllib.load(file).get("summary", "")
    kernels = [
        Kernel(entry, {**family.scalars, **entry["task"]["scalars"]}, {**family.options, **entry["task"]["options"]}, folded)
        for entry in entries
    ]
    return Function(family, summary, tuple(kernels))


def _folded_dims(family):
    """Dims that a spelling with the contract's own dims collapses leading ones into: M where its labels say "*M"."""
    for spelling in family.spellings:
        labels = spelling["labels"]
        plain = {name: [label.lstrip("*") for label in shape] for name, shape in labels.items()}
        if all(plain[name] == list(map(str, family.tensor(name)["shape"])) for name in labels):
            return frozenset(label[1:] for shape in labels.values() for label in shape if label.startswith("*"))
    return frozenset()


def identity(request):
    """Seven hex digits of everything that decides what the operators compute."""
    content = [[entry["kernel_text"], entry["plan"], entry["task"]["id"], entry["backend"]] for entry in request["tasks"]]
    return hashlib.sha256(json.dumps([request["to"], content], sort_keys=True).encode()).hexdigest()[:7]
