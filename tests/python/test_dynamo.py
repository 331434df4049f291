"""The Dynamo backend, on real bundles compiled here: what it replaces, what it leaves alone, and that the model computes the same."""

import functools
import logging
import os

import pytest
import torch
from torch import nn

import tiny_family
from autokernel import bundles, dynamo, runtime


ROWS, WIDTH = 12, 48


class Norm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Model(nn.Module):
    """Two norms of one shape, tensors that export lifts, a view among the outputs and a plain number."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.first, self.second = Norm(width), Norm(width)
        self.linear = nn.Linear(width, width)
        self.register_buffer("shift", torch.randn(width))

    def forward(self, x):
        hidden = self.linear(self.first(x)) + self.shift + torch.tensor([0.5])
        return self.second(hidden), hidden[..., 0], x.shape[0]


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    torch.manual_seed(7)
    torch._dynamo.reset()
    dynamo._said.clear()
    monkeypatch.setenv("AUTOKERNEL_FAMILIES", tiny_family.write_family(tmp_path / "families"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def run(tmp_path):
    directory = str(tmp_path / "run")
    tiny_family.write_bundle(directory, tiny_family.task(ROWS, WIDTH))
    return directory


def compiled(model, report, **options):
    return torch.compile(model, backend=functools.partial(dynamo.backend, report=report), options=options or None)


def check_same(model, function, *inputs):
    for ours, eager in zip(function(*inputs), model(*inputs)):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_replaces_what_has_a_kernel_and_calls_it_once_a_forward(run):
    model, report = Model().eval(), dynamo.Report()
    function = compiled(model, report, run=run)
    check_same(model, function, torch.randn(ROWS, WIDTH))
    assert [entry["task"] for entry in report.replaced] == [tiny_family.task(ROWS, WIDTH)["id"]] * 2
    assert report.fallbacks == [] and report.left == []
    instances = [entry["instance"] for entry in report.replaced]
    before = [runtime.calls(instance) for instance in instances]
    for _ in range(3):
        check_same(model, function, torch.randn(ROWS, WIDTH))
    assert [runtime.calls(instance) - count for instance, count in zip(instances, before)] == [3, 3]


@torch.no_grad()
def test_leading_dims_collapse(run):
    model, report = Model().eval(), dynamo.Report()
    check_same(model, compiled(model, report, run=run), torch.randn(3, 4, WIDTH))
    assert len(report.replaced) == 2 and report.replaced[0]["inputs"]["x"] == [3, 4, WIDTH]


@torch.no_grad()
def test_regions_that_follow_each_other_directly(run):
    model, report, x = nn.Sequential(Norm(WIDTH), Norm(WIDTH), Norm(WIDTH)), dynamo.Report(), torch.randn(ROWS, WIDTH)
    torch.testing.assert_close(compiled(model, report, run=run)(x), model(x), rtol=1e-4, atol=1e-5)
    assert len(report.replaced) == 3 and report.fallbacks == []


@torch.no_grad()
def test_the_kernel_really_computes_the_result(tmp_path):
    run = str(tmp_path / "wrong")
    tiny_family.write_bundle(run, tiny_family.task(ROWS, WIDTH), factor="* 3.0f")
    norm, x = Norm(WIDTH), torch.randn(ROWS, WIDTH)
    torch.testing.assert_close(compiled(norm, dynamo.Report(), run=run)(x), 3 * norm(x), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_weights_changed_in_place_are_seen(run):
    norm, x = Norm(WIDTH), torch.randn(ROWS, WIDTH)
    function = compiled(norm, dynamo.Report(), run=run)
    torch.testing.assert_close(function(x), norm(x), rtol=1e-4, atol=1e-5)
    norm.load_state_dict({"weight": torch.randn(WIDTH)})
    torch.testing.assert_close(function(x), norm(x), rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("options", [{"replace": "none"}, {"exclude": [tiny_family.task(ROWS, WIDTH)["id"]]}])
def test_replacing_nothing_is_the_same_path(run, options):
    model, report = Model().eval(), dynamo.Report()
    check_same(model, compiled(model, report, run=run, **options), torch.randn(ROWS, WIDTH))
    assert report.replaced == [] and report.fallbacks == [] and report.graphs == 1


@torch.no_grad()
@pytest.mark.parametrize("make, reason", [
    (lambda: torch.randn(ROWS + 1, WIDTH), "made for other shapes or strides"),
    (lambda: torch.randn(ROWS, 2 * WIDTH)[:, ::2], "made for other shapes or strides"),
])
def test_other_shapes_and_strides_are_left_to_inductor(run, make, reason):
    norm, report, x = Norm(WIDTH), dynamo.Report(), make()
    torch.testing.assert_close(compiled(norm, report, run=run)(x), norm(x), rtol=1e-4, atol=1e-5)
    assert report.replaced == [] and [left["reason"] for left in report.left] == [reason]


@torch.no_grad()
def test_other_scalars_and_dtypes_are_left_to_inductor(run):
    report = dynamo.Report()
    norm, x = Norm(WIDTH, eps=1e-2), torch.randn(ROWS, WIDTH)
    torch.testing.assert_close(compiled(norm, report, run=run)(x), norm(x), rtol=1e-4, atol=1e-5)
    assert [left["reason"] for left in report.left] == ["made for other scalars"]
    torch._dynamo.reset()
    double = Norm(WIDTH).double()
    torch.testing.assert_close(compiled(double, report, run=run)(x.double()), double(x.double()))
    assert report.replaced == [] and report.fallbacks == []


def test_a_gradient_sends_the_graph_to_inductor_and_says_so_once(run, caplog):
    model, report = Model().eval(), dynamo.Report()
    function = compiled(model, report, run=run)
    with caplog.at_level(logging.WARNING, logger="autokernel"):
        for rows in (ROWS, ROWS + 1):
            function(torch.randn(rows, WIDTH))[0].sum().backward()
    assert model.first.weight.grad is not None and model.linear.weight.grad.abs().sum() > 0
    assert report.replaced == [] and any("gradient" in reason for reason in report.fallbacks)
    assert sum("gradient" in record.message for record in caplog.records) == 1


@torch.no_grad()
def test_dynamic_shapes_go_to_inductor(run):
    model, report = Model().eval(), dynamo.Report()
    function = torch.compile(model, backend=functools.partial(dynamo.backend, report=report), options={"run": run}, dynamic=True)
    for rows in (ROWS, ROWS + 2):
        check_same(model, function, torch.randn(rows, WIDTH))
    assert report.replaced == [] and all("its shapes are dynamic" in reason and "dynamic=False" in reason for reason in report.fallbacks)


@torch.no_grad()
def test_each_shape_for_itself_keeps_the_kernels_of_the_first(run):
    model, report = Model().eval(), dynamo.Report()
    function = torch.compile(model, backend=functools.partial(dynamo.backend, report=report), options={"run": run}, dynamic=False)
    for rows in (ROWS, ROWS + 2, ROWS + 3):
        check_same(model, function, torch.randn(rows, WIDTH))
    assert report.fallbacks == [] and report.replaced
    before = [runtime.calls(entry["instance"]) for entry in report.replaced]
    check_same(model, function, torch.randn(ROWS, WIDTH))
    assert [runtime.calls(entry["instance"]) for entry in report.replaced] == [calls + 1 for calls in before]


@torch.no_grad()
@pytest.mark.parametrize("damage", ["patterns.json", "bundle.json"])
def test_a_damaged_run_breaks_no_model(run, damage, caplog):
    path = os.path.join(run, "patterns.json") if damage == "patterns.json" else os.path.join(run, "bundles", tiny_family.task(ROWS, WIDTH)["id"], damage)
    with open(path, "w", encoding="utf-8") as file:
        file.write("damaged")
    model, report = Model().eval(), dynamo.Report()
    check_same(model, compiled(model, report, run=run), torch.randn(ROWS, WIDTH))
    assert report.replaced == [] and len(report.fallbacks) == 1
    assert "goes to Inductor" in caplog.text


@torch.no_grad()
def test_a_run_that_is_not_there_is_told(tmp_path, caplog):
    model, report, run = Model().eval(), dynamo.Report(), str(tmp_path / "elsewhere")
    check_same(model, compiled(model, report, run=run), torch.randn(ROWS, WIDTH))
    assert report.replaced == [] and report.fallbacks == []
    assert f"there is no finished kernel in {run}" in caplog.text


@torch.no_grad()
@pytest.mark.parametrize("damage", ["kernel.so", "architecture"])
def test_a_kernel_that_cannot_be_loaded_leaves_its_region_alone(run, damage, caplog):
    directory = tiny_family.write_bundle(run, tiny_family.task(ROWS, WIDTH), architecture="x86_64 avx4096" if damage == "architecture" else "")
    if damage == "kernel.so":
        with open(os.path.join(directory, damage), "w", encoding="utf-8") as file:
            file.write("damaged")
    model, report = Model().eval(), dynamo.Report()
    check_same(model, compiled(model, report, run=run), torch.randn(ROWS, WIDTH))
    assert report.replaced == [] and report.fallbacks == []
    expected = "made for a processor with" if damage == "architecture" else "cannot load kernel"
    assert report.left and all(expected in entry["reason"] for entry in report.left)
    assert expected in caplog.text


@torch.no_grad()
def test_an_in_place_write_keeps_its_place(run):
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear = Norm(WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            before = self.linear(self.norm(x))
            x.add_(1.0)
            return before, self.linear(self.norm(x))

    model, x, report = Writes().eval(), torch.randn(ROWS, WIDTH), dynamo.Report()
    ours, eager = x.clone(), x.clone()
    for a, b in zip(compiled(model, report, run=run)(ours), model(eager)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours, eager)
    assert report.fallbacks == [] and len(report.replaced) <= 1


@torch.no_grad()
def test_without_a_run_the_users_data_directory_is_read(tmp_path):
    tiny_family.write_bundle(os.path.join(str(tmp_path / "data"), "autokernel"), tiny_family.task(ROWS, WIDTH))
    norm, report, x = Norm(WIDTH), dynamo.Report(), torch.randn(ROWS, WIDTH)
    torch.testing.assert_close(compiled(norm, report)(x), norm(x), rtol=1e-4, atol=1e-5)
    assert len(report.replaced) == 1


@torch.no_grad()
def test_where_nothing_is_stored_the_model_runs_as_under_inductor():
    norm, report, x = Norm(WIDTH), dynamo.Report(), torch.randn(ROWS, WIDTH)
    torch.testing.assert_close(compiled(norm, report)(x), norm(x), rtol=1e-4, atol=1e-5)
    assert report.replaced == [] and report.fallbacks == []


@torch.no_grad()
def test_kernels_taken_out_by_the_verification_stay_out(run):
    with open(os.path.join(run, "verification.json"), "w", encoding="utf-8") as file:
        file.write('{"taken_out": [{"task": "%s", "reason": "slower"}]}' % tiny_family.task(ROWS, WIDTH)["id"])
    norm, report, x = Norm(WIDTH), dynamo.Report(), torch.randn(ROWS, WIDTH)
    compiled(norm, report, run=run)(x)
    assert report.replaced == []
    torch._dynamo.reset()
    compiled(norm, report, run=run, exclude=[])(x)
    assert len(report.replaced) == 1


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm(WIDTH)

    def forward(self, x):
        heads = self.norm(x).view(1, ROWS, 4, WIDTH // 4).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize("rest", ["eager", "inductor", f"inductor{dynamo.CUDNN}"])
@torch.no_grad()
def test_what_is_not_replaced_runs_as_asked(run, rest, monkeypatch):
    compiles = []
    inductor = dynamo._inductor
    monkeypatch.setattr(dynamo, "_inductor", lambda *arguments: compiles.append(arguments) or inductor(*arguments))
    model, report, x = Attending().eval(), dynamo.Report(), torch.randn(ROWS, WIDTH)
    torch.testing.assert_close(compiled(model, report, run=run, rest=rest)(x), model(x), rtol=1e-4, atol=1e-5)
    assert len(report.replaced) == 1 and report.fallbacks == [] and len(compiles) == (rest != "eager")


@torch.no_grad()
def test_the_rest_is_what_the_verification_found_fastest(run, monkeypatch):
    with open(os.path.join(run, "verification.json"), "w", encoding="utf-8") as file:
        file.write('{"rest": "eager"}')
    monkeypatch.setattr(dynamo, "_inductor", lambda *_: pytest.fail("eager was chosen"))
    norm, report, x = Norm(WIDTH), dynamo.Report(), torch.randn(ROWS, WIDTH)
    torch.testing.assert_close(compiled(norm, report, run=run)(x), norm(x), rtol=1e-4, atol=1e-5)
    assert len(report.replaced) == 1


@torch.no_grad()
def test_an_unknown_rest_breaks_no_model(run):
    norm, report, x = Norm(WIDTH), dynamo.Report(), torch.randn(ROWS, WIDTH)
    torch.testing.assert_close(compiled(norm, report, run=run, rest="fast")(x), norm(x), rtol=1e-4, atol=1e-5)
    assert "not fast" in report.fallbacks[0]


@torch.no_grad()
def test_the_operator_refuses_what_it_was_not_opened_for(run):
    norm, report, x = Norm(WIDTH), dynamo.Report(), torch.randn(ROWS, WIDTH)
    compiled(norm, report, run=run)(x)
    instance, call = report.replaced[0]["instance"], runtime.operator(2, 1)
    torch.testing.assert_close(call(instance, x, norm.weight), norm(x), rtol=1e-4, atol=1e-5)
    for wrong, text in ((x[:, :-1].contiguous(), "shape"), (x.double(), "float64"), (x.T.contiguous().T, "strides")):
        with pytest.raises(RuntimeError, match=text):
            call(instance, wrong, norm.weight)
    with pytest.raises(RuntimeError, match="no kernel of number 12"):
        call(12, x, norm.weight)
    assert torch.ops.autokernel.call2.default.tags


@pytest.mark.parametrize("measured, expected", [
    ([(7, {1, 2, 3}), (3, {1}), (3, {2})], [7, 3, 3]),
    ([(7, {1, 2, 3}), (4, {1}), (4, {2})], [8, 4, 4]),  # the parts take more than the whole
    ([(5, {1, 2}), (4, {1}), (6, {1, 2, 3}), (3, {3})], [5, 4, 8, 3]),
    ([(5, {1}), (3, {1})], [5, 3]),
    ([], []),
])
def test_a_region_takes_no_less_than_its_parts(measured, expected):
    assert bundles.at_least_their_parts([(us, frozenset(nodes)) for us, nodes in measured]) == expected


@pytest.mark.parametrize("weighted, expected", [
    ([(5, {1, 2}), (4, {2, 3}), (4, {1})], {1, 2}),  # two small ones beat the one over both
    ([(5, {1, 2}), (4, {2, 3})], {0}),
    ([(3, {1}), (3, {1, 2})], {1}),  # a tie goes to the larger
    ([(1, {i, i + 1}) for i in range(20)], set(range(0, 20, 2))),
    ([], set()),
])
def test_the_best_set_without_overlap(weighted, expected):
    chosen = bundles.best_disjoint([(weight, frozenset(nodes)) for weight, nodes in weighted])
    assert sum(weighted[i][0] for i in chosen) == sum(weighted[i][0] for i in expected)
    assert len(weighted) > 14 or chosen == expected
    nodes = [node for i in chosen for node in weighted[i][1]]
    assert len(nodes) == len(set(nodes))
