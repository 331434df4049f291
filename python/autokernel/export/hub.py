"""The tree for the Hugging Face Hub: what kernel-builder builds, and what the kernels package loads."""

import base64
import hashlib
import json
import os
import platform
import shutil

import torch

from autokernel.bundles import DEVICES
from autokernel.export.build import STABLE_ABI
from autokernel.export.card import card
from autokernel.export.errors import ExportError
from autokernel.export.tree import write

EDITION = 5  # of build.toml
VERSION = 1
LICENSE = "mit"

FLAKE = """{
  description = "Flake for the kernels of NAME";

  inputs = {
    kernel-builder.url = "github:huggingface/kernels";
  };

  outputs =
    {
      self,
      kernel-builder,
    }:
    kernel-builder.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
    };
}
"""

COMPATIBILITY = '''"""For versions of the kernels package that look for the package in a folder of its own."""

import importlib.util
import pathlib
import sys

_directory = pathlib.Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("{operators}_flat", _directory / "__init__.py", submodule_search_locations=[str(_directory)])
_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _module
_spec.loader.exec_module(_module)
globals().update({{name: getattr(_module, name) for name in _module.__all__}})
__all__ = _module.__all__
'''

TEST = '''"""Each kernel is called for the sizes that it was made for, and gives what PyTorch gives in float64."""

import pathlib
import sys

import kernels
import pytest
import torch

MODULE = kernels.get_local_kernel(pathlib.Path(__file__).parents[1]{backend_argument})
DISPATCH = sys.modules[MODULE.__name__ + "._dispatch"]
CASES = [(function, kernel) for function, served in DISPATCH.KERNELS.items() for kernel in served]


def arguments(function, kernel, device):
    generator = torch.Generator().manual_seed(7)
    tensors = {{}}
    for spec in kernel.inputs:
        place = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype)
        floating = spec.dtype.is_floating_point
        values = torch.randn(spec.shape, generator=generator) if floating else torch.randint(0, spec.limit, spec.shape, generator=generator)
        tensors[spec.name] = place.copy_(values).to(device)
    return tensors, kernel.scalars, kernel.options


@pytest.mark.kernels_ci
@pytest.mark.parametrize("function, kernel", CASES, ids=[kernel.name for _, kernel in CASES])
def test_kernel(function, kernel):
    tensors, scalars, options = arguments(function, kernel, kernel.device)
    assert DISPATCH.would_run(function, tensors, scalars, options) == kernel.name
    result = DISPATCH.run(function, tensors, scalars, options)
    wide = {{name: tensor.double() if tensor is not None and tensor.is_floating_point() else tensor for name, tensor in tensors.items()}}
    expected = DISPATCH.REFERENCES[function](wide, scalars, options)
    tolerance = {{torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}}[result.dtype]
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
'''

BENCHMARK = '''"""For `kernels benchmark`: each kernel, and PyTorch's operation beside it."""

import sys

import torch
from kernels.benchmark import Benchmark


class {class_name}Benchmark(Benchmark):
    seed = 7

    def setup(self):
        self.dispatch = sys.modules[self.kernel.__name__ + "._dispatch"]
        self.calls = {{}}
        for function, served in self.dispatch.KERNELS.items():
            for kernel in served:
                tensors = {{spec.name: self._tensor(spec) for spec in kernel.inputs}}
                self.calls[kernel.name] = (function, tensors, kernel.scalars, kernel.options)

    def _tensor(self, spec):
        place = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=self.device)
        floating = spec.dtype.is_floating_point
        values = torch.randn(spec.shape, device=self.device) if floating else torch.randint(0, spec.limit, spec.shape, device=self.device)
        return place.copy_(values)
{methods}'''

BENCHMARK_METHOD = '''
    def benchmark_{name}(self):
        self.out = self.dispatch.run(*self.calls["{name}"])

    def verify_{name}(self) -> torch.Tensor:
        function, tensors, scalars, options = self.calls["{name}"]
        return self.dispatch.REFERENCES[function](tensors, scalars, options)
'''


def variant(backend):
    """The name of the built tree for this machine and PyTorch."""
    if backend == "triton":
        return "torch-cuda"
    place = {"cpu": "cpu", "cuda": f"cu{(torch.version.cuda or '0').split('.')[0]}0"}[backend]
    return f"torch-stable-abi{STABLE_ABI[0]}{STABLE_ABI[1]}-{place}-{platform.machine()}-{platform.system().lower()}"


def write_source(package, directory):
    """The source tree, all but the card. {source file: flags} of the operators."""
    sources = package.write_cpp(directory)
    package.write_python(os.path.join(directory, "torch-ext", package.module))
    write(directory, "build.toml", build_toml(package, sources))
    write(directory, "flake.nix", FLAKE.replace("NAME", package.name))
    backend_argument = ', backend="cpu"' if package.backend == "cpu" else ""
    write(directory, "tests/__init__.py", "")
    write(directory, f"tests/test_{package.module}.py", TEST.format(backend_argument=backend_argument))
    methods = "".join(BENCHMARK_METHOD.format(name=kernel.name) for kernel in package.kernels)
    class_name = "".join(part.capitalize() for part in package.name.split("-"))
    write(directory, "benchmarks/benchmark.py", BENCHMARK.format(class_name=class_name, methods=methods))
    shutil.copy(package.request["license_file"], os.path.join(directory, "LICENSE"))
    return sources


def write_built(package, directory, sources):
    """build/<variant>/, as the kernels package loads it. Returns its path."""
    built = os.path.join(directory, "build", variant(package.backend))
    package.write_python(built)
    package.write_operators(directory, sources, built)
    write(built, f"{package.module}/__init__.py", COMPATIBILITY.format(operators=package.operators))
    metadata = {
        "name": package.name,
        "id": package.operators,
        "version": VERSION,
        "license": LICENSE,
        "python-depends": [],
        "backend": {"type": DEVICES[package.backend], **({"archs": _archs(package)} if package.backend == "cuda" else {})},
        "digest": {"algorithm": "sha256", "files": _digests(built)},
    }
    write(built, "metadata.json", json.dumps(metadata, indent=2) + "\n")
    return built


def write_card(package, directory, measurements):
    text = card(package, measurements, "hf", package.request.get("push"))
    write(directory, "README.md", text)
    write(directory, "CARD.md", text)  # which kernel-builder makes the built tree's card of


def build_toml(package, sources):
    """The kernel-builder configuration. `sources`: as write_source gives them."""
    if package.backend == "triton":
        return "\n".join([*_general(package), "", "[torch-noarch]", ""])
    torch_sources = [name for name in sources if name.startswith("torch-ext/")]
    headers = ["torch-ext/plans.h", "torch-ext/host.h", f"torch-ext/host_{package.backend}.h"]
    own = [name for name in sources if not name.startswith("torch-ext/")]
    nested = [package.kernel_file(kernel) for kernel in package.kernels]
    lines = [
        *_general(package),
        "",
        "[torch]",
        f"src = {_toml(torch_sources + headers)}",
        "",
        "[torch.stable-abi]",
        f"{package.backend} = {_toml('.'.join(map(str, STABLE_ABI)))}",
        "",
        f"[kernel.{package.kernels_folder}]",
        f"backend = {_toml(package.backend)}",
        'depends = ["torch"]',
    ]
    if package.backend == "cpu":
        flags = package.request["compiler"]["flags"]
        lines += [f"src = {_toml(own + nested + _headers(package))}", f"include = {_toml([package.kernels_folder + '/include'])}", f"cxx-flags = {_toml(flags)}"]
    else:
        lines += [f"src = {_toml(own)}", f"cuda-capabilities = {_toml(_archs(package))}"]
    return "\n".join(lines) + "\n"


def _general(package):
    return [
        "[general]",
        f"name = {_toml(package.name)}",
        f"version = {VERSION}",
        f"edition = {EDITION}",
        f"license = {_toml(LICENSE)}",
        f"backends = {_toml([DEVICES[package.backend]])}",
        *(["", "[general.hub]", f"repo-id = {_toml(package.request['push'])}"] if package.request.get("push") else []),
    ]


def push(directory, repository, module):
    """Upload the tree; the address of what was made. errors: no token, no network, a repository that is another's."""
    try:
        import huggingface_hub
    except ImportError:
        raise ExportError("--push needs the package huggingface_hub", "pip install huggingface_hub, then give the same command a new directory") from None
    token = huggingface_hub.get_token()
    if not token:
        raise ExportError(f"the package is written to {directory}, but not uploaded: there is no token of the Hugging Face Hub",
                          f"set HF_TOKEN or run `hf auth login`, then `hf upload {repository} {directory} --repo-type kernel`")
    api = huggingface_hub.HfApi(token=token)
    try:
        address = api.create_repo(repository, repo_type="kernel", exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=directory, repo_type="kernel", revision=_branch(api, repository),
                          commit_message=f"{module}, version {VERSION}", ignore_patterns=["*.pyc", "**/__pycache__/**"])
    except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ExportError(f"the package is written to {directory}, but not uploaded: {first}",
                          f"see that the network and the rights of the token are there, then `hf upload {repository} {directory} --repo-type kernel`") from None
    return str(address)


def _branch(api, repository):
    """The branch that holds this version."""
    branch = f"v{VERSION}"
    api.create_branch(repository, branch=branch, repo_type="kernel", exist_ok=True)
    return branch


def _headers(package):
    root = os.path.join(package.request["directory"], package.kernels_folder, "include")
    return [os.path.relpath(os.path.join(folder, name), package.request["directory"]) for folder, _, names in os.walk(root) for name in sorted(names)]


def _archs(package):
    """["9.0a"] of sm_90a."""
    targets = {kernel.entry["architecture"].removeprefix("sm_") for kernel in package.kernels}
    return sorted(f"{target.rstrip('af')[:-1]}.{target.rstrip('af')[-1]}{target[len(target.rstrip('af')):]}" for target in targets)


def _digests(directory):
    """{file: base64 of its SHA-256}, but for the metadata itself and compiled Python."""
    digests = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, directory)
            if relative == "metadata.json" or name.endswith(".pyc"):
                continue
            with open(path, "rb") as file:
                digests[relative] = base64.b64encode(hashlib.sha256(file.read()).digest()).decode()
    return dict(sorted(digests.items()))


def _toml(value):
    return json.dumps(value)
