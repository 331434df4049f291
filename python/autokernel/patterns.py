"""The verb `patterns`: traces the spellings of every family twice and writes what stays the same, with the rest explained.

A spelling is exported with two sets of sizes and scalars. Both traces must have the same operators; a number that differs between them is
explained by a dim, an expression of dims or a scalar, and a list that begins with the leading dims of `*M` by `*M`.
"""

import hashlib
import itertools
import json
import math
import os
import struct

import torch

from autokernel import expression, graph_json
from autokernel.errors import WorkerError, describe, user_error
from autokernel.families import family_folders, read_family, tensor_dtype
from autokernel.models import parse_dtype
from autokernel.normalise import normalise

# Even, with halves that are distinct primes: a dim, its half and products of dims are told apart by value.
_SIZES = ([22, 26, 34, 38, 46, 58, 62, 74, 86, 94], [82, 106, 118, 122, 134, 142, 146, 158, 166, 178])
_LEADING = ((3, 5), (7, 9))
_FACTORS = (2, 3, 4, 8)
_FLOAT_SCALARS = ([0.1328125 + 0.0078125 * i for i in range(16)], [0.2578125 + 0.0078125 * i for i in range(16)])  # exact in every dtype
_INT_SCALARS = ([-131 - i for i in range(16)], [-173 - i for i in range(16)])


def patterns(session, arguments, progress):
    """Write patterns.json for the dtypes asked; a spelling that cannot become a pattern is reported and left out."""
    directory = arguments["families"]
    if not os.path.isdir(directory):
        raise user_error(f"There is no directory of families at {directory}.")
    session.families = directory
    dtypes = arguments.get("dtypes") or ["float32"]
    found, errors = [], []
    folders = family_folders(directory)
    for position, folder in enumerate(folders):
        progress(f"Tracing {os.path.basename(folder)}", position, len(folders))
        for dtype in dtypes:
            traced = _cached(folder, dtype)
            found += traced["patterns"]
            errors += [error for error in traced["errors"] if error not in errors]
    graph_json.write_json(
        arguments["path"], {"schema": "autokernel.patterns/1", "torch": torch.__version__.split("+")[0], "patterns": found}
    )
    return {"patterns": len(found), "errors": errors}


# --- cache


def cache_directory():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "autokernel", "patterns")


def _cached(folder, dtype):
    path = os.path.join(cache_directory(), f"{_content_hash(folder, dtype)}.json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        traced = family_patterns(folder, dtype)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        graph_json.write_json(path, traced)
    except OSError:
        pass  # a cache that cannot be written costs time only
    return traced


def _content_hash(folder, dtype):
    """Covers the family's files, this package's tracing and PyTorch: whatever a pattern depends on."""
    here = os.path.dirname(os.path.abspath(__file__))
    digest = hashlib.sha256(f"{dtype} {torch.__version__}".encode())
    own = [os.path.join(here, name) for name in ("patterns.py", "normalise.py", "graph_json.py", "families.py")]
    for path in [os.path.join(folder, "family.toml"), os.path.join(folder, "reference.py"), *own]:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(struct.pack("<Q", len(content)) + content)
    return digest.hexdigest()[:32]


# --- tracing


def family_patterns(folder, dtype):
    """{"patterns": […], "errors": […]} of one family in one dtype."""
    try:
        family = read_family(folder)
        spellings = family.spellings if dtype in family.dtypes else []
        parse_dtype(dtype)
        if spellings:
            family.module  # noqa: B018 - an import error is the family's, said once
    except WorkerError as error:
        return {"patterns": [], "errors": [{"family": os.path.basename(folder), "spelling": "", "message": error.message}]}
    found, errors = {}, []  # two spellings may be one in this dtype, as a cast to it does nothing: the first stands
    for spelling in spellings:
        try:
            pattern = spelling_pattern(family, spelling, dtype)
            found.setdefault(json.dumps([pattern[key] for key in ("options", "inputs", "nodes", "outputs")]), pattern)
        except Exception as error:
            message = error.message if isinstance(error, WorkerError) else describe(error)
            errors.append({"family": family.name, "spelling": spelling.get("function", ""), "message": message})
    return {"patterns": list(found.values()), "errors": errors}


def spelling_pattern(family, spelling, dtype):
    """The pattern of one spelling in one dtype. errors: WorkerError that says what is not explained."""
    traces = [_trace(family, spelling, dtype, trial) for trial in (0, 1)]
    _check_alike(*traces)
    unifier = _Unifier(*traces)
    inputs, outputs = _split_labels(family, spelling)
    nodes = [
        {"name": a["name"], "op": a["op"], "args": unifier.unify(a["args"], b["args"])} for a, b in zip(traces[0].body, traces[1].body)
    ]
    _check_inputs_are_read(inputs, nodes)
    values = traces[0].output_values
    if len(values) != len(outputs):
        raise user_error(f"The spelling returns {len(values)} values where its labels name {len(outputs)} outputs.")
    return {
        "family": family.name,
        "spelling": spelling["function"],
        "dtype": dtype,
        "options": {**family.options, **spelling.get("options", {})},
        "inputs": [{"name": name, "labels": labels, "dtype": _dtype(family, name, dtype)} for name, labels in inputs.items()],
        "nodes": nodes,
        "outputs": [
            {**unifier.unify(value, value), "labels": labels, "name": name} for value, (name, labels) in zip(values, outputs.items())
        ],
    }


def _dtype(family, name, dtype):
    return graph_json.dtype_name(tensor_dtype(family.tensor(name), dtype))


def _split_labels(family, spelling):
    """(inputs, outputs) of a spelling, name -> labels, in the contract's order."""
    labels = spelling.get("labels", {})
    unknown = [name for name in labels if name not in {tensor["name"] for tensor in family.tensors}]
    if unknown:
        raise user_error(f"The labels name {', '.join(unknown)}, which the family has not.")
    named = [(tensor, labels[tensor["name"]]) for tensor in family.tensors if tensor["name"] in labels]
    inputs = {tensor["name"]: label for tensor, label in named if tensor["role"] != "output"}
    outputs = {tensor["name"]: label for tensor, label in named if tensor["role"] == "output"}
    return inputs, outputs


class _Trace:
    """One export of a spelling: its nodes, and the sizes and scalars that it had."""

    def __init__(self, nodes, dims, leading, scalars, input_names):
        self.dims, self.leading, self.scalars = dims, leading, scalars
        placeholders = [node for node in nodes if node["op"] == "placeholder"]
        constants = [node for node in placeholders if node["kind"] != "input"]
        if constants:
            raise user_error(f"The spelling makes a constant tensor ({constants[0]['target']}); write the value as a number.")
        self.inputs = {node["name"]: name for node, name in zip(placeholders, input_names)}
        self.body = [node for node in nodes if node["op"] not in ("placeholder", "output")]
        self.output_values = nodes[-1]["args"]["values"]
        self.out = {node["name"]: node["out"] for node in nodes if node["op"] != "output"}


class _Call(torch.nn.Module):
    """A spelling as a module of positional tensors."""

    def __init__(self, function, names, scalars):
        super().__init__()
        self.function, self.names, self.scalars = function, names, scalars

    def forward(self, *tensors):
        return self.function(**dict(zip(self.names, tensors)), **self.scalars)


def _trace(family, spelling, dtype, trial):
    inputs, outputs = _split_labels(family, spelling)
    dims, leading = _choose_sizes(family, spelling, trial)
    scalars = _choose_scalars(family, spelling, trial)
    tensors = [
        torch.empty(_shape(labels, dims, leading), dtype=tensor_dtype(family.tensor(name), dtype)) for name, labels in inputs.items()
    ]
    graph = normalise(_Call(family.function(spelling["function"]), list(inputs), scalars), tensors)
    trace = _Trace(graph.nodes, dims, leading, scalars, list(inputs))
    for value, (name, labels) in zip(trace.output_values, outputs.items()):
        _check_output(family, dtype, trace, value, name, labels)
    return trace


def _check_output(family, dtype, trace, value, name, labels):
    made = trace.out[value["node"]][0]
    wanted = _shape(labels, trace.dims, trace.leading)
    if list(made["shape"]) != wanted or made["dtype"] != _dtype(family, name, dtype):
        raise user_error(
            f"The output {name} is {made['dtype']} {made['shape']} where its labels {labels} say {_dtype(family, name, dtype)} {wanted}."
        )


def _shape(labels, dims, leading):
    shape = []
    for label in labels:
        shape += list(leading[label[1:]]) if label.startswith("*") else [expression.evaluate(label, dims)]
    return shape


def _choose_sizes(family, spelling, trial):
    """(dims, leading dims of the starred labels) of a trace: distinct sizes, or what the spelling's `sizes` say."""
    inputs, outputs = _split_labels(family, spelling)
    every_label = [label for labels in (*inputs.values(), *outputs.values()) for label in labels]
    starred = [label[1:] for label in every_label if label.startswith("*")]
    given = _given_sizes(spelling, trial)
    contract = [label for tensor in family.tensors if tensor["name"] in {**inputs, **outputs} for label in tensor["shape"]]
    names = list(dict.fromkeys(name for label in [*every_label, *contract] for name in expression.names_in(label.lstrip("*"))))
    free = iter(size for size in _SIZES[trial] if size not in given.values())
    leading = {name: tuple(_LEADING[trial]) for name in dict.fromkeys(starred)}
    for name in leading:
        if name in given:
            leading[name] = (1, given[name])
    dims = {name: math.prod(leading[name]) if name in leading else given[name] if name in given else next(free) for name in names}
    return dims, leading


def _given_sizes(spelling, trial):
    """The sizes of a family.toml: a list of two tables, or a table of lists of two."""
    sizes = spelling.get("sizes", {})
    if isinstance(sizes, list):
        return dict(sizes[trial])
    return {name: value[trial] if isinstance(value, list) else value for name, value in sizes.items()}


def _choose_scalars(family, spelling, trial):
    scalars = {}
    for position, name in enumerate(spelling.get("scalars", [])):
        whole = isinstance(family.scalars.get(name), int)
        scalars[name] = (_INT_SCALARS if whole else _FLOAT_SCALARS)[trial][position]
    return scalars


def _check_alike(a, b):
    ops = [[node["op"] for node in trace.body] for trace in (a, b)]
    if ops[0] != ops[1]:
        differing = next((pair for pair in itertools.zip_longest(*ops) if pair[0] != pair[1]))
        raise user_error(f"The spelling does different things for different sizes: {differing[0]} and {differing[1]}.")
    bound = [op for op in ops[0] if op.startswith(graph_json.IN_PLACE_PREFIX)]
    if bound:
        raise user_error(f"The spelling writes a tensor in place ({bound[0]}), which no pattern can hold.")


def _check_inputs_are_read(inputs, nodes):
    read = {json.dumps(name) for name in inputs if f'{{"input": {json.dumps(name)}}}' in json.dumps(nodes)}
    ignored = [name for name in inputs if json.dumps(name) not in read]
    if ignored:
        raise user_error(f"The spelling ignores its input {', '.join(ignored)}.")


class _Unifier:
    """Explains the arguments of two traces by one pattern."""

    def __init__(self, a, b):
        self.a, self.b = a, b
        self.names = {x["name"]: y["name"] for x, y in zip(a.body, b.body)}
        self.explained = _explanations(a.dims, b.dims)

    def unify(self, x, y):
        if isinstance(x, dict) and "node" in x:
            return self._reference(x, y)
        if isinstance(x, dict) and isinstance(y, dict) and x.keys() == y.keys():
            return {key: self.unify(x[key], y[key]) for key in x}
        if isinstance(x, list) and isinstance(y, list):
            return self._list(x, y)
        if x == y and isinstance(x, bool) == isinstance(y, bool):
            return x
        return self._number(x, y)

    def _reference(self, x, y):
        if x["node"] in self.a.inputs:
            return {"input": self.a.inputs[x["node"]]}
        if x != y and self.names.get(x["node"]) != y.get("node"):
            raise user_error(f"The two traces connect {x['node']} differently.")
        return x

    def _list(self, x, y):
        for name, sizes in self.a.leading.items():
            others = self.b.leading[name]
            if tuple(x[: len(sizes)]) == sizes and tuple(y[: len(others)]) == others:
                return [{"expression": f"*{name}"}, *self._list(x[len(sizes) :], y[len(others) :])]
        if len(x) != len(y):
            raise user_error(f"The two traces have lists of different lengths: {x} and {y}.")
        return [self.unify(one, other) for one, other in zip(x, y)]

    def _number(self, x, y):
        if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (x, y)):
            for name, value in self.a.scalars.items():
                if x == value and y == self.b.scalars[name]:
                    return {"scalar": name}
            if (x, y) in self.explained:
                return {"expression": self.explained[(x, y)]}
        raise user_error(
            f"A constant of the trace that changes, {x} to {y}, is explained by no dim and no scalar "
            f"(sizes {self.a.dims} and {self.b.dims}, scalars {self.a.scalars} and {self.b.scalars})."
        )


def _explanations(a, b):
    """{(value in a, value in b): expression}, the simplest first."""
    texts = list(a)
    texts += [f"{name}/{factor}" for factor in _FACTORS for name in a]
    texts += [f"{factor}*{name}" for factor in _FACTORS for name in a]
    texts += [f"{name}{sign}1" for sign in "+-" for name in a] + [f"-{name}" for name in a]
    texts += [f"{x}{sign}{y}" for sign in "*/-+" for x, y in itertools.permutations(a, 2)]
    texts += ["*".join(names) for size in (3, 4) for names in itertools.combinations(a, size)]
    found = {}
    for text in texts:
        if _exact(text, a) and _exact(text, b):
            values = (expression.evaluate(text, a), expression.evaluate(text, b))
            if values[0] != values[1]:
                found.setdefault(values, text)
    return found


def _exact(text, dims):
    """Whether a division in `text` leaves no rest."""
    over, _, under = text.partition("/")
    return not under or (expression.evaluate(under, dims) != 0 and expression.evaluate(over, dims) % expression.evaluate(under, dims) == 0)
