"""The example models: sizes, shapes, finite and repeatable outputs, causality, and that each can be exported."""

import importlib.util
from pathlib import Path

import pytest
import torch

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", MODELS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small(name):
    """A small configuration of an example: (model, inputs), the same on every call."""
    torch.manual_seed(7)
    module = load(name)
    if name == "gpt2":
        return module.GPT2(vocabulary=101, context=24, width=32, layers=2, heads=4), (torch.randint(101, (2, 19)),)
    if name == "llama":
        model = module.Llama(vocabulary=101, context=24, width=32, layers=2, heads=4, kv_heads=2, hidden=48)
        return model, (torch.randint(101, (2, 19)),)
    if name == "bert":
        return module.BertBase(vocabulary=101, context=24, width=32, layers=2, heads=4, hidden=64), (torch.randint(101, (2, 19)),)
    if name == "demo":
        model = module.Demo(vocabulary=101, length=19, width=32, layers=2, heads=4, hidden=48)
        return model, (torch.randint(101, (2, 19)), torch.randint(101, (2, 19)))
    return module.Custom(width=32, hidden=64), (torch.randn(2, 5, 32),)


SHAPES = {"gpt2": [(2, 19, 101)], "llama": [(2, 19, 101)], "bert": [(2, 19, 32), (2, 32)], "demo": [(38,)], "custom": [(2, 5, 32)]}


def outputs_of(result):
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_outputs_have_the_stated_shapes_are_finite_and_repeat(name):
    with torch.no_grad():
        model, inputs = small(name)
        first = outputs_of(model.eval()(*inputs))
        model, inputs = small(name)
        second = outputs_of(model.eval()(*inputs))
    assert [tuple(out.shape) for out in first] == SHAPES[name]
    for a, b in zip(first, second, strict=True):
        assert torch.isfinite(a).all()
        assert a.std() > 1e-4
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_export_gives_the_same_answer(name):
    model, inputs = small(name)
    with torch.no_grad():
        program = torch.export.export(model.eval(), inputs)
        for a, b in zip(outputs_of(program.module()(*inputs)), outputs_of(model(*inputs)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "model", "parameters"),
    [
        ("gpt2", "GPT2", 124_439_808),
        ("llama", "Llama", 124_668_672),
        ("llama", "Llama7B", 6_738_415_616),
        ("bert", "BertBase", 109_482_240),
    ],
)
def test_parameter_counts(name, model, parameters):
    with torch.device("meta"):
        made = getattr(load(name), model)()
    assert sum(parameter.numel() for parameter in made.parameters()) == parameters


def test_gpt2_spelled_and_library_attention_agree():
    model, inputs = small("gpt2")
    library = load("gpt2").GPT2SDPA(vocabulary=101, context=24, width=32, layers=2, heads=4)
    library.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(library.eval()(*inputs), model.eval()(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_no_position_sees_a_later_one(name):
    model, (ids,) = small(name)
    changed = ids.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 101
    with torch.no_grad():
        before, after = model.eval()(ids), model(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10], rtol=1e-5, atol=1e-6)
    assert (before[:, 10] - after[:, 10]).abs().max() > 1e-3


def test_demo_loss_is_the_cross_entropy_of_causal_predictions():
    model, (ids, targets) = small("demo")
    changed = ids.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 101
    with torch.no_grad():
        before = model.eval()(ids, targets).view(2, 19)
        after = model(changed, targets).view(2, 19)
    torch.testing.assert_close(before[:, :10], after[:, :10], rtol=1e-5, atol=1e-6)
    assert (before[:, 10] - after[:, 10]).abs().min() > 1e-4
    assert (before > 0).all()


def test_rotation_keeps_lengths_and_relative_angles():
    torch.manual_seed(3)
    for name, width in (("demo", 8), ("llama", 8)):
        module = load(name)
        cos, sin = module.rotary_tables(32, width)
        q, k = torch.randn(1, width).expand(32, width), torch.randn(1, width).expand(32, width)
        turned_q, turned_k = module.rotate(q, cos, sin), module.rotate(k, cos, sin)
        torch.testing.assert_close(turned_q.norm(dim=-1), q.norm(dim=-1), rtol=1e-5, atol=1e-5)
        products = turned_q @ turned_k.T
        torch.testing.assert_close(products[5, 2], products[25, 22], rtol=1e-4, atol=1e-4)
        assert (products[5, 2] - products[5, 4]).abs() > 1e-4


@pytest.mark.parametrize("name", ["demo", "custom"])
def test_example_functions_return_inputs_the_model_takes(name):
    torch.manual_seed(1)
    model, inputs = load(name).example()
    assert not model.training
    with torch.no_grad():
        assert torch.isfinite(outputs_of(model(*inputs))[0]).all()
