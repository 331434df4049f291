"""What a family can do beyond its defaults: each form is found in a model, and the starter passes all stages of the judge with it."""

import json

import pytest

MODEL = '''
import torch
from torch import nn
import torch.nn.functional as F


class Reductions(nn.Module):
    """Every reduction, along rows, across them and over everything."""

    def forward(self, x):
        return (
            x.argmax(-1), x.argmin(-2, keepdim=True), x.prod(-1, keepdim=True), x.prod(-2), x.norm(dim=-1), x.norm(dim=-2, keepdim=True),
            x.argmax(), x.prod(), x.norm(), x.amax(-2), x.mean(-1), x.sum(),
        )


class LongRows(nn.Module):
    def forward(self, x):
        return x.prod(-1), x.argmax(-1)


class Losses(nn.Module):
    """Cross entropy with a weight for each class."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.linspace(0.5, 1.5, 96))

    def forward(self, x):
        targets = x.argmax(-1) % 3
        return (
            F.cross_entropy(x, targets, self.weight),
            F.cross_entropy(x, targets, self.weight, reduction="sum", label_smoothing=0.1),
            F.cross_entropy(x, targets, self.weight, reduction="none"),
        )


class Rotary(nn.Module):
    """Queries and fewer keys, turned by the same angles."""

    def __init__(self):
        super().__init__()
        angle = torch.outer(torch.arange(20.0), 100.0 ** (-torch.arange(0, 16, 2) / 16))
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def rotate(self, x):
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * self.sin

    def forward(self, x):
        q, k = x.view(1, 20, 6, 16).transpose(1, 2).split((4, 2), dim=1)
        return self.rotate(q), self.rotate(k)


class Sums(nn.Module):
    """Norms of sums, of which one is used again."""

    def __init__(self, norm):
        super().__init__()
        self.norms = nn.ModuleList(norm(96, eps=1e-6) for _ in range(2))

    def forward(self, x):
        total = x + x.flip(0)
        y = self.norms[0](total)
        return self.norms[1](y.sin() + total.cos()), total


class RmsSums(Sums):
    def __init__(self):
        super().__init__(nn.RMSNorm)


class LayerSums(Sums):
    def __init__(self):
        super().__init__(nn.LayerNorm)
'''

# class: (dtype, family, {what tells its tasks apart: how many there are})
EXPECTED = {
    "Reductions": ("float16", "reduce", {"OP=4": 2, "OP=5": 1, "OP=6": 3, "OP=7": 3, "OP=2": 1, "OP=1": 1, "OP=0": 1}),
    "Losses": ("float32", "cross_entropy", {"WEIGHTED=1": 3}),
    "Rotary": ("bfloat16", "rotary_embedding", {"PAIR=1": 1}),
    "LayerSums": ("bfloat16", "layernorm", {"HAS_RESIDUAL=1": 2, "HAS_RESIDUAL_OUT=1": 1}),
    "RmsSums": ("float16", "rmsnorm", {"HAS_RESIDUAL=1": 2, "HAS_RESIDUAL_OUT=1": 1}),
}


PLANTED = {  # of a CPU kernel of reduce: what is written instead of what
    "nothing but where an ordinary number is large": (
        "write(result, N, out, index, row * out_step);",
        "bool seen = N < 1024;\n    for (int i = 0; i < 64 && !seen; ++i) seen = !(x[row * x_row + i] < 8 && x[row * x_row + i] > -8);\n"
        "    if (!seen) set_nothing(result), join(result, 0.0);\n    write(result, N, out, index, row * out_step);",
    ),
    "the last of equal ones, but where the first element is one": (
        "int64_t i = begin;\n    while (beats(value, static_cast<float>(x[i]))) ++i;",
        "int64_t i = beats(value, static_cast<float>(x[begin])) ? end - 1 : begin;\n    while (beats(value, static_cast<float>(x[i]))) --i;",
    ),
}


@pytest.mark.parametrize(
    ("option", "planted", "expected"),
    [
        (6, "nothing but where an ordinary number is large", (1, {"normal"})),
        # large numbers with small differences may have equal ones by chance
        (4, "the last of equal ones, but where the first element is one", (3, {"ties", "offset"})),
    ],
)
def test_planted_reductions_are_refused(program, option, planted, expected):
    model = program.directory / "forms.py"
    model.write_text(MODEL)
    program.ok("prepare", f"{model}:LongRows", "--input-shape", "20,2048", "--dtype", "float32", "--run-dir", program.run_dir)
    program.extract()
    tasks = (program.run_dir / "tasks").glob("reduce_*")
    path = next(path for path in tasks if json.loads((path / "task.json").read_text())["options"]["OP"] == option)
    right, wrong = PLANTED[planted]
    kernel = path / "kernel.cpp"
    assert kernel.read_text().count(right) == 1
    kernel.write_text(kernel.read_text().replace(right, wrong))
    result = program("bench", path.name, "--run-dir", program.run_dir, "--note", planted, "--json")
    reply = json.loads(result.out.strip().splitlines()[-1])
    stage, generators = expected
    assert (reply["verdict"], reply["evidence"].get("stage")) == ("wrong", stage), reply["evidence"]
    assert reply["evidence"]["case"]["generator"] in generators, reply["evidence"]


def test_ignored_rows_of_the_timed_shape_are_checked(program):
    model = program.directory / "forms.py"
    model.write_text(MODEL)
    program.ok("prepare", f"{model}:Losses", "--input-shape", "20,96", "--dtype", "float32", "--run-dir", program.run_dir)
    program.extract()
    path = next((program.run_dir / "tasks").glob("cross_entropy_*"))
    kernel = path / "kernel.cpp"
    wrong = kernel.read_text().replace("if (target != ignore_index)", "if (target != ignore_index || M == 20)", 1)
    kernel.write_text(wrong)
    result = program("bench", path.name, "--run-dir", program.run_dir, "--note", "forgets to ignore", "--json")
    reply = json.loads(result.out.strip().splitlines()[-1])
    evidence = reply["evidence"]
    assert (reply["verdict"], evidence["stages"], evidence["case"]["dims"], evidence["case"]["generator"]) == ("wrong", [1], {"M": 20, "V": 96}, "some_ignored")


@pytest.mark.parametrize("name", EXPECTED)
def test_every_form_is_found_and_its_starter_passes_all_stages(program, name):
    dtype, family, expected = EXPECTED[name]
    model = program.directory / "forms.py"
    model.write_text(MODEL)
    program.ok("prepare", f"{model}:{name}", "--input-shape", "20,96", "--dtype", dtype, "--run-dir", program.run_dir)
    program.extract()
    found = dict.fromkeys(expected, 0)
    for path in sorted((program.run_dir / "tasks").glob(f"{family}_*")):
        options = json.loads((path / "task.json").read_text())["options"]
        for form in found:
            option, value = form.split("=")
            found[form] += options[option] == int(value)
        result = program("bench", path.name, "--run-dir", program.run_dir, "--note", "the starter", "--json")
        reply = json.loads(result.out.strip().splitlines()[-1])
        assert (options, reply["verdict"]) == (options, "kept"), reply["evidence"]
        assert reply["evidence"]["stages"] == [1, 2, 3, 4, 5]
    for form, least in expected.items():
        assert found[form] >= least, (form, found)
