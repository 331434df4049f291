"""Fixtures: values by generator, layouts, and what PyTorch expects, read back from the files."""

import json
import math
import pickle
from types import SimpleNamespace

import pytest
import torch

from autokernel import baseline, fixtures, generators, safetensors
from autokernel.errors import WorkerError
from autokernel.families import read_family
from conftest import ROOT, scaled_task


class Session:
    def __init__(self, directory):
        self.directory = str(directory)
        self.loaded = None
        self.ways = None

    def families_directory(self, arguments):
        return self.directory


def quiet(text, done=0, total=0):
    pass


def made(families, tmp_path, case, **task):
    """The two files of a case: ({name: tensor in its layout}, {name: tensor}, metadata of the expected)."""
    arguments = {"task": scaled_task(**task), "case": {"seed": 11, "generator": "normal", **case}, "directory": str(tmp_path / "fixture")}
    result = fixtures.fixtures(Session(families), arguments, quiet)
    storages, layout = safetensors.read(result["inputs"])
    expected, metadata = safetensors.read(result["expected"])
    inputs = {
        name: storage.as_strided(json.loads(layout[f"{name}.shape"]), json.loads(layout[f"{name}.strides"]), int(layout[f"{name}.offset"]))
        for name, storage in storages.items()
    }
    return inputs, expected, metadata


def by_hand(x, weight, eps=1e-6):
    x, weight = x.double(), weight.double()
    return (x - x.mean(-1, keepdim=True)) / (x.abs().max(-1, keepdim=True).values + eps) * weight


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_expected_values_are_pytorchs(families, tmp_path, dtype):
    inputs, expected, metadata = made(families, tmp_path, {"dims": {"M": 5, "N": 33}}, dtype=dtype)
    assert str(inputs["x"].dtype) == f"torch.{dtype}" and inputs["weight"].std() > 0.1
    exact = {"rtol": 1e-13, "atol": 1e-15} if dtype == "float32" else {"rtol": 1e-7, "atol": 1e-9}  # float32 holds the half of a 16-bit number's ulp
    assert expected["out.reference"].dtype == (torch.float64 if dtype == "float32" else torch.float32)
    torch.testing.assert_close(expected["out.reference"].double(), by_hand(inputs["x"], inputs["weight"]), **exact)
    x = inputs["x"]
    eager = (x - x.mean(-1, keepdim=True)) / (x.abs().amax(-1, keepdim=True) + 1e-6) * inputs["weight"]
    assert torch.equal(expected["out.eager"], eager)
    assert not torch.equal(expected["out.eager"].double(), expected["out.reference"].double())
    assert metadata == {"out.shape": "[5, 33]", "out.strides": "[33, 1]", "out.dtype": dtype}


def test_the_seed_decides_everything(families, tmp_path):
    first, again, other = (made(families, tmp_path, {"dims": {"M": 3, "N": 8}, "seed": seed})[0] for seed in (1, 1, 2))
    assert torch.equal(first["x"], again["x"]) and torch.equal(first["weight"], again["weight"])
    assert not torch.equal(first["x"], other["x"]) and not torch.equal(first["x"][0], first["weight"])


@pytest.mark.parametrize(
    ("case", "strides", "offset"),
    [
        ({"layout": "contiguous"}, (7, 1), 0),
        ({"layout": "strided"}, (10, 1), 0),
        ({"layout": "strided", "seed": 12}, (15, 1), 0),
        ({"layout": "misaligned"}, (7, 1), 4),
        ({"layout": "transposed"}, (1, 3), 0),
        ({"strides": {"x": [50, 2]}}, (50, 2), 0),
        ({"strides": {"x": [0, 1]}, "layout": "strided"}, (0, 1), 0),
    ],
)
def test_layouts(families, tmp_path, case, strides, offset):
    inputs, expected, metadata = made(families, tmp_path, {"dims": {"M": 3, "N": 7}, **case})
    x = inputs["x"]
    assert x.stride() == strides and x.storage_offset() == offset and x.shape == (3, 7)
    assert x.untyped_storage().nbytes() == 4 * (offset + 1 + 2 * strides[0] + 6 * strides[1])
    outside = torch.ones(x.untyped_storage().nbytes() // 4, dtype=torch.bool)
    outside.as_strided(x.shape, strides, offset).fill_(False)
    whole = torch.empty(0).set_(x.untyped_storage())
    assert torch.isnan(whole[outside]).all() and torch.isfinite(x).all()
    torch.testing.assert_close(expected["out.reference"], by_hand(x, inputs["weight"]), rtol=1e-13, atol=1e-15)
    assert expected["out.reference"].stride() == (7, 1)


@pytest.mark.parametrize("dims", [{"M": 0, "N": 5}, {"M": 1, "N": 1}, {"M": 65537, "N": 1}])
def test_small_and_empty_dims(families, tmp_path, dims):
    inputs, expected, _ = made(families, tmp_path, {"dims": dims})
    assert list(inputs["x"].shape) == list(expected["out.reference"].shape) == [dims["M"], dims["N"]]


def test_an_absent_tensor_is_not_made(families, tmp_path):
    inputs, expected, _ = made(families, tmp_path, {"dims": {"M": 4, "N": 6}}, has_weight=False)
    assert set(inputs) == {"x"}
    torch.testing.assert_close(expected["out.reference"], by_hand(inputs["x"], torch.ones(6)), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("generator", sorted(generators.MAY_BE_SCALED | {"small", "denormal"}))
def test_the_eager_result_is_finite_where_the_reference_is(families, tmp_path, generator, dtype):
    inputs, expected, _ = made(families, tmp_path, {"dims": {"M": 6, "N": 40}, "generator": generator}, dtype=dtype)
    assert torch.equal(torch.isfinite(expected["out.eager"]), torch.isfinite(expected["out.reference"]))
    assert inputs["x"].abs().max() > 0


@pytest.mark.parametrize("generator", sorted(generators._GENERATORS))
@pytest.mark.parametrize("shape", [(1,), (0,), (1, 1), (1, 7), (2, 5), (0, 5), (5, 0), (2, 1, 3)])
def test_every_generator_makes_every_shape(generator, shape):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        values = generators.data(generator, shape, dtype, torch.Generator().manual_seed(3))
        assert values.shape == shape and values.dtype == dtype


def test_generators_make_what_they_say():
    random = torch.Generator().manual_seed(4)
    values = {name: generators.data(name, (40, 64), torch.float32, random) for name in generators._GENERATORS}
    assert values["large"].std() > 5e3 and values["small"].abs().max() < 1e-2
    assert abs(values["offset"].mean() - 1e4) < 1 and 0.9 < values["offset"].std() < 1.1
    assert values["mixed_scale"].abs().max() / values["mixed_scale"].abs().median() > 100
    assert values["constant"].unique().numel() == 1 and abs(float(values["constant"][0, 0])) == 1234
    assert values["alternating"][0, :3].tolist() == [300, -300, 300]
    assert 0 < values["denormal"].abs().max() < torch.finfo(torch.float32).tiny
    assert values["negative"].max() < -90 and values["positive"].min() > 0


def test_infinite_and_nan_touch_some_rows_only(families, tmp_path):
    inputs, expected, _ = made(families, tmp_path, {"dims": {"M": 12, "N": 10}, "generator": "infinite"})
    x = inputs["x"]
    assert (x[0] == -math.inf).all() and (x[1, :5] == -math.inf).all() and torch.isfinite(x[1, 5:]).all()
    assert torch.isfinite(x[3]).all() and torch.isinf(x).any(-1).sum() == 6 and (x == math.inf).any()
    assert torch.isfinite(inputs["weight"]).all()
    inputs, expected, _ = made(families, tmp_path, {"dims": {"M": 12, "N": 10}, "generator": "nan"})
    bad = torch.isnan(inputs["x"]).any(-1)
    assert bad.sum() == 4 and torch.equal(torch.isnan(expected["out.reference"]).any(-1), bad)


@pytest.mark.parametrize("ignored", [-100, 0, 4])
@pytest.mark.parametrize("generator", sorted(generators._GENERATORS))
def test_indices_are_ignored_as_the_generator_says(generator, ignored):
    random = torch.Generator().manual_seed(5)
    for size in (4, 50, 4000):
        share = (generators.index(generator, (size,), torch.int64, 9, ignored, random) == ignored).double().mean()
        if generator in ("normal", "all_ignored"):
            assert share == (generator == "all_ignored")
        else:
            assert 1 / size <= share <= 0.75 and (size < 4000 or 0.1 < share < 0.15)


def test_indices_reach_both_ends_and_repeat():
    random = torch.Generator().manual_seed(5)
    for generator in ("normal", "some_ignored"):
        values = generators.index(generator, (50,), torch.int64, 9, -100, random)
        seen = values[values != -100]
        assert values.dtype == torch.int64 and seen.min() == 0 and seen.max() == 8 and seen.unique().numel() < seen.numel()
        assert set(generators.index(generator, (4, 50), torch.bool, 2, None, random).unique().tolist()) == {False, True}
        assert generators.index(generator, (0,), torch.int32, 9, -100, random).shape == (0,)


@pytest.mark.parametrize("generator", ["normal", "some_ignored", "large", "infinite", "nan"])
def test_the_task_says_which_scalar_is_ignored(families, generator):
    picked = {"name": "picked", "role": "index", "dtype": "int64", "shape": ["M"], "range": "N", "ignored": "padding"}
    task = scaled_task(scalars={"eps": 1e-6, "padding": 3})
    task["tensors"].insert(0, picked)
    case = {"dims": {"M": 40, "N": 9}, "generator": generator}
    picked = fixtures.build_inputs(fixtures.read_task(Session(families), {"task": task}), case)["picked"]
    assert (picked == 3).any() == (generator != "normal")


def test_data_that_cannot_be_scaled_into_range_stay_as_drawn():
    task = SimpleNamespace(
        table={"family": "sum"},
        dtype="float16",
        inputs=lambda: [{"name": "x", "role": "data"}],
        reference=lambda named: [named["x"].sum() * 0 + named["x"].numel() * 40],
    )
    x = torch.randn(4096).half()
    before = x.clone()
    reference, eager = fixtures.expected(task, {"x": x}, {"generator": "normal"})
    assert torch.equal(x, before) and float(reference[0]) == 4096 * 40 and torch.isinf(eager[0])


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ({"generator": "sparkling"}, "Unknown generator 'sparkling'"),
        ({"layout": "spiral"}, "Unknown layout 'spiral'"),
        ({"strides": {"x": [1]}}, "1 strides for the 2 dims of x"),
        ({"dims": {"M": 3}}, "'N' has no value"),
    ],
)
def test_bad_cases_are_named(families, tmp_path, case, told):
    with pytest.raises(WorkerError) as caught:
        made(families, tmp_path, {"dims": {"M": 3, "N": 7}, **case})
    assert caught.value.kind == "user" and told in caught.value.message


def test_safetensors_keep_every_dtype(tmp_path):
    tensors = {
        str(dtype): (torch.rand(3, 2) * 9).to(dtype)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
    }
    tensors["empty"] = torch.empty(0, 4)
    size = safetensors.write(tmp_path / "file", tensors, {"key": "[1, 2]"})
    back, metadata = safetensors.read(tmp_path / "file")
    assert size == (tmp_path / "file").stat().st_size and metadata == {"key": "[1, 2]"}
    assert all(torch.equal(back[name], tensor) and back[name].dtype == tensor.dtype for name, tensor in tensors.items())
    raw = (tmp_path / "file").read_bytes()
    assert (8 + int.from_bytes(raw[:8], "little")) % 8 == 0


@pytest.mark.parametrize(
    ("shape", "labels", "wanted"),
    [
        (["M", "N"], ["*M", "N"], (3, 5)),
        (["M", "N"], ["N", "M"], (5, 3)),
        (["B", "H", "S", "L"], ["S", "L"], (7, 9)),
        (["B", "H", "S", "L"], ["B", "1", "1", "L"], (2, 1, 1, 9)),
        (["B", "H", "S", "L"], ["B", "S", "H", "L"], (2, 7, 4, 9)),
        (["S", "L"], ["1", "S", "1", "L"], (1, 7, 1, 9)),
    ],
)
def test_tensors_as_a_spelling_receives_them(shape, labels, wanted):
    sizes = {"M": 3, "N": 5, "B": 2, "H": 4, "S": 7, "L": 9}
    tensor = torch.randn([sizes[name] for name in shape])
    assert baseline.as_spelled(tensor, shape, labels).shape == wanted


def measured(families, **task):
    arguments = {
        "task": scaled_task(**task),
        "binding": {"dims": {"M": 4, "N": 6}},
        "kinds": ["eager", "library"],
        "rounds": 4,
        "flush_bytes": 4096,
    }
    return baseline.baseline(Session(families), arguments, quiet)["kinds"]


@pytest.mark.parametrize("spelling", ["centred", "columns"])
def test_baseline_has_a_sample_a_round_and_kind(families, spelling):
    for kind in measured(families, spelling=spelling).values():
        assert len(kind["samples_us"]) == 4 and min(kind["samples_us"]) > 0


def test_a_baseline_that_does_not_run_spares_the_others(families):
    kinds = measured(families, spelling="halves")
    assert "takes other tensors" in kinds["eager"]["error"] and len(kinds["library"]["samples_us"]) == 4


def test_spelled_and_reference_agree_on_the_tensors_of_the_baseline(families):
    task = fixtures.read_task(Session(families), {"task": scaled_task(spelling="columns")})
    tensors = fixtures.build_inputs(task, {"dims": {"M": 4, "N": 6}, "seed": 2})
    spelled = baseline._spelled(task, tensors, "eager")()
    torch.testing.assert_close(spelled.t(), task.reference(tensors)[0])


def test_what_was_compiled_for_the_last_task_is_kept(families, monkeypatch):
    session, compiles = Session(families), []
    monkeypatch.setattr(torch, "compile", lambda function, **_: compiles.append(function) or function)
    arguments = {"task": scaled_task(spelling="centred"), "binding": {"dims": {"M": 6, "N": 10}}, "kinds": ["eager", "compile"], "rounds": 2}
    for _ in range(2):
        assert set(baseline.baseline(session, arguments, quiet)["kinds"]) == {"eager", "compile"}
    assert len(compiles) == 1
    baseline.baseline(session, {**arguments, "binding": {"dims": {"M": 4, "N": 10}}}, quiet)
    assert len(compiles) == 2


def test_compiling_ahead_keeps_no_choice_that_was_timed_meanwhile(families, monkeypatch):
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    save, seen = AutotuneCache.save, []
    monkeypatch.setattr(torch, "compile", lambda function, **_: seen.append(AutotuneCache.save is save) or function)
    arguments = {"tasks": [{"task": scaled_task(spelling="centred"), "binding": {"dims": {"M": 6, "N": 10}}}], "kinds": ["compile"], "device": "cpu"}
    assert baseline.compile_ahead(Session(families), arguments, quiet) == {"tasks": 1, "failed": 0}
    assert seen == [False] and AutotuneCache.save is save


def test_what_is_compiled_ahead_is_read_from_the_cache_by_others():
    """A compiled graph is pickled with its kernels' hook, a bound method, by name."""
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    with baseline._choices_forgotten():
        pickled = pickle.dumps(AutotuneCache("configs").save)
    assert pickle.loads(pickled).__func__ is AutotuneCache.save


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_normal_data_say_nothing_of_pytorchs_generator(dtype):
    """The second half of each mantissa is even, and pairs of float32 (elements j and j + 8 of 16) are no longer on the generator's lattice."""
    values = generators.data("normal", (64, 1024), dtype, torch.Generator().manual_seed(5))
    integers, mantissa = generators._MANTISSAS[dtype]
    low = values.view(integers) & ((1 << mantissa // 2) - 1)
    counts = torch.bincount(low.flatten() >> max(0, mantissa // 2 - 3), minlength=min(8, 1 << mantissa // 2)).double()
    assert ((counts / counts.mean() - 1).abs() < 0.06).all(), counts
    assert abs(values.double().std() - 1) < 0.02

    def share_on_lattice(values):
        pairs = values.double().view(-1, 2, 8)
        u = torch.exp(-(pairs[:, 0] ** 2 + pairs[:, 1] ** 2) / 2) * 2**24
        far = u[(u > 2) & (u < 2**14)]
        return ((far - far.round()).abs() < 0.15).double().mean()

    if dtype == torch.float32:
        assert share_on_lattice(torch.randn(1 << 18, generator=torch.Generator().manual_seed(5))) > 0.9
        many = generators.data("normal", (1 << 18,), dtype, torch.Generator().manual_seed(5))
        assert abs(share_on_lattice(many) - 0.3) < 0.1, "as many as there are by chance"


@pytest.mark.parametrize("generator", ["nan", "infinite"])
def test_a_row_is_along_the_last_dim_that_has_several_places(generator):
    flat = generators.data(generator, (12, 50), torch.float32, torch.Generator().manual_seed(7))
    reduced = generators.data(generator, (12, 50, 1), torch.float32, torch.Generator().manual_seed(7))
    assert torch.equal(flat.nan_to_num(9), reduced[..., 0].nan_to_num(9))
    assert reduced.sum((1, 2)).isfinite().any()


@pytest.mark.parametrize("shape", [(2, 3, 40, 64), (1, 1, 1, 1), (4, 1, 1, 7), (0, 2, 3, 5)])
def test_an_additive_mask_hides_some_of_each_row_and_never_all(shape):
    mask = generators.additive_mask("normal", shape, torch.float16, torch.Generator().manual_seed(3))
    assert mask.shape == shape and not mask.isnan().any()
    if mask.numel():
        hidden = mask == -math.inf
        assert not hidden.all(-1).any()
        assert shape[-1] == 1 or hidden.any()
    if shape[-1] == 64:
        assert 0.25 < hidden.double().mean() < 0.55
        assert (hidden[..., :32].all(-1)).any(), "whole blocks of keys are hidden"


PRODUCTS = [(64, 1), (64, 2), (64, 17), (64, 1024), (512, 4096), (256, 16384)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("rows", "count"), PRODUCTS)
def test_products_of_factors_stay_in_range_also_where_the_judge_changes_them(rows, count, dtype):
    random = torch.Generator().manual_seed(5)
    values = generators.factors("normal", (rows, count), dtype, count, random)
    integers, mantissa = generators._MANTISSAS[dtype]
    changed = values.view(integers) ^ torch.randint(0, 1 << mantissa // 2, values.shape, generator=random, dtype=integers)
    few = torch.rand(values.shape, generator=random) < min(1 / 64, 4096 / values.numel())
    changed[few] ^= torch.randint(0, 1 << mantissa, values.shape, generator=random, dtype=integers)[few]
    for each in (values, changed.view(dtype)):
        products = each.double().prod(1)
        octaves = products.abs().log2()
        assert abs(octaves.mean()) < 1 and octaves.std() < 7
        assert count == 1 or octaves.std() > 0.5
        assert (products.to(dtype).isfinite() & (products.to(dtype) != 0)).double().mean() > 0.98
        assert 0.2 < (products < 0).double().mean() < 0.8
        assert count < 100 or (each.abs() > 1.5).any() and (each.abs() < 0.6).any(), "no change tells what is timed"


def test_special_values_are_among_factors_and_other_generators_are_themselves():
    for name in ("infinite", "nan"):
        plain, special = (generators.factors(each, (9, 500), torch.float32, 500, torch.Generator().manual_seed(7)) for each in ("normal", name))
        assert not special.isfinite().all() and (special[special.isfinite()].abs() < 2).all() and (plain.abs() < 2).all()
        finite = special.prod(1)[special.isfinite().all(1)]
        assert len(finite) and finite.isfinite().all() and (finite != 0).all()
    assert generators.factors("large", (50,), torch.float32, 50, torch.Generator().manual_seed(7)).abs().max() > 1000


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("dims", [{"OUTER": 48, "N": 4096, "INNER": 1}, {"OUTER": 2, "N": 1500, "INNER": 20}])
def test_a_missing_factor_shows_in_a_product(dtype, dims):
    """As the family says that x is multiplied, and in whatever PyTorch has for the product in a working dtype."""
    task, case = product_task(dtype), {"dims": dims, "seed": 3}
    tensors = fixtures.build_inputs(task, case)
    before = tensors["x"].clone()
    (wide,), (narrow,) = fixtures.expected(task, tensors, case)
    assert torch.equal(tensors["x"], before), "products are not scaled down"
    budget = 16 * (narrow.double() - wide).abs().maximum(torch.finfo(narrow.dtype).eps * wide.abs() / 2)
    assert (budget < wide.abs()).all(), "where zeros would pass"
    missing = [((wide / tensors["x"][:, place].double() - wide).abs() > budget).double().mean() for place in range(0, dims["N"], 97)]
    assert min(missing) > 0.2 and sum(missing) / len(missing) > 0.4


def product_task(dtype):
    family = read_family(str(ROOT / "kernels" / "reduce"))
    tensors = [{"name": "x", "role": "data", "dtype": dtype, "shape": ["OUTER", "N", "INNER"], "factors": True},
               {"name": "out", "role": "output", "dtype": dtype, "shape": ["OUTER", "INNER"]}]
    return fixtures.Task({"family": "reduce", "dtype": dtype, "tensors": tensors, "options": {"OP": 6}}, family)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_ties_have_each_extreme_in_several_places(dtype):
    values = generators.data("ties", (50, 300, 1), dtype, torch.Generator().manual_seed(3))
    for extreme in (values.amax(1, keepdim=True), values.amin(1, keepdim=True)):
        equal = values == extreme
        assert (equal.sum(1) > 2).all()
        assert 10 < len(equal.int().argmax(1).unique()), "the first is anywhere"
