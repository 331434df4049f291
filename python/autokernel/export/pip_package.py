"""The tree for pip: a small Python package with its operators compiled, and their source beside it."""

import json
import os
import shutil

from autokernel.export.build import STABLE_ABI
from autokernel.export.card import card
from autokernel.export.tree import write

PYPROJECT = """[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = {name}
version = "1.0.0"
description = {description}
readme = "README.md"
license = {{ text = "MIT" }}
requires-python = ">=3.10"
dependencies = ["torch>={torch}"]

[tool.setuptools]
packages = {packages}

[tool.setuptools.package-data]
{module} = ["*.so"]
"""

TEST = '''"""Each kernel is called for the sizes that it was made for, gives what PyTorch gives, and has PyTorch's gradient."""

import sys

import pytest
import torch

import {module}

DISPATCH = sys.modules["{module}._dispatch"]
CASES = [(function, kernel) for function, served in DISPATCH.KERNELS.items() for kernel in served]


def arguments(kernel):
    tensors = {{}}
    for spec in kernel.inputs:
        floating = spec.dtype.is_floating_point
        values = torch.randn(spec.shape) if floating else torch.randint(0, spec.limit, spec.shape)
        tensors[spec.name] = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype).copy_(values).to(kernel.device)
    return tensors


@pytest.mark.parametrize("function, kernel", CASES, ids=[kernel.name for _, kernel in CASES])
def test_operator(function, kernel):
    tensors = arguments(kernel)
    torch.library.opcheck(kernel.operator, tuple(tensors.values()), test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
    expected = DISPATCH.REFERENCES[function](tensors, kernel.scalars, kernel.options)
    torch.testing.assert_close(kernel.operator(*tensors.values()), expected, rtol=2e-2, atol=2e-2)
'''


def write_package(package, directory):
    """The whole tree but the card; the package's directory."""
    sources = package.write_cpp(os.path.join(directory, "source"))
    module = os.path.join(directory, package.module)
    package.write_python(module)
    package.write_operators(os.path.join(directory, "source"), sources, module)
    packages = [package.module, *([f"{package.module}.layers"] if package.layers else [])]
    write(directory, "pyproject.toml", PYPROJECT.format(
        name=json.dumps(package.name), description=json.dumps(package.functions[0].summary), torch=".".join(map(str, STABLE_ABI)),
        packages=json.dumps(packages), module=package.module))
    write(directory, f"tests/test_{package.module}.py", TEST.format(module=package.module))
    shutil.copy(package.request["license_file"], os.path.join(directory, "LICENSE"))
    return module


def write_card(package, directory, measurements):
    write(directory, "README.md", card(package, measurements, "torch"))
