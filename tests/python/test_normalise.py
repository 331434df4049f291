"""The normaliser: one graph for the many ways of writing and capturing one thing, and graphs that still compute the same."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autokernel.normalise import normalise

SHAPE = (2, 6, 8)


class Call(nn.Module):
    """A function as a module with one weight."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(SHAPE[-1]))
        self.matrix = nn.Parameter(torch.randn(12, SHAPE[-1]))

    def forward(self, x):
        return self.function(self, x)


def exported(function, x=None):
    torch.manual_seed(3)
    model = Call(function).eval()
    x = torch.randn(SHAPE) if x is None else x
    graph = normalise(model, (x,))
    with torch.no_grad():
        for ours, theirs in zip(torch.utils._pytree.tree_leaves(graph.run(x)), torch.utils._pytree.tree_leaves(model(x)), strict=True):
            assert torch.equal(ours, theirs) or torch.allclose(ours, theirs, equal_nan=True)
    return graph


def through_dynamo(function):
    torch.manual_seed(3)
    model, x, graphs = Call(function).eval(), torch.randn(SHAPE), []

    def backend(module, inputs):
        graphs.append(normalise(module, inputs))
        return module

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend)(x)
    assert len(graphs) == 1
    return graphs[0]


def shape_of(graph):
    """The nodes with names replaced by positions: what two captures must agree on."""
    targets = {}
    for node in graph.nodes:
        if node["op"] == "placeholder":
            kind = "x" if node["kind"] == "input" else node["target"].strip("_").split("_")[-1]
            targets[node["name"]] = kind.removeprefix("parameters.")
    order = {node["name"]: i for i, node in enumerate(n for n in graph.nodes if n["op"] != "placeholder")}
    text = []
    for node in graph.nodes:
        if node["op"] == "placeholder":
            continue
        arguments = json.loads(
            json.dumps(node["args"]), object_hook=lambda d: {"node": targets.get(d["node"], order.get(d["node"]))} if "node" in d else d
        )
        text.append((node["op"], arguments, node.get("out")))
    return text


def ops(graph):
    return [node["op"] for node in graph.nodes if node["op"] not in ("placeholder", "output")]


SPELLINGS = {
    "rmsnorm": lambda m, x: (
        m.weight * (x.to(torch.float32) * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    ),
    "rms_norm": lambda m, x: F.rms_norm(x, (SHAPE[-1],), m.weight, 1e-6),
    "softmax": lambda m, x: (
        torch.exp(x - x.max(dim=-1, keepdim=True).values) / torch.exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)
    ),
    "library softmax": lambda m, x: F.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype),
    "linear": lambda m, x: F.linear(F.dropout(x, 0.3, training=False), m.matrix),
    "matmul": lambda m, x: x @ m.matrix.t(),
    "half": lambda m, x: torch.cat((-x[..., 4:], x[..., :4]), -1),
    "chunks": lambda m, x: torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1),
    "loop": lambda m, x: sum(part * 2 for part in x),
    "heads": lambda m, x: (
        F.scaled_dot_product_attention(*[x.view(2, 6, 2, 4).transpose(1, 2)] * 3, is_causal=True).transpose(1, 2).reshape(2, 6, 8)
    ),
}


@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_export_and_dynamo_give_the_same_nodes(name):
    assert shape_of(exported(SPELLINGS[name])) == shape_of(through_dynamo(SPELLINGS[name]))


SAME = [
    (lambda m, x: x.view(2, 6, 2, 4), lambda m, x: x.unflatten(-1, (2, 4))),
    (lambda m, x: x.reshape(12, 8), lambda m, x: x.flatten(0, 1)),
    (lambda m, x: x.reshape(-1, 8), lambda m, x: x.view(12, 8).contiguous()),
    (lambda m, x: x.transpose(1, 2), lambda m, x: x.permute(0, 2, 1)),
    (lambda m, x: x.mT, lambda m, x: x.transpose(-1, -2)),
    (lambda m, x: torch.bmm(x, x.mT), lambda m, x: x @ x.transpose(1, 2)),
    (lambda m, x: x.chunk(2, -1)[1], lambda m, x: x[..., 4:]),
    (lambda m, x: x.split(3, 1)[1], lambda m, x: x[:, 3:6]),
    (lambda m, x: x.unbind(1)[2], lambda m, x: x[:, 2]),
    (lambda m, x: F.softmax(x, -1, dtype=torch.float32), lambda m, x: x.float().softmax(2)),
    (lambda m, x: x.half().type_as(x), lambda m, x: x.to(torch.float16).to(x.dtype)),
    (lambda m, x: x.expand(-1, -1, -1) + 1, lambda m, x: x[:, :, :100] + 1),
    (lambda m, x: x.sum(-1), lambda m, x: x.sum(dim=[2], dtype=torch.float32)),
]


@pytest.mark.parametrize("pair", range(len(SAME)))
def test_one_name_for_one_thing(pair):
    first, second = (shape_of(exported(function)) for function in SAME[pair])
    assert first == second


def test_what_differs_stays_different():
    assert shape_of(exported(lambda m, x: x.transpose(0, 1))) != shape_of(exported(lambda m, x: x.transpose(1, 2)))
    assert shape_of(exported(lambda m, x: x[..., 4:])) != shape_of(exported(lambda m, x: x[..., :4]))
    assert ops(exported(lambda m, x: x.half())) == ["aten.to.dtype"]
    assert ops(exported(lambda m, x: x.transpose(0, 1).contiguous())) == ["aten.transpose.int", "aten.contiguous.default"]


def test_arguments_are_keyed_by_schema_with_defaults_and_dims_from_the_end():
    nodes = exported(lambda m, x: torch.cat((x[:, 1:-1], x.sum(1, keepdim=True)), 1).masked_fill(x[:, :5] > 1, float("-inf"))).nodes
    by_op = {node["op"]: node["args"] for node in nodes if "args" in node}
    assert by_op["aten.sum.dim_IntList"] == {"self": {"node": "x"}, "dim": [-2], "keepdim": True, "dtype": None}
    assert by_op["aten.cat.default"]["dim"] == -2
    assert by_op["aten.masked_fill.Scalar"]["value"] == {"float": "-inf"}
    slices = [node["args"] for node in nodes if node["op"] == "aten.slice.Tensor"]
    assert [(s["dim"], s["start"], s["end"], s["step"]) for s in slices] == [(-2, 1, 5, 1), (-2, 0, 5, 1)]
    json.dumps(nodes, allow_nan=False)


def test_placeholders_say_what_they_are_and_nodes_where_they_come_from():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ModuleList([nn.Linear(8, 4)])
            self.register_buffer("table", torch.randn(4))

        def forward(self, x):
            return self.inner[0](x) + self.table

    graph = normalise(Model().eval(), (torch.randn(3, 8),))
    kinds = {node["target"]: node["kind"] for node in graph.nodes if node["op"] == "placeholder"}
    assert kinds == {"inner.0.weight": "parameter", "inner.0.bias": "parameter", "table": "buffer", "x": "input"}
    linear = next(node for node in graph.nodes if node["op"] == "aten.linear.default")
    assert linear["module"] == "inner.0"
    assert linear["source"].startswith("test_normalise.py:")
    assert linear["out"] == [{"dtype": "float32", "shape": [3, 4], "strides": [4, 1]}]
    assert set(graph.fx_nodes) == {node["name"] for node in graph.nodes}


def test_wrappers_of_grad_mode_and_disabled_autocast_are_inlined():
    def function(m, x):
        with torch.no_grad():
            y = x * 2
            with torch.autocast("cpu", enabled=False):
                z = y + 1
        return z * m.weight

    assert ops(exported(function)) == ["aten.mul.Tensor", "aten.add.Tensor", "aten.mul.Tensor"]


def test_several_outputs_and_keyword_inputs():
    class Model(nn.Module):
        def forward(self, x, *, scale):
            values, indices = x.topk(2)
            return {"values": values * scale, "rest": (indices, x)}

    x, scale = torch.randn(3, 5), torch.randn(())
    graph = normalise(Model(), (x,), {"scale": scale})
    picked = [node for node in graph.nodes if node["op"] == "getitem"]
    assert [node["args"]["index"] for node in picked] == [0, 1]
    result, wanted = graph.run(x, scale=scale), Model()(x, scale=scale)
    assert torch.equal(result["values"], wanted["values"]) and torch.equal(result["rest"][0], wanted["rest"][0])


def test_in_place_on_a_fresh_tensor_becomes_the_plain_operator():
    def function(m, x):
        y = x * 2
        y += m.weight
        y.relu_()
        return y

    assert ops(exported(function)) == ["aten.mul.Tensor", "aten.add.Tensor", "aten.relu.default"]


def test_in_place_that_would_promote_stays():
    assert "inplace:aten.add_.Tensor" in ops(exported(lambda m, x: x.half().clone().add_(m.weight)))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: (lambda y: (y[:, 0].fill_(3), y * 2)[1])(x * 2),
        lambda m, x: (lambda y, z: (z.add_(1), y * 2)[1])(*(lambda y: (y, y.view(-1)))(x + 1)),
        lambda m, x: (lambda y: (y.view(-1).add_(1), y.view(-1).mul_(2), y * 3)[2])(x + 1),
        lambda m, x: (lambda y: (y.add_(1), y.view(-1).mul_(2), y * 3)[2])(x + 1),
    ],
)
def test_in_place_through_views_stays_and_is_marked(function):
    graph = exported(function)
    assert any(op.startswith("inplace:") for op in ops(graph))
    assert not ops(graph)[-1].startswith("inplace:")  # read after the last write: free to match


def test_a_buffer_that_is_written_is_marked():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.ones(1))

        def forward(self, x):
            before = x * self.count
            self.count.add_(1)
            return before, x * self.count

    graph = normalise(Counter(), (torch.randn(4),))
    assert ops(graph) == ["inplace:aten.mul.Tensor", "inplace:aten.add_.Tensor", "aten.mul.Tensor"]
