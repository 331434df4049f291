"""The row families: their references equal PyTorch's own functions and known answers, and every spelling computes what its reference does."""
import importlib.util
import math
import tomllib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
FAMILIES = ["rmsnorm", "layernorm", "softmax", "cross_entropy", "rotary_embedding", "reduce"]


def load(family):
    spec = importlib.util.spec_from_file_location(f"{family}_reference", KERNELS / family / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONTRACT = {family: tomllib.loads((KERNELS / family / "family.toml").read_text()) for family in FAMILIES}
MODULE = {family: load(family) for family in FAMILIES}
SPELLINGS = [(family, index) for family in FAMILIES for index in range(len(CONTRACT[family]["spelling"]))]


def spelling_id(value):
    return str(value)


def reference(family, **arguments):
    """Call a reference with the family's default scalars and options where none are given."""
    contract = CONTRACT[family]
    tensors = {t["name"]: None for t in contract["tensor"] if t["role"] != "output"}
    return MODULE[family].reference(**{**tensors, **contract.get("scalars", {}), **contract["options"], **arguments})


def dims_of(spelling):
    """Sizes for the dims that a spelling names, all different unless it says otherwise."""
    names = sorted({label.lstrip("*") for labels in spelling["labels"].values() for label in labels} - {"1"})
    dims = dict(zip(names, (4, 6, 10, 14, 22, 26)))
    return {**dims, **spelling.get("sizes", [{}])[0]}


def as_spelled(tensor, shape, labels):
    """A contract tensor as the spelling's function receives it: permuted, starred dims split, dims of size 1 put in."""
    named = [label.lstrip("*") for label in labels if label != "1"]
    for axis in reversed(range(len(shape))):
        if shape[axis] not in named:
            assert tensor.shape[axis] == 1
            tensor = tensor.squeeze(axis)
    shape = [name for name in shape if name in named]
    tensor = tensor.permute([shape.index(name) for name in named])
    for axis in reversed(range(len(named))):
        if f"*{named[axis]}" in labels:
            tensor = tensor.unflatten(axis, (2, -1))
    position = 0
    for label in labels:
        if label == "1":
            tensor = tensor.unsqueeze(position)
        position += 2 if label.startswith("*") else 1
    return tensor


def scalars_of(family, spelling):
    known = {"eps": 0.25, "scale": 0.7, "smoothing": 0.1, "ignore_index": 2}
    return {name: known[name] for name in spelling.get("scalars", [])}


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def sample(tensor, dims, dtype, generator):
    shape = [dims.get(name, 1) for name in tensor["shape"]]
    if tensor["role"] == "index":
        return torch.randint(dims[tensor["range"]], shape, generator=generator)
    if tensor["role"] == "weight":  # positive: a mean over weights divides by their sum
        return (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family,index", SPELLINGS, ids=spelling_id)
def test_a_spelling_computes_what_its_reference_does(family, index, dtype):
    contract, spelling = CONTRACT[family], CONTRACT[family]["spelling"][index]
    generator = torch.Generator().manual_seed(100 + index)
    dims, labels, scalars = dims_of(spelling), spelling["labels"], scalars_of(family, spelling)
    inputs = {t["name"]: sample(t, dims, dtype, generator) for t in contract["tensor"] if t["role"] != "output" and t["name"] in labels}
    shapes = {t["name"]: t["shape"] for t in contract["tensor"]}

    spelled = {name: as_spelled(tensor, shapes[name], labels[name]) for name, tensor in inputs.items()}
    got = getattr(MODULE[family], spelling["function"])(**spelled, **scalars)
    wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    expected = reference(family, **wide, **scalars, **spelling.get("options", {}))

    outputs = [t for t in contract["tensor"] if t["role"] == "output" and t["name"] in labels]
    tolerance = 3e-6 if dtype == torch.float32 else 5e-2
    for output, got, expected in zip(outputs, as_tuple(got), as_tuple(expected), strict=True):
        expected = as_spelled(expected, output["shape"], labels[output["name"]])
        assert got.dtype == (torch.int64 if output.get("dtype") == "int64" else dtype) and got.shape == expected.shape
        torch.testing.assert_close(got.double(), expected.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family,index", SPELLINGS, ids=spelling_id)
def test_a_spelling_is_traced_by_export_and_reads_every_input(family, index):
    contract, spelling = CONTRACT[family], CONTRACT[family]["spelling"][index]
    dims, scalars = dims_of(spelling), scalars_of(family, spelling)
    function = getattr(MODULE[family], spelling["function"])
    generator = torch.Generator().manual_seed(index)
    inputs = {}
    for tensor in contract["tensor"]:
        if tensor["role"] != "output" and tensor["name"] in spelling["labels"]:
            value = sample(tensor, dims, torch.float32, generator)
            inputs[tensor["name"]] = as_spelled(value, tensor["shape"], spelling["labels"][tensor["name"]])

    class Module(torch.nn.Module):
        def forward(self, **tensors):
            return function(**tensors, **scalars)

    graph = torch.export.export(Module(), (), inputs).graph
    unused = [node.name for node in graph.nodes if node.op == "placeholder" and not node.users]
    assert not unused


@pytest.mark.parametrize("family", FAMILIES)
def test_every_sweep_and_edge_binding_names_all_dims(family):
    contract = CONTRACT[family]
    dims = {name for tensor in contract["tensor"] for name in tensor["shape"]}
    for binding in contract["stages"]["sweep"] + contract["stages"]["edges"]:
        assert set(binding) - {"layout"} == dims
        assert binding.get("layout", "contiguous") in ("contiguous", "strided", "misaligned", "transposed")


def assert_values(got, expected, tolerance=1e-6):
    torch.testing.assert_close(got.double(), torch.tensor(expected, dtype=torch.float64), rtol=tolerance, atol=tolerance, equal_nan=True)


# ---- known answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_cross_entropy_counts_only_the_rows_that_are_not_ignored(dtype):
    none = {"REDUCED": 0, "MEAN": 0, "PER_ROW": 1}
    logits = torch.tensor([[0.2, 1, 0.5], [0.1, 0.3, 0.6]], dtype=dtype)
    ignored = torch.tensor([-100, -100])
    assert math.isnan(reference("cross_entropy", logits=logits, targets=ignored))
    assert reference("cross_entropy", logits=logits, targets=ignored, MEAN=0) == 0
    assert_values(reference("cross_entropy", logits=logits, targets=ignored, **none), [0.0, 0.0])
    logits, targets = torch.tensor([[1, 2, 3], [9, 9, 9]], dtype=dtype), torch.tensor([2, -100])
    assert_values(reference("cross_entropy", logits=logits, targets=targets), 0.4076060)


def test_cross_entropy_of_a_width_that_is_no_power_of_two_and_of_a_transposed_view():
    logits = torch.full((1, 5), -10.0, dtype=torch.float64)
    assert_values(reference("cross_entropy", logits=logits, targets=torch.tensor([0])), 1.6094379)
    base = torch.zeros(2, 2, 3, dtype=torch.float64)
    base[..., 0] = torch.arange(4.0).view(2, 2)
    logits = base.transpose(0, 1).reshape(-1, 3)
    losses = reference("cross_entropy", logits=logits, targets=torch.zeros(4, dtype=torch.int64), REDUCED=0, MEAN=0, PER_ROW=1)
    assert_values(losses, [1.0986123, 0.2395448, 0.5514447, 0.0949230])


def test_softmax_of_minus_infinity_and_of_nothing_else():
    x = torch.zeros(1, 2048)
    x[:, :1024] = -math.inf
    assert_values(reference("softmax", x=x), [[0.0] * 1024 + [9.765625e-4] * 1024])
    assert reference("softmax", x=torch.full((1, 8), -math.inf)).isnan().all()


def test_layernorm_of_far_and_of_equal_values():
    x = torch.tensor([[40000.0, 40001, 40002, 40003]])
    weight, bias = torch.ones(4), torch.zeros(4)
    expected = [[-1.3416354, -0.4472118, 0.4472118, 1.3416354]]
    assert_values(reference("layernorm", x=x.double(), weight=weight.double(), bias=bias.double()), expected)
    assert_values(reference("layernorm", x=x, weight=weight, bias=bias), expected, 1e-5)
    assert_values(reference("layernorm", x=torch.full((1, 256), 1234.0)), [[0.0] * 256])


def test_rmsnorm_neither_overflows_in_half_nor_puts_eps_outside():
    x = torch.tensor([[300, -300, 300, -300]], dtype=torch.float16)
    assert_values(reference("rmsnorm", x=x, weight=torch.ones(4, dtype=torch.float16)), [[1.0, -1.0, 1.0, -1.0]])
    x, weight = torch.full((1, 4), 1e-3), torch.ones(4)
    assert_values(reference("rmsnorm", x=x, weight=weight, eps=1e-5), [[0.3015113] * 4])
    assert_values(reference("rmsnorm", x=x, weight=weight, eps=1e-6), [[0.7071068] * 4])
    assert_values(reference("rmsnorm", x=x, weight=weight * 0, eps=1e-6, WEIGHT_OFFSET=1), [[0.7071068] * 4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rmsnorm_without_eps_adds_the_epsilon_of_float32(dtype):
    x = torch.tensor([[3e-4, -1e-4, 2e-4, 5e-5]], dtype=dtype)
    torch.testing.assert_close(reference("rmsnorm", x=x, HAS_WEIGHT=0, MACHINE_EPS=1), F.rms_norm(x, (4,)))


@pytest.mark.parametrize(("family", "norm"), [("rmsnorm", F.rms_norm), ("layernorm", F.layer_norm)])
def test_a_norm_rounds_the_sum_before_it_normalises_it(family, norm):
    x, residual = torch.tensor([[256.0, 1, -3, 0]], dtype=torch.bfloat16), torch.tensor([[1.0, 2, 3, 1]], dtype=torch.bfloat16)
    out, total = reference(family, x=x, residual=residual, HAS_RESIDUAL=1, HAS_RESIDUAL_OUT=1, HAS_WEIGHT=0, eps=1e-6)
    assert total.tolist() == [[256.0, 3, 0, 1]]  # 257 has nine bits
    torch.testing.assert_close(out, norm(total, (4,), eps=1e-6), rtol=0, atol=0)
    alone = reference(family, x=x, residual=residual, HAS_RESIDUAL=1, HAS_WEIGHT=0, eps=1e-6)
    torch.testing.assert_close(alone, out, rtol=0, atol=0)


def rotate(x, cos, sin, **options):
    x, cos, sin = torch.tensor(x), torch.tensor([cos]), torch.tensor([sin])
    return reference("rotary_embedding", x=x.view(1, 1, 1, -1), cos=cos, sin=sin, **options).view(-1)


def test_rotary_embedding_pairs_halves_or_neighbours_and_passes_the_rest():
    four, eight = [1.0, 2, 3, 4], [1.0, 2, 3, 4, 5, 6, 7, 8]
    assert_values(rotate(four, [0.0, 1], [1.0, 0], HALF_TABLE=1, INTERLEAVED=1), [-2.0, 1, 3, 4])
    assert_values(rotate(four, [0.0, 1], [1.0, 0], HALF_TABLE=1), [-3.0, 2, 1, 4])
    assert_values(rotate(eight, [0.0, 1], [1.0, 0], HALF_TABLE=1), [-3.0, 2, 1, 4, 5, 6, 7, 8])
    assert_values(rotate(eight, [0.0, 1, 0, 1], [1.0, 0, 1, 0]), [-3.0, 2, 1, 4, 5, 6, 7, 8])
    assert_values(rotate(four, [0.0, 1], [1.0, 0], HALF_TABLE=1, BACKWARD=1), [3.0, 2, -1, 4])


def test_rotary_embedding_keeps_lengths_and_turns_by_the_angle():
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(2, 3, 5, 8, generator=generator, dtype=torch.float64)
    angle = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    for interleaved in (0, 1):
        turned = reference("rotary_embedding", x=x, cos=angle.cos(), sin=angle.sin(), HALF_TABLE=1, INTERLEAVED=interleaved)
        torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
        back = reference("rotary_embedding", x=turned, cos=angle.cos(), sin=angle.sin(), HALF_TABLE=1, INTERLEAVED=interleaved, BACKWARD=1)
        torch.testing.assert_close(back, x)
    pairs = torch.view_as_complex(x.unflatten(-1, (4, 2))) * torch.polar(torch.ones_like(angle), angle)
    turned = reference("rotary_embedding", x=x, cos=angle.cos(), sin=angle.sin(), HALF_TABLE=1, INTERLEAVED=1)
    torch.testing.assert_close(turned, torch.view_as_real(pairs).flatten(-2))


def test_reduce_over_each_place_and_over_nothing():
    x = torch.arange(24.0).reshape(2, 3, 4)
    assert_values(reference("reduce", x=x), [[12.0, 15, 18, 21], [48, 51, 54, 57]])
    assert_values(reference("reduce", x=x.view(1, 2, 12)).view(3, 4), [[12.0, 14, 16, 18], [20, 22, 24, 26], [28, 30, 32, 34]])
    empty = torch.zeros(2, 0, 3)
    assert_values(reference("reduce", x=empty), [[0.0] * 3] * 2)
    assert reference("reduce", x=empty, OP=1).isnan().all()


def test_reduce_keeps_a_nan_in_maximum_and_minimum():
    x = torch.tensor([math.nan, 6, 8]).view(1, 3, 1)
    assert reference("reduce", x=x, OP=2).isnan().all() and reference("reduce", x=x, OP=3).isnan().all()
    x = torch.tensor([-4.0, 6, 8]).view(1, 3, 1)
    assert reference("reduce", x=x, OP=2) == 8 and reference("reduce", x=x, OP=3) == -4


def test_reduce_gives_the_first_place_of_an_extreme_and_of_a_nan():
    x = torch.tensor([math.nan, math.inf]).view(1, 2, 1)
    assert reference("reduce", x=x, OP=4) == 0 and reference("reduce", x=x.flip(1), OP=5) == 1
    x = torch.tensor([3.0, 7, 7, -1, -1]).view(1, 5, 1)
    assert reference("reduce", x=x, OP=4) == 1 and reference("reduce", x=x, OP=5) == 3
    assert reference("reduce", x=x, OP=4).dtype == torch.int64
    assert reference("reduce", x=torch.zeros(2, 0, 3), OP=4).tolist() == [[-1] * 3] * 2


def test_reduce_multiplies_and_takes_the_euclidean_norm():
    x = torch.tensor([3.0, -4, 0.5]).view(1, 3, 1)
    assert reference("reduce", x=x, OP=6) == -6
    assert_values(reference("reduce", x=x[:, :2], OP=7), [[5.0]])
    empty = torch.zeros(2, 0, 3)
    assert_values(reference("reduce", x=empty, OP=6), [[1.0] * 3] * 2)
    assert_values(reference("reduce", x=empty, OP=7), [[0.0] * 3] * 2)


def test_cross_entropy_weighs_the_classes_of_the_targets():
    logits, targets = torch.zeros(2, 2, dtype=torch.float64), torch.tensor([0, 1])
    logits[0, 1] = 1  # losses ln(1 + e) and ln 2
    weighted = {"logits": logits, "targets": targets, "weight": torch.tensor([3.0, 1.0], dtype=torch.float64), "WEIGHTED": 1}
    losses = [3 * math.log(1 + math.e), math.log(2)]
    assert_values(reference("cross_entropy", **weighted), sum(losses) / 4)
    assert_values(reference("cross_entropy", **weighted, REDUCED=0, MEAN=0, PER_ROW=1), losses)


def test_rotary_embedding_turns_queries_and_keys_alike():
    generator = torch.Generator().manual_seed(5)
    q, k = torch.randn(2, 4, 3, 8, generator=generator), torch.randn(2, 2, 3, 8, generator=generator)
    cos, sin = torch.randn(2, 3, 8, generator=generator)
    turned = reference("rotary_embedding", x=q, k=k, cos=cos, sin=sin, PAIR=1)
    for each, alone in zip(turned, (q, k), strict=True):
        torch.testing.assert_close(each, reference("rotary_embedding", x=alone, cos=cos, sin=sin))


def test_references_are_pytorch_s_own_functions():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(7, 129, generator=generator, dtype=torch.float64)
    weight, bias = torch.randn(2, 129, generator=generator, dtype=torch.float64)
    targets = torch.randint(129, (7,), generator=generator)
    close = torch.testing.assert_close
    close(reference("rmsnorm", x=x, weight=weight, eps=1e-5), torch.nn.functional.rms_norm(x, (129,), weight, 1e-5))
    close(reference("rmsnorm", x=x, weight=weight, WEIGHT_OFFSET=1), F.rms_norm(x, (129,), 1 + weight, 1e-6))
    close(reference("layernorm", x=x, weight=weight, bias=bias), F.layer_norm(x, (129,), weight, bias))
    close(reference("softmax", x=x, scale=0.3), (x * 0.3).softmax(-1))
    close(reference("softmax", x=x, scale=3.0, DIVIDE=1, LOG=1), (x / 3.0).log_softmax(-1))
    close(reference("cross_entropy", logits=x, targets=targets), F.cross_entropy(x, targets))
    close(reference("cross_entropy", logits=x, targets=targets, smoothing=0.2, SMOOTHED=1), F.cross_entropy(x, targets, label_smoothing=0.2))
