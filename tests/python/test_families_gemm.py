"""The references of matmul, fused_mlp and flash_attention are PyTorch's own functions, and every spelling agrees with its reference."""
import importlib.util
import inspect
import math
import pathlib
import tomllib

import pytest
import torch
import torch.nn.functional as F

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
NAMES = ("matmul", "fused_mlp", "flash_attention")
DIMS = {
    "matmul": {"M": 6, "N": 10, "K": 7},
    "fused_mlp": {"M": 6, "D": 10, "H": 14},
    "flash_attention": {"B": 2, "H": 6, "G": 6, "S": 5, "L": 7, "D": 8},
}


def load(name):
    spec = importlib.util.spec_from_file_location(f"reference_{name}", KERNELS / name / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, tomllib.loads((KERNELS / name / "family.toml").read_text())


FAMILIES = {name: load(name) for name in NAMES}
SPELLINGS = [(name, spelling["function"]) for name in NAMES for spelling in FAMILIES[name][1]["spelling"]]


def reference(name):
    return FAMILIES[name][0].reference


def rand(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spelled_tensor(tensor, labels, dims, seed):
    """A random tensor as the spelling sees it (a `*` label is two dims) and as the contract does."""
    shape = [size for label in labels for size in ([dims[label[1:]] // 2, 2] if label[0] == "*" else [1 if label == "1" else dims[label]])]
    value = rand(*shape, seed=seed)
    if tensor.get("dtype") == "bool":
        value = value > 0
    plain = [label.lstrip("*") for label in labels]
    seen = value.reshape([1 if label == "1" else dims[label] for label in plain])
    if sorted(plain) == sorted(tensor["shape"]):
        return value, seen.permute([plain.index(dim) for dim in tensor["shape"]])
    return value, seen.expand([dims[dim] for dim in tensor["shape"]])


@pytest.mark.parametrize("name,function", SPELLINGS)
def test_a_spelling_agrees_with_its_reference(name, function):
    module, family = FAMILIES[name]
    spelling = next(s for s in family["spelling"] if s["function"] == function)
    dims = spelling.get("sizes", [DIMS[name]])[0]
    options = {**family["options"], **spelling.get("options", {})}
    scalars = {s: 2.5 for s in spelling.get("scalars", [])}
    spelled, contract = {}, {}
    for seed, tensor in enumerate(t for t in family["tensor"] if t["role"] != "output"):
        if tensor["name"] in spelling["labels"]:
            spelled[tensor["name"]], contract[tensor["name"]] = spelled_tensor(tensor, spelling["labels"][tensor["name"]], dims, seed)
    if "bool_mask" in spelled:  # every query sees a key
        spelled["bool_mask"][..., 0] = options["BOOL_MASK"] == 1
    result = getattr(module, function)(**spelled, **scalars)
    expected = module.reference(**contract, **scalars, **options)
    torch.testing.assert_close(result.reshape(expected.shape), expected, rtol=1e-6, atol=1e-6)  # a mask may be made in float32


@pytest.mark.parametrize("name", NAMES)
def test_a_spelling_names_its_tensors_scalars_and_options(name):
    module, family = FAMILIES[name]
    tensors = {t["name"] for t in family["tensor"] if t["role"] != "output"}
    functions = [s["function"] for s in family["spelling"]]
    assert len(set(functions)) == len(functions)
    for spelling in family["spelling"]:
        arguments = set(inspect.signature(getattr(module, spelling["function"])).parameters)
        assert arguments == (set(spelling["labels"]) & tensors) | set(spelling.get("scalars", []))
        assert set(spelling.get("options", {})) <= set(family["options"])
        present = {t["name"] for t in family["tensor"] if "optional" not in t or {**family["options"], **spelling.get("options", {})}[t["optional"]]}
        assert set(spelling["labels"]) == present


def test_matmul_is_linear():
    x, weight, bias = rand(5, 7), rand(3, 7, seed=1), rand(3, seed=2)
    torch.testing.assert_close(reference("matmul")(x, weight), torch.einsum("mk,nk->mn", x, weight))
    torch.testing.assert_close(reference("matmul")(x, weight, bias, ACTIVATION=4), F.silu(F.linear(x, weight, bias)))


def test_matmul_keeps_the_mantissa_of_float32():
    x = torch.full((16, 16), 1 + 2.0**-12)
    assert torch.equal(reference("matmul")(x, torch.ones(16, 16)), torch.full((16, 16), 16.00390625))


def test_fused_mlp_is_three_linears():
    x, gate, up, down = rand(4, 5), rand(6, 5, seed=1), rand(6, 5, seed=2), rand(5, 6, seed=3)
    hidden = x @ gate.T
    torch.testing.assert_close(reference("fused_mlp")(x, gate, up, down), (hidden / (1 + torch.exp(-hidden)) * (x @ up.T)) @ down.T)


def test_causal_attention_is_aligned_to_the_top_left():
    q, k, v = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4), torch.arange(1.0, 6.0).reshape(1, 1, 5, 1).expand(1, 1, 5, 4)
    assert reference("flash_attention")(q, k, v, CAUSAL=1)[0, 0, :, 0].tolist() == [1.0, 1.5]


def test_attention_is_the_formula():
    q, k, v, mask = rand(2, 3, 5, 8), rand(2, 3, 7, 8, seed=1), rand(2, 3, 7, 8, seed=2), rand(5, 7, seed=3)
    expected = torch.softmax(q @ k.mT / math.sqrt(8) + mask, -1) @ v
    torch.testing.assert_close(reference("flash_attention")(q, k, v, mask, HAS_MASK=1), expected)


@pytest.mark.parametrize("safe,expected", [(1, 0.0), (0, math.nan)])
def test_a_row_that_sees_nothing_is_zero_in_sdpa_and_nan_in_softmax(safe, expected):
    q, k, v = rand(1, 1, 3, 4), rand(1, 1, 2, 4, seed=1), rand(1, 1, 2, 4, seed=2)
    hidden = torch.tensor([[False, True], [True, True], [False, False]]).expand(1, 1, 3, 2)
    out = reference("flash_attention")(q, k, v, bool_mask=hidden, BOOL_MASK=2, SAFE=safe)
    torch.testing.assert_close(out[0, 0, 1], torch.full((4,), expected, dtype=torch.float64), equal_nan=True)
    assert torch.isfinite(out[0, 0, [0, 2]]).all()
