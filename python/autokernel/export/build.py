"""Compiles the C++ part of a package into the library of operators that it loads."""

import os
import subprocess
import sys
import tempfile

import torch

from autokernel.export.errors import ExportError

STABLE_ABI = (2, 11)  # of PyTorch: the library serves this version and later ones
_LIMIT_S = 600
_HERE = os.path.dirname(os.path.abspath(__file__))


def build_library(tree, sources, operators, backend, compiler, output):
    """Write the library `output` of the namespace `operators`.

    `tree`: where the source tree lies; `sources`: its {file: flags beside the usual ones}; `compiler`: a C++ compiler.
    """
    includes = [os.path.join(tree, "torch-ext"), os.path.join(_HERE, "host"), *_torch_includes(), *(_cuda_includes() if backend == "cuda" else [])]
    defines = [f"-DTORCH_EXTENSION_NAME={operators}", f"-DTORCH_TARGET_VERSION={(STABLE_ABI[0] << 56) | (STABLE_ABI[1] << 48):#x}",
               f"-D{backend.upper()}_KERNEL"]
    common = ["-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", *defines, *(f"-I{directory}" for directory in includes)]
    with tempfile.TemporaryDirectory(prefix="autokernel-export-") as directory:
        objects = []
        for i, (source, flags) in enumerate(sources.items()):
            objects.append(os.path.join(directory, f"{i}.o"))
            _run([compiler, *(flags or ["-O2", "-std=c++20"]), *common, "-c", os.path.join(tree, source), "-o", objects[-1]])
        libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
        names = ["-ltorch_cpu", "-lc10", *(["-ltorch_cuda", "-ldl"] if backend == "cuda" else [])]
        _run([compiler, "-shared", *objects, "-o", output, f"-L{libraries}", "-Wl,--no-as-needed", *names])


def _run(command):
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExportError(f"the compiler did not run: {error}", "`autokernel doctor` says what is here") from None
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
        raise ExportError(f"the exported operators do not compile: {first}", "the whole message:\n" + "\n".join(lines[:40]))


def _torch_includes():
    base = os.path.join(os.path.dirname(torch.__file__), "include")
    return [base]


def _cuda_includes():
    """Where cuda.h is: the toolkit that is named, the packages of PyTorch for CUDA, or /usr/local/cuda."""
    named = [os.path.join(os.environ[name], "include") for name in ("AUTOKERNEL_CUDA_HOME", "CUDA_HOME") if os.environ.get(name)]
    site = [os.path.join(path, "nvidia") for path in sys.path]
    packages = [os.path.join(folder, name, "include") for folder in site if os.path.isdir(folder) for name in sorted(os.listdir(folder))]
    for directory in [*named, *packages, "/usr/local/cuda/include"]:
        if os.path.exists(os.path.join(directory, "cuda.h")):
            return [directory]
    raise ExportError("cuda.h was not found", "install CUDA's headers (pip install nvidia-cuda-runtime), or set CUDA_HOME")
