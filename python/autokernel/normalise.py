"""The one normaliser: any model, spelling or Dynamo graph becomes the same small vocabulary of pre-dispatch operators.

A graph is exported without decompositions, wrappers of grad mode and autocast are inlined, operators that do nothing are removed, and
where PyTorch has several names for one thing, one is kept (`view` and `flatten` are `reshape`, `chunk` and `split` are slices, `t` is
`transpose`). In-place operators become their plain form where nothing else sees the storage; what stays is marked, so that no pattern
matches across it.
"""

import dataclasses
import operator

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from autokernel import graph_json

aten = torch.ops.aten


@dataclasses.dataclass
class Normalised:
    """A normalised graph. `module` takes the `lifted` tensors, then the flat inputs, and returns a flat tuple."""

    name: str
    module: GraphModule
    lifted: list  # tensors of the leading placeholders: parameters, buffers, constants
    nodes: list  # the nodes of graph.json
    fx_nodes: dict  # JSON node name -> fx node of `module`
    in_spec: object
    out_spec: object

    def run(self, *args, **kwargs):
        """Call as the model is called."""
        flat = pytree.tree_leaves((args, kwargs))
        return pytree.tree_unflatten(list(self.module(*self.lifted, *flat)), self.out_spec)


def normalise(model, args, kwargs=None, name="g0"):
    """Normalise `model` (a module, or a graph from Dynamo) as called with `args` and `kwargs`.

    errors: whatever `torch.export` raises for a model that it cannot capture.
    """
    original = _parameter_kinds(args) if isinstance(model, GraphModule) else {}
    with torch.no_grad():
        program = torch.export.export(model, tuple(args), dict(kwargs or {}), strict=False)
    module = program.graph_module
    _inline_wrappers(module)
    tainted = _functionalise(module.graph)
    _canonicalise(module.graph, tainted)
    module.graph.lint()
    module.recompile()
    placeholders = _placeholders(program, original, model)
    nodes = graph_json.write_nodes(module.graph, placeholders, mutated_early(module.graph))
    fx_nodes = {node.name: node for node in module.graph.nodes}
    lifted = [tensor for _, _, tensor in placeholders.values() if tensor is not None]
    spec = program.call_spec
    return Normalised(name, module, lifted, nodes, fx_nodes, spec.in_spec, spec.out_spec)


# --- placeholders


def _parameter_kinds(args):
    return {i: "parameter" for i, leaf in enumerate(pytree.tree_leaves(args)) if isinstance(leaf, torch.nn.Parameter)}


def _placeholders(program, parameter_inputs, model):
    """{placeholder name: (kind, target, tensor or None)}, the tensor for what export lifted out of the model."""
    kinds = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant", "CUSTOM_OBJ": "constant"}
    dynamo_names = _dynamo_names(model)
    result, position = {}, 0
    for spec in program.graph_signature.input_specs:
        kind = kinds.get(spec.kind.name)
        if kind is None:
            target = dynamo_names.get(position, spec.arg.name)
            input_kind = parameter_inputs.get(position, "buffer" if "_buffers_" in target else "input")
            result[spec.arg.name] = (input_kind, target, None)
            position += 1
        else:
            result[spec.arg.name] = (kind, spec.target, _lifted_tensor(program, spec.target))
    return result


def _lifted_tensor(program, target):
    if target in program.state_dict:
        return program.state_dict[target]
    return program.constants[target]


def _dynamo_names(model):
    if not isinstance(model, GraphModule):
        return {}
    return dict(enumerate(str(node.target) for node in model.graph.nodes if node.op == "placeholder"))


# --- higher-order wrappers


def _inline_wrappers(module):
    """Replace `with no_grad()` and disabled autocast, which export wraps as calls of a submodule, by the body."""
    changed = True
    while changed:
        changed = False
        for node in list(module.graph.nodes):
            body = _wrapped_body(module, node)
            if body is not None:
                _inline(module, node, *body)
                changed = True
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()


def _wrapped_body(module, node):
    """(submodule, its arguments) of a wrapper that means nothing in inference, or None."""
    if node.op != "call_function" or node.kwargs:
        return None
    name = str(node.target)
    if name == "wrap_with_set_grad_enabled":
        position = 1
    elif name == "wrap_with_autocast" and node.args[2] is False and not torch.is_autocast_enabled(node.args[0]):
        position = 4
    else:
        return None
    return module.get_submodule(node.args[position].target), node.args[position + 1 :]


def _inline(module, node, body, arguments):
    for name, child in body.named_children():
        unused = name
        while hasattr(module, unused):
            unused += "_"
        setattr(module, unused, child)
        for inner in body.graph.nodes:
            if inner.op == "get_attr" and inner.target == name:
                inner.target = unused
    inner_placeholders = [n for n in body.graph.nodes if n.op == "placeholder"]
    values = dict(zip(inner_placeholders, arguments))
    with module.graph.inserting_before(node):
        results = module.graph.graph_copy(body.graph, values)
    if not isinstance(results, (tuple, list)):
        node.replace_all_uses_with(results)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            module.graph.erase_node(user)
    module.graph.erase_node(node)


# --- mutation


def storages(node):
    """Identities of the storages that a node's value lies in."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return {leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided}


def mutated_arguments(node):
    """The nodes whose storage this node writes."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable or str(node.target) in _IDENTITIES:
        return []
    found = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            found += [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Node)]
    return found


def mutated_early(graph):
    """Names of the nodes that read or make a storage which is written later or by them: they may not move."""
    last_write = {}
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        for argument in mutated_arguments(node):
            for storage in storages(argument):
                last_write[storage] = order[node]
    bound = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        touched = storages(node).union(*(storages(argument) for argument in node.all_input_nodes))
        if any(order[node] <= last_write.get(storage, -1) for storage in touched):
            bound.add(node.name)
    return bound


def _functionalise(graph):
    """Turn in-place operators into plain ones where their storage has no other reader; return the storages still written."""
    still_written = set()
    for node in list(graph.nodes):
        written = mutated_arguments(node)
        if not written:
            continue
        if len(written) == 1 and _functional_form(node) is not None and not _seen_elsewhere(graph, node, written[0]):
            _make_functional(graph, node, written[0])
        else:
            for argument in written:
                still_written |= storages(argument)
    return still_written


def _functional_form(node):
    namespace, _, rest = str(node.target).partition(".")
    name, _, overload = rest.partition(".")
    if namespace != "aten" or not name.endswith("_") or name.endswith("__"):
        return None
    if not _same_dtypes(node):
        return None  # in place keeps the dtype where the plain form would promote
    return getattr(getattr(aten, name[:-1], None), overload, None)


def _same_dtypes(node):
    values = [argument.meta.get("val") for argument in node.all_input_nodes]
    return len({value.dtype for value in values if isinstance(value, torch.Tensor) and value.dim() and value.dtype != torch.bool}) <= 1


def _seen_elsewhere(graph, node, argument):
    """Whether a node other than `argument` holds the storage and is read after `node`, or it belongs to the caller."""
    shared = storages(argument)
    order = {n: i for i, n in enumerate(graph.nodes)}
    for other in graph.nodes:
        if other is argument or other is node or not (storages(other) & shared):
            continue
        if other.op == "placeholder":
            return True
        if order[other] < order[node] and any(order[user] > order[node] for user in other.users):
            return True
    return argument.op == "placeholder" or node.args[0] is not argument


def _make_functional(graph, node, argument):
    node.target = _functional_form(node)
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        node.meta["val"] = torch.empty_like(value)  # its own storage from here on
    order = {n: i for i, n in enumerate(graph.nodes)}
    for user in list(argument.users):
        if order[user] > order[node]:
            user.replace_input_with(argument, node)
    _refresh_aliases(graph, node)


def _refresh_aliases(graph, node):
    """Give views taken of the new value its storage, so that later writes are judged by it."""
    for user in node.users:
        value = user.meta.get("val")
        old = node.meta["val"]
        if isinstance(value, torch.Tensor) and _returns_alias(user):
            with torch.no_grad():
                user.meta["val"] = old.as_strided(value.shape, value.stride(), value.storage_offset())
            _refresh_aliases(graph, user)


def _returns_alias(node):
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.returns:
        return False
    return schema.returns[0].alias_info is not None


# --- one name for one thing

_DROPPED = {
    "aten._assert_tensor_metadata.default",
    "aten._assert_async.msg",
    "aten._assert_scalar.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
}
_IDENTITIES = {
    "aten.detach.default",
    "aten.detach_.default",
    "aten.alias.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
}
_DROPOUTS = {"aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default", "aten.native_dropout.default"}
_CASTS = {
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.to.other",
    "aten.to.prim_Device",
    "aten.to.prim_dtype",
    "aten._to_copy.default",
    "aten.type_as.default",
}
_SAME_IF_EQUAL = {"aten.contiguous.default", "aten.reshape.default", "aten.expand.default", "aten.slice.Tensor", "aten.expand_as.default"}
_RESHAPES = {
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.view_as.default",
    "aten.reshape_as.default",
    "aten.reshape.default",
}
_SPLITS = {"aten.chunk.default", "aten.split.Tensor", "aten.split.sizes", "aten.split_with_sizes.default", "aten.tensor_split.sections"}
_MATMULS = {"aten.mm.default", "aten.bmm.default"}


def _canonicalise(graph, tainted):
    for node in list(graph.nodes):
        if node.op == "call_function":
            _canonicalise_node(graph, node, tainted)


def _canonicalise_node(graph, node, tainted):
    op = str(node.target)
    if op in _DROPPED and not node.users:
        graph.erase_node(node)
        return
    if op in _CASTS:
        _plain_cast(node)
    elif op in _RESHAPES:
        _plain_reshape(node)
    elif op in ("aten.expand.default", "aten.expand_as.default"):
        _set(node, aten.expand.default, node.args[0], _shape(node))
    elif op in (
        "aten.permute.default",
        "aten.t.default",
        "aten.numpy_T.default",
        "aten.mT.default",
        "aten.swapaxes.default",
        "aten.swapdims.default",
        "aten.transpose.int",
        "aten.adjoint.default",
        "aten.matrix_H.default",
    ):
        _plain_transpose(node, op)
    elif op in _MATMULS:
        _set(node, aten.matmul.default, *node.args)
    elif op in _SPLITS or op == "aten.unbind.int":
        _plain_split(graph, node, op)
        return
    if _does_nothing(node, tainted):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def _set(node, target, *args):
    node.target = target
    node.args = args
    node.kwargs = {}


def _shape(node):
    return list(node.meta["val"].shape)


def _is_static(values):
    return all(isinstance(value, int) for value in values)


def _plain_cast(node):
    source, result = node.args[0], node.meta["val"]
    before = source.meta["val"]
    if result.device == before.device and result.layout == before.layout and _same_order(before, result):
        _set(node, aten.to.dtype, source, result.dtype)


def _same_order(before, after):
    return before.stride() == after.stride() or before.is_contiguous() == after.is_contiguous()


def _plain_reshape(node):
    if _is_static(_shape(node)):
        _set(node, aten.reshape.default, node.args[0], _shape(node))


def _plain_transpose(node, op):
    """A permutation of two dims is `transpose` with negative dims, the lower first."""
    rank = node.args[0].meta["val"].dim()
    if op.startswith(("aten.t.", "aten.numpy_T", "aten.mT")) and (rank == 2 or (op.startswith("aten.mT") and rank > 2)):
        moved = [rank - 2, rank - 1]
    elif op in ("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default"):
        moved = sorted({dim % rank for dim in node.args[1:3]}) if rank else []
    elif op == "aten.permute.default":
        moved = [i for i, dim in enumerate(node.args[1]) if dim % rank != i]
    else:
        return
    if len(moved) == 2:
        _set(node, aten.transpose.int, node.args[0], moved[0] - rank, moved[1] - rank)


def _plain_split(graph, node, op):
    """Each part that is used becomes a slice, or a selection, of the whole."""
    if not all(user.target is operator.getitem and isinstance(user.args[1], int) for user in node.users):
        return
    source, values = node.args[0], node.meta["val"]
    named = {"dim": 0, **dict(zip([a.name for a in node.target._schema.arguments], node.args)), **node.kwargs}
    rank = source.meta["val"].dim()
    dim = named["dim"] % rank
    if op == "aten.unbind.int":
        for user in list(node.users):
            _set(user, aten.select.int, source, dim, user.args[1] % len(values))
    else:
        ends = [0]
        for value in values:
            ends.append(ends[-1] + value.shape[dim])
        if not _is_static(ends):
            return
        for user in list(node.users):
            part = user.args[1] % len(values)
            _set(user, aten.slice.Tensor, source, dim, ends[part], ends[part + 1], 1)
    graph.erase_node(node)


def _does_nothing(node, tainted):
    op = str(node.target)
    if not node.args or not isinstance(node.args[0], Node):
        return False
    if op in _DROPOUTS:
        return _argument(node, "train") is False or _argument(node, "p") == 0
    if op in _IDENTITIES:
        return op != "aten.lift_fresh_copy.default" or not (storages(node) & tainted)
    before, after = node.args[0].meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor) or not _same_tensor(before, after):
        return False
    if op == "aten.to.dtype":
        return _argument(node, "copy") in (False, None) and _argument(node, "memory_format") is None
    if op == "aten.transpose.int":
        return node.args[1] == node.args[2]
    if op == "aten.permute.default":
        return all(dim % before.dim() == i for i, dim in enumerate(node.args[1]))
    return op in _SAME_IF_EQUAL


def _argument(node, name):
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            if position < len(node.args):
                return node.args[position]
            return node.kwargs.get(name, argument.default_value if argument.has_default_value() else None)
    return None


def _same_tensor(a, b):
    return (
        a.dtype == b.dtype
        and a.device == b.device
        and a.layout == b.layout
        and list(a.shape) == list(b.shape)
        and list(a.stride()) == list(b.stride())
    )
