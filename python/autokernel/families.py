"""Reads a family: its contract (family.toml) and its functions (reference.py)."""

import dataclasses
import functools
import importlib.util
import inspect
import os
import tomllib

import torch

from autokernel.errors import describe, user_error
from autokernel.models import DTYPES

OTHER_DTYPES = {
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}


@dataclasses.dataclass
class Family:
    """One folder of kernels/. `tensors` are in the order of the reference's arguments."""

    name: str
    folder: str
    dtypes: list
    tensors: list
    scalars: dict
    options: dict
    spellings: list

    @functools.cached_property
    def module(self):
        """The module reference.py."""
        return _import_reference(self.name, os.path.join(self.folder, "reference.py"))

    def function(self, name):
        if not hasattr(self.module, name):
            raise user_error(f"{self.folder}/reference.py has no function '{name}'.")
        return getattr(self.module, name)

    def spelling(self, name, tensors, options):
        """The table of a spelling in family.toml: of those with this function, one that takes these `tensors` under these `options`."""
        named = [spelling for spelling in self.spellings if spelling["function"] == name]
        for spelling in named:
            inputs = {key for key in spelling["labels"] if self.tensor(key)["role"] != "output"}
            if inputs == set(tensors) and {**self.options, **options} == {**self.options, **spelling.get("options", {})}:
                return spelling
        if named:
            raise user_error(f"The spelling {name} of {self.name} takes other tensors or options than the task has.")
        raise user_error(f"The family {self.name} has no spelling '{name}'.")

    def tensor(self, name):
        for tensor in self.tensors:
            if tensor["name"] == name:
                return tensor
        raise user_error(f"The family {self.name} has no tensor '{name}'.")


def read_family(folder):
    """The family in `folder`. errors: WorkerError where family.toml cannot be read."""
    path = os.path.join(folder, "family.toml")
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise user_error(f"{path}: {describe(error)}") from error
    missing = [key for key in ("name", "dtypes", "tensor", "spelling") if key not in table]
    if missing:
        raise user_error(f"{path} lacks {', '.join(missing)}.")
    return Family(
        table["name"], folder, table["dtypes"], table["tensor"], table.get("scalars", {}), table.get("options", {}), table["spelling"]
    )


def family_folders(directory):
    """The folders of `directory` that hold a family, by name."""
    return [
        os.path.join(directory, name)
        for name in sorted(os.listdir(directory))
        if os.path.isfile(os.path.join(directory, name, "family.toml"))
    ]


def tensor_dtype(tensor, working):
    """The torch dtype of a contract's tensor where `T` is the dtype named `working`."""
    name = tensor.get("dtype") or ("int64" if tensor["role"] == "index" else "T")
    name = working if name == "T" else name
    dtype = DTYPES.get(name) or OTHER_DTYPES.get(name)
    if dtype is None:
        raise user_error(f"The tensor {tensor['name']} has an unknown dtype '{name}'.")
    return dtype


def call_accepted(function, named):
    """Call `function` with those of `named` that it takes."""
    parameters = inspect.signature(function).parameters
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        named = {name: value for name, value in named.items() if name in parameters}
    return function(**named)


def _import_reference(name, path):
    spec = importlib.util.spec_from_file_location(f"autokernel_family_{name}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise user_error(f"{path} does not import: {describe(error)}", error) from error
    return module
