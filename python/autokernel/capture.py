"""Captures a loaded model as normalised graphs: by `torch.export`, else by Dynamo with graph breaks."""

import dataclasses

import torch

from autokernel.errors import describe, user_error
from autokernel.normalise import normalise


@dataclasses.dataclass
class Capture:
    """`graphs` are Normalised; `inputs` holds the flat inputs that each graph had when it was captured."""

    method: str  # "export" or "dynamo"
    reason: str | None  # why not export
    graphs: list
    inputs: list

    def node_count(self):
        return sum(len(graph.fx_nodes) for graph in self.graphs)


def capture(loaded):
    """Capture `loaded` (models.Loaded) in one graph where it can be exported, in several where it cannot."""
    try:
        graph = normalise(loaded.model, loaded.args, loaded.kwargs)
        return Capture("export", None, [graph], [torch.utils._pytree.tree_leaves((loaded.args, loaded.kwargs))])
    except Exception as error:  # whatever export cannot take, Dynamo may
        return _capture_by_dynamo(loaded, first_line(error))


def first_line(error):
    """The first telling line of an exception of PyTorch's compiler, which may run to pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else describe(error)


def _next_step(loaded):
    how = "as file.py:function, where the function returns (part, its example inputs)"
    if loaded.needs_gradients:
        return f"The model takes gradients in its forward, and kernels serve inference only: name a part of it that takes none, {how}."
    return f"Name a part of it that can be captured, {how}."


def _capture_by_dynamo(loaded, reason):
    graphs, inputs, failures = [], [], []

    def collect(module, example_inputs):
        try:
            graph = normalise(module, example_inputs, name=f"g{len(graphs)}")
        except Exception as error:
            failures.append(first_line(error))
            return module.forward
        position = len(graphs)
        graphs.append(graph)
        inputs.append(None)

        def run(*args):
            if inputs[position] is None:
                inputs[position] = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
            return module.forward(*args)

        return run

    torch._dynamo.reset()
    try:
        with loaded.no_gradients():
            torch.compile(loaded.model, backend=collect, dynamic=False)(*loaded.args, **loaded.kwargs)
    except Exception as error:
        raise user_error(
            f"The model can be captured neither by torch.export ({reason}) nor by Dynamo: {first_line(error)}", error
        ) from error
    finally:
        torch._dynamo.reset()
    if not graphs:
        told = f"torch.export: {reason}. Dynamo: {'; '.join(failures) or 'no graph'}"
        raise user_error(f"No part of the model could be captured. {told}. {_next_step(loaded)}")
    return Capture("dynamo", reason, graphs, inputs)
