"""Patterns: a spelling traced twice, what changed explained by dims and scalars, and spellings that cannot be patterns reported."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from autokernel import patterns, runtime
from autokernel.expression import evaluate
from autokernel.errors import WorkerError
from autokernel.normalise import normalise
from conftest import ROOT
from test_examples import small


def quiet(text, done=0, total=0):
    pass


def ask(directory, path, dtypes=("float32",)):
    session = SimpleNamespace(families=None)
    result = patterns.patterns(session, {"families": str(directory), "dtypes": list(dtypes), "path": str(path)}, quiet)
    return result, json.loads(path.read_text())["patterns"]


@pytest.fixture
def traced(families, tmp_path):
    result, found = ask(families, tmp_path / "patterns.json")
    return result, {pattern["spelling"]: pattern for pattern in found}


def test_scalars_inputs_and_labels(traced):
    pattern = traced[1]["centred"]
    assert pattern["inputs"] == [
        {"name": "x", "labels": ["*M", "N"], "dtype": "float32"},
        {"name": "weight", "labels": ["N"], "dtype": "float32"},
    ]
    assert pattern["options"] == {"HAS_WEIGHT": 1, "HAS_PICKED": 0}
    add = next(node for node in pattern["nodes"] if node["op"] == "aten.add.Tensor")
    assert add["args"]["other"] == {"scalar": "eps"} and add["args"]["alpha"] == 1
    mean = next(node for node in pattern["nodes"] if node["op"] == "aten.mean.dim")
    assert mean["args"] == {"self": {"input": "x"}, "dim": [-1], "keepdim": True, "dtype": None}
    last = pattern["nodes"][-1]
    assert last["args"]["other"] == {"input": "weight"} and pattern["outputs"] == [
        {"node": last["name"], "labels": ["*M", "N"], "name": "out"}
    ]


def test_permuted_labels_reduce_the_other_dim(traced):
    assert [node["args"]["dim"] for node in traced[1]["columns"]["nodes"] if "dim" in node["args"]] == [[-2], [-2]]


def test_sizes_become_expressions_of_dims(traced):
    slices = [node["args"] for node in traced[1]["halves"]["nodes"] if node["op"] == "aten.slice.Tensor"]
    assert [(s["start"], s["end"]) for s in slices] == [({"expression": "N/2"}, {"expression": "N"}), (0, {"expression": "N/2"})]


def test_leading_dims_in_a_list_are_named_as_one(traced):
    nodes = traced[1]["rows_said"]["nodes"]
    zeros = next(node for node in nodes if node["op"].startswith("aten.zeros"))
    assert zeros["args"]["size"] == [{"expression": "*M"}, {"expression": "N"}]
    reshapes = [node["args"]["shape"] for node in nodes if node["op"] == "aten.reshape.default"]
    assert reshapes == [[{"expression": "M"}, {"expression": "N"}], [{"expression": "*M"}, {"expression": "N"}]]


def test_what_cannot_be_a_pattern_is_reported(traced):
    result, found = traced
    errors = {error["spelling"]: error["message"] for error in result["errors"]}
    assert set(errors) == {"ignores_weight", "unexplained"}
    assert "ignores its input weight" in errors["ignores_weight"]
    assert "is explained by no dim and no scalar" in errors["unexplained"]
    assert set(found) == {"centred", "columns", "halves", "rows_said"} and result["patterns"] == 4


def test_one_pattern_a_dtype(families, tmp_path):
    _, found = ask(families, tmp_path / "patterns.json", ("float16", "bfloat16"))
    centred = [pattern for pattern in found if pattern["spelling"] == "centred"]
    assert [pattern["inputs"][0]["dtype"] for pattern in centred] == ["float16", "bfloat16"]


def test_the_cache_answers_until_the_family_changes(families, tmp_path, monkeypatch):
    _, first = ask(families, tmp_path / "a.json")
    monkeypatch.setattr(patterns, "family_patterns", lambda *_: pytest.fail("traced again"))
    _, second = ask(families, tmp_path / "b.json")
    assert first == second
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reference = families / "scaled" / "reference.py"
    reference.write_text(reference.read_text().replace("return x * 2", "return x * weight"))
    result, third = ask(families, tmp_path / "c.json")
    assert len(third) == len(first) + 1 and "ignores_weight" not in {error["spelling"] for error in result["errors"]}


def test_a_family_that_does_not_import_spares_the_others(families, tmp_path):
    broken = families / "broken"
    broken.mkdir()
    (broken / "family.toml").write_text((families / "scaled" / "family.toml").read_text().replace('"scaled"', '"broken"'))
    (broken / "reference.py").write_text("import nothing_of_this_name\n")
    result, found = ask(families, tmp_path / "patterns.json")
    assert {pattern["family"] for pattern in found} == {"scaled"}
    assert any(error["family"] == "broken" and "ModuleNotFoundError" in error["message"] for error in result["errors"])


def test_spellings_that_are_one_in_a_dtype_give_one_pattern(families, tmp_path):
    toml, reference = families / "scaled" / "family.toml", families / "scaled" / "reference.py"
    toml.write_text(toml.read_text().replace('"unexplained"', '"cast"').replace('"halves"', '"plain"'))
    reference.write_text(
        reference.read_text() + "\ndef plain(x):\n    return x.exp()\n\ndef cast(x):\n    return x.float().exp().to(x.dtype)\n"
    )
    _, found = ask(families, tmp_path / "patterns.json", ("float32", "float16"))
    assert [(p["spelling"], p["dtype"]) for p in found if p["spelling"] in ("plain", "cast")] == [
        ("plain", "float32"),
        ("plain", "float16"),
        ("cast", "float16"),
    ]


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    """What the verb says of all families in float32, and the patterns."""
    directory = tmp_path_factory.mktemp("product")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory))
        return ask(ROOT / "kernels", directory / "patterns.json")


def test_every_spelling_of_the_product_is_a_pattern(product):
    result, found = product
    assert result["errors"] == []
    assert len({json.dumps([pattern["family"], pattern["inputs"], pattern["nodes"], pattern["options"]]) for pattern in found}) == len(found)
    assert len(found) == result["patterns"] > 100


@pytest.mark.parametrize(
    ("example", "norms"),
    [
        ("bert", {"functional_residual": 5, "functional": 4}),
        ("gpt2", {"functional": 1 + 4, "functional_residual": 1, "functional_residual_out": 3}),
        ("llama", {"hf_llama": 1 + 4, "hf_llama_residual": 1, "hf_llama_residual_out": 3}),
    ],
)
def test_the_norms_of_an_example_take_the_sums_before_them(product, example, norms):
    """Of two layers: each sum that there is, which in BERT is used by the norm alone, else by the next sum, too, but for the last one. A matmul
    that adds the same is another way: beside it stands the norm without the sum."""
    model, inputs = small(example)
    graph = normalise(model.eval(), inputs)
    regions = runtime.match({"schema": "autokernel.graph/1", "graphs": [{"name": "g0", "nodes": graph.nodes}]}, product[1], str(ROOT / "kernels"))
    assert Counter(region["spelling"] for region in regions if region["family"] in ("rmsnorm", "layernorm")) == norms


@pytest.mark.parametrize(("text", "value"), [("D/2", 12), ("2*D + S", 55), ("cdiv(S, 2)", 4), ("-S", -7), ("min(D, S) % 4", 3), (9, 9)])
def test_expressions(text, value):
    assert evaluate(text, {"D": 24, "S": 7}) == value


@pytest.mark.parametrize("text", ["Q", "D/0", "D +", "D.real", "print(D)"])
def test_bad_expressions_are_errors(text):
    with pytest.raises(WorkerError) as caught:
        evaluate(text, {"D": 24})
    assert str(text) in caught.value.message
