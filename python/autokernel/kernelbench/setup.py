"""Turns a problem into a task: its graph captured on fake tensors, so that no size is too large, and what may stand in the way."""

import operator
import os

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from autokernel import graph_json
from autokernel.capture import first_line
from autokernel.errors import WorkerError, describe, user_error
from autokernel.kernelbench import families
from autokernel.kernelbench.problems import PRECISIONS, define
from autokernel.normalise import normalise

SCHEMA = "autokernel.kernelbench-setup/1"
_FLUSH_BYTES = 256 << 20  # what the benchmark fills to empty the cache
_COMPARED_TIMES = 5  # tensors of the output's size that a comparison needs at once
_NETWORK = ("couldn't connect", "offline", "Connection", "resolve", "LocalEntryNotFound", "not a local folder", "Max retries")
_PROBABILITIES = ("p", "dropout", "dropout_p")


def set_up(path, graph_path, device="cpu", precision="float32"):
    """Capture the problem at `path`, as it runs on the device in the precision, into `graph_path`; returns what is known of it.

    errors: kind `user`, saying why it cannot be set up.
    """
    graph, inputs = capture(path, device, precision)
    graph_json.write_graphs(graph_path, [graph], "export")
    nodes = list(graph.module.graph.nodes)
    outputs = [_spec(leaf.meta["val"]) for leaf in pytree.tree_leaves(nodes[-1].args[0])]
    operators = [str(node.target) for node in nodes if node.op == "call_function" and node.target is not operator.getitem]
    memory = _memory(graph, inputs, nodes)
    return {
        "schema": SCHEMA,
        "inputs": [_spec(value) if isinstance(value, torch.Tensor) else {"value": str(value)} for value in inputs],
        "outputs": outputs,
        "operators": sorted(set(operators)),
        "family": families.family_of(operators, is_loss=len(inputs) > 1 and all(not output["shape"] for output in outputs)),
        "memory": memory,
        "notes": _notes(inputs, outputs, nodes),
    }


def capture(path, device="cpu", precision="float32"):
    """(Normalised graph, inputs) of the problem on fake tensors: nothing is computed, nothing of its size allocated, no GPU is needed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    def placed(tensor):
        return tensor.to(device=device, dtype=PRECISIONS[precision] if tensor.is_floating_point() else tensor.dtype)

    try:
        definition, mode = define(path), FakeTensorMode(allow_non_fake_inputs=True)
        try:
            with mode, torch.no_grad():
                return _captured(definition, definition.model(), mode, placed)
        except Exception:  # a constructor that reads values, or keeps tensors that are no parameters, needs real ones
            with torch.no_grad():
                return _captured(definition, definition.model(), mode, placed)
    except WorkerError as error:
        raise _as_network(error, error.message) from error
    except Exception as error:  # whatever a problem may do wrong, this is where it says so
        raise _as_network(error, f"It cannot be captured: {first_line(error)}") from error


def _captured(definition, model, mode, placed):
    with mode, torch.no_grad():
        inputs = [placed(value) if isinstance(value, torch.Tensor) else value for value in definition.inputs()]
        _place(model, placed)
    return normalise(model, inputs), inputs


def _place(model, placed):
    """As `model.to` does, which cannot exchange fake tensors."""
    made = {}
    for module in model.modules():
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if tensor not in made:
                there = placed(tensor)
                made[tensor] = torch.nn.Parameter(there, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else there
            setattr(module, name, made[tensor])


def _as_network(error, message):
    if any(word in describe(error) for word in _NETWORK):
        return user_error(f"It needs the network: {message}", error)
    return error if isinstance(error, WorkerError) else user_error(message, error)


def _spec(tensor):
    return {"dtype": graph_json.dtype_name(tensor.dtype), "shape": list(tensor.shape)}


# --- memory


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _memory(graph, inputs, nodes):
    """Estimates in bytes. `evaluation`: of what the benchmark's evaluation holds on the device at once."""
    parameters = sum(_bytes(tensor) for tensor in graph.lifted)
    given = sum(_bytes(value) for value in inputs if isinstance(value, torch.Tensor))
    output = sum(_bytes(leaf.meta["val"]) for leaf in pytree.tree_leaves(nodes[-1].args[0]))
    peak = _peak_of_intermediates(nodes)
    whole = given + 2 * parameters + peak + _COMPARED_TIMES * output + _FLUSH_BYTES
    return {"parameters": parameters, "inputs": given, "outputs": output, "intermediates": peak, "evaluation": whole}


def _peak_of_intermediates(nodes):
    """The most that the values of the graph need at once, each storage alive from its first node to the last that reads it."""
    first, last, size = {}, {}, {}
    for position, node in enumerate(nodes):
        for value in (node, *node.all_input_nodes):
            if value.op != "call_function":
                continue
            for storage in _storages(value):
                key = storage._cdata
                first.setdefault(key, position)
                last[key], size[key] = position, storage.nbytes()
    change = [0] * (len(nodes) + 1)
    for key, begin in first.items():
        change[begin] += size[key]
        change[last[key] + 1] -= size[key]
    peak = alive = 0
    for step in change:
        alive += step
        peak = max(peak, alive)
    return peak


def _storages(node):
    given = {leaf.untyped_storage()._cdata for source in node.all_input_nodes if source.op == "placeholder" for leaf in _tensors(source)}
    return [leaf.untyped_storage() for leaf in _tensors(node) if leaf.untyped_storage()._cdata not in given]


def _tensors(node):
    return [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


# --- what may stand in the way


def _notes(inputs, outputs, nodes):
    """[{"kind", "text"}]: properties under which the benchmark's own evaluation, or ours, does not do what one would expect."""
    notes = []
    integers = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and not value.is_floating_point()]
    if integers:
        dtype = graph_json.dtype_name(inputs[integers[0]].dtype)
        notes.append(_note("integer_inputs", f"input {integers[0]} is of {dtype}, which the benchmark's evaluation casts to floats"))
    if len(outputs) != 1:
        notes.append(_note("several_outputs", f"it has {len(outputs)} outputs; the benchmark compares one tensor"))
    if any("float" not in output["dtype"] for output in outputs):
        notes.append(_note("integer_output", "its output is of integers: a wrong one is reported as an error at run time"))
    random = sorted({str(node.target) for node in nodes if _is_random(node)})
    if random:
        notes.append(_note("random", f"its output is random ({', '.join(random)}): a copy of the reference does not give the same"))
    return notes


def _note(kind, text):
    return {"kind": kind, "text": text}


def _is_random(node):
    if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args)), **node.kwargs}
    probabilities = [given.get(name, 0) for name in _PROBABILITIES if name in names]
    training = given.get("train", given.get("training", True))
    return training is not False and (not probabilities or any(value != 0 for value in probabilities))
