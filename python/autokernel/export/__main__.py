"""python -m autokernel.export REQUEST RESULT: writes the package that a request (JSON) asks for, and what came of it (JSON)."""

import json
import os
import re
import sys
import traceback

from autokernel.export import hub, measure, pip_package
from autokernel.export.errors import ExportError
from autokernel.export.tree import Package


def main(request_path, result_path):
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    try:
        result = export(request)
    except ExportError as error:
        result = {"error": {"message": str(error), "what_to_do": error.what_to_do}}
    except Exception as error:
        traceback.print_exc()
        result = {"error": {"message": f"the export failed: {type(error).__name__}: {error}", "what_to_do": "this is a fault of AutoKernel; the directory may be removed"}}
    with open(result_path, "w", encoding="utf-8") as file:
        json.dump(result, file)


def export(request):
    """Write, build, call and measure the package; what `autokernel export --json` prints."""
    package = Package(request, request["name"] or default_name(request))
    directory = request["directory"]
    os.makedirs(directory, exist_ok=True)
    if request["to"] == "hf":
        sources = hub.write_source(package, directory)
        built = hub.write_built(package, directory, sources)
        measurements = measure.measure(package, measure.load(built, package.operators))
        hub.write_card(package, directory, measurements)
    else:
        built = pip_package.write_package(package, directory)
        measurements = measure.measure(package, measure.load(built, package.module))
        pip_package.write_card(package, directory, measurements)
    address = hub.push(directory, request["push"], package.name) if request["push"] else None
    return {
        "name": package.name,
        "directory": directory,
        "built": built,
        "operators": package.operators,
        "functions": [function.name for function in package.functions],
        "layers": [name for names in package.layers.values() for name in names],
        "kernels": [{"task": kernel.name, **measurements[kernel.name]} for kernel in package.kernels],
        "notes": notes(package, measurements),
        "pushed": address,
        "next": next_step(package, directory, request["to"]),
    }


def default_name(request):
    """ak-<family>, or ak-<the run's name> where there are several."""
    families = {entry["task"]["family"] for entry in request["tasks"]}
    name = families.pop() if len(families) == 1 else os.path.basename(request["run_dir"])
    return "ak-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def notes(package, measurements):
    """What a user must know before publishing."""
    slower = [kernel.name for kernel in package.kernels if measurements[kernel.name]["ci_high"] < 1]
    return [f"{name} is slower than PyTorch's own operation when it is called from Python on its own" for name in slower]


def next_step(package, directory, kind):
    backend = ', backend="cpu"' if package.backend == "cpu" else ""
    if kind == "hf":
        return f'kernels.get_local_kernel(pathlib.Path("{directory}"){backend})'
    return f"pip install {directory}"


if __name__ == "__main__":
    main(*sys.argv[1:])
