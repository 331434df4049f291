"""Writes what the trees for the Hub and for pip have in common: the C++ sources, and the Python package with its library of operators."""

import os
import re
import shutil

from autokernel.export import cpp, python_part
from autokernel.export.build import build_library
from autokernel.export.contract import functions_of, identity

_HERE = os.path.dirname(os.path.abspath(__file__))
_INCLUDED = re.compile(r"#\s*include\s*<(autokernel/[\w./]+)>")

_OPS = '''"""{purpose}"""

{imports}

_NAMESPACE = "{operators}"

{load}ops = getattr(torch.ops, _NAMESPACE)


def add_op_namespace_prefix(name):
    """The full name of an operator."""
    return f"{{_NAMESPACE}}::{{name}}"
'''


def ops_source(operators):
    """A module that loads the library of operators beside it."""
    load = 'torch.ops.load_library(pathlib.Path(__file__).parent / f"{_NAMESPACE}.abi3.so")\n'
    return _OPS.format(purpose="Loads the operators of this package.", imports="import pathlib\n\nimport torch", operators=operators, load=load)


def noarch_ops_source(operators):
    """The same for operators that Python code defines."""
    return _OPS.format(purpose="The namespace of this package's operators.", imports="import torch", operators=operators, load="")


class Package:
    """One export. `name`: of the package, with dashes."""

    def __init__(self, request, name):
        self.request = request
        self.name = name
        self.module = name.replace("-", "_")
        self.functions = functions_of(request)
        self.kernels = [kernel for function in self.functions for kernel in function.kernels]
        self.backend = self.kernels[0].backend
        self.operators = f"_{self.module}_{self.backend}_{identity(request)}"
        self.layers = {function.name: python_part.classes_of(function.layers_file) for function in self.functions if function.layers_file}

    @property
    def needed(self):
        """What the processor must have: the request's architecture, on a CPU."""
        return self.request["architecture"] if self.backend == "cpu" else ""

    def write_python(self, directory):
        """The package without its operators."""
        write(directory, "__init__.py", python_part.package_source(self.name, self.functions, self.layers))
        write(directory, "functions.py", python_part.functions_source(self.functions))
        write(directory, "_kernels.py", python_part.kernels_source(self.functions, self.name, self.needed))
        for name in ("_dispatch.py", "_kernel.py", "_machine.py", *(["_triton.py"] if self.backend == "triton" else [])):
            shutil.copy(os.path.join(_HERE, "package", name), directory)
        if self.backend == "triton":
            write(directory, "_plans.py", python_part.plans_source(self.kernels))
            for kernel in self.kernels:
                write(directory, f"_{kernel.name}.py", kernel.entry["kernel_text"])
        for function in self.functions:
            shutil.copy(os.path.join(function.family.folder, "reference.py"), os.path.join(directory, f"_reference_{function.name}.py"))
        if self.layers:
            write(directory, "layers/__init__.py", python_part.layers_source(self.layers))
        for function in self.functions:
            if function.layers_file:
                shutil.copy(function.layers_file, os.path.join(directory, "layers", f"{function.name}.py"))

    def write_cpp(self, directory):
        """torch-ext/ and the kernels' folder. {source file: flags, None for the usual}; nothing of Triton kernels, which are Python."""
        if self.backend == "triton":
            return {}
        write(directory, "torch-ext/plans.h", cpp.plans_header(self.kernels))
        write(directory, "torch-ext/plans.cpp", cpp.plans_source(self.kernels))
        write(directory, "torch-ext/torch_binding.cpp", cpp.binding_source(self.kernels))
        for name in ("host.h", f"host_{self.backend}.h"):
            shutil.copy(os.path.join(_HERE, "host", name), os.path.join(directory, "torch-ext"))
        sources = {"torch-ext/plans.cpp": None, "torch-ext/torch_binding.cpp": None}
        for kernel in self.kernels:
            write(directory, self.kernel_file(kernel), kernel.entry["kernel_text"])
            source = f"{self.kernels_folder}/{kernel.name}.cpp"
            if self.backend == "cpu":
                write(directory, source, cpp.wrapper_source(kernel))
                sources[source] = [*self.request["compiler"]["flags"], f"-I{os.path.join(directory, self.kernels_folder, 'include')}"]
            else:
                with open(kernel.entry["module"], "rb") as file:
                    write(directory, source, cpp.image_source(kernel, file.read()))
                sources[source] = None
        self._copy_headers(os.path.join(directory, self.kernels_folder, "include"))
        return sources

    @property
    def kernels_folder(self):
        return f"{self.module}_{self.backend}"

    def kernel_file(self, kernel):
        """Where the kernel file lies; on a CPU its wrapper includes it."""
        return f"{self.kernels_folder}/{kernel.name}{'.h' if self.backend == 'cpu' else '.cu'}"

    def write_operators(self, tree, sources, directory):
        """The library of operators and its loader, into the package in `directory`."""
        if self.backend == "triton":
            write(directory, "_ops.py", noarch_ops_source(self.operators))
            return
        write(directory, "_ops.py", ops_source(self.operators))
        library = os.path.join(directory, f"{self.operators}.abi3.so")
        build_library(tree, sources, self.operators, self.backend, self.request["compiler"]["program"], library)

    def _copy_headers(self, directory):
        """The headers that the kernel files include, and those that these do."""
        open_files, done = [kernel.entry["kernel_text"] for kernel in self.kernels], set()
        while open_files:
            for name in _INCLUDED.findall(open_files.pop()):
                if name in done:
                    continue
                done.add(name)
                with open(os.path.join(self.request["include"], name), encoding="utf-8") as file:
                    open_files.append(file.read())
                write(directory, name, open_files[-1])


def write(directory, name, text):
    """A text file below `directory`."""
    path = os.path.join(directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
