"""Small inputs that broke other people's kernels, and what they ask of a family."""

import math

import torch

INF, NAN = math.inf, math.nan


def rows(*values):
    return torch.tensor(values)


def arange(*shape):
    return torch.arange(float(math.prod(shape))).reshape(shape)


def ones_but(values, count=4096):
    """One row of ones and these values, by place."""
    x = torch.ones(1, count, 1)
    for place, value in values.items():
        x[0, place] = value
    return x


def last_row_of_ones(m, n):
    x = torch.zeros(m, n)
    x[-1] = 1
    return x


# name: (family, options and scalars, inputs, the right answer, the typical wrong answer)
CASES = {
    "cross entropy, all ignored, mean": ("cross_entropy", {}, {"logits": rows([0.2, 1, 0.5], [0.1, 0.3, 0.6]), "targets": rows(-100, -100)}, NAN, 0.0),
    "cross entropy, all ignored, sum": ("cross_entropy", {"MEAN": 0}, {"logits": rows([0.2, 1, 0.5], [0.1, 0.3, 0.6]), "targets": rows(-100, -100)}, 0.0, NAN),
    "cross entropy, all ignored, none": (
        "cross_entropy", {"MEAN": 0, "REDUCED": 0, "PER_ROW": 1}, {"logits": rows([0.2, 1, 0.5], [0.1, 0.3, 0.6]), "targets": rows(-100, -100)},
        [0.0, 0.0], [NAN, NAN]),
    "cross entropy, one ignored": ("cross_entropy", {}, {"logits": rows([1.0, 2, 3], [9, 9, 9]), "targets": rows(2, -100)}, 0.4076060, 0.2038030),
    "cross entropy, a width between powers of two": ("cross_entropy", {}, {"logits": torch.full((1, 5), -10.0), "targets": rows(0)}, 1.6094379, 11.0986880),
    "cross entropy, rows apart": (
        "cross_entropy", {"MEAN": 0, "REDUCED": 0, "PER_ROW": 1},
        {"logits": rows([[0.0, 0, 0], [1, 0, 0]], [[2, 0, 0], [3, 0, 0]]).transpose(0, 1)[0], "targets": rows(0, 0)},
        [1.0986123, 0.2395448], [1.0986123, 0.5514447]),
    "softmax, half of it minus infinity": ("softmax", {}, {"x": torch.cat([torch.full((1, 1024), -INF), torch.zeros(1, 1024)], 1)},
                                           [[0.0] * 1024 + [1 / 1024] * 1024], [[NAN] * 2048]),
    "softmax, all of it minus infinity": ("softmax", {}, {"x": torch.full((1, 8), -INF)}, [[NAN] * 8], [[0.125] * 8]),
    "softmax, very wide": ("softmax", {}, {"x": torch.zeros(4, 393216)}, 1 / 393216, 0.0),
    "attention, causal, fewer queries than keys": (
        "flash_attention", {"CAUSAL": 1}, {"q": torch.zeros(1, 1, 2, 4), "k": torch.zeros(1, 1, 5, 4), "v": (1 + arange(5)).view(1, 1, 5, 1).repeat(1, 1, 1, 4)},
        [[[[1.0] * 4, [1.5] * 4]]], [[[[2.5] * 4, [3.0] * 4]]]),
    "attention, causal, more queries than keys": (
        "flash_attention", {"CAUSAL": 1}, {"q": torch.zeros(1, 1, 5, 4), "k": torch.zeros(1, 1, 2, 4), "v": (1 + arange(2)).view(1, 1, 2, 1).repeat(1, 1, 1, 4)},
        [[[[1.0] * 4] + [[1.5] * 4] * 4]], [[[[0.0] * 4] * 3 + [[1.0] * 4, [1.5] * 4]]]),
    "layernorm, far from zero": (
        "layernorm", {"HAS_WEIGHT": 0, "HAS_BIAS": 0}, {"x": rows([40000.0, 40001, 40002, 40003])},
        [[-1.3416354, -0.4472118, 0.4472118, 1.3416354]], [[NAN] * 4]),
    "layernorm, all equal": ("layernorm", {"HAS_WEIGHT": 0, "HAS_BIAS": 0}, {"x": torch.full((1, 256), 1234.0)}, [[0.0] * 256], [[NAN] * 256]),
    "matmul, thirteen bits": ("matmul", {}, {"x": torch.full((16, 16), 1 + 2.0**-12), "weight": torch.ones(16, 16)}, 16.00390625, 16.0),
    "rmsnorm, squares beyond float16": (
        "rmsnorm", {}, {"x": rows([300.0, -300, 300, -300]).half(), "weight": torch.ones(4).half()}, [[1.0, -1, 1, -1]], [[0.0] * 4]),
    "rmsnorm, eps 1e-5": ("rmsnorm", {"eps": 1e-5}, {"x": torch.full((1, 4), 1e-3), "weight": torch.ones(4)}, [[0.3015113] * 4], [[0.9900990] * 4]),
    "rmsnorm, eps 1e-6": ("rmsnorm", {"eps": 1e-6}, {"x": torch.full((1, 4), 1e-3), "weight": torch.ones(4)}, [[0.7071068] * 4], [[0.3015113] * 4]),
    "rotary embedding, neighbours": (
        "rotary_embedding", {"HALF_TABLE": 1, "INTERLEAVED": 1},
        {"x": rows([[[1.0, 2, 3, 4]]]), "cos": rows([0.0, 1]), "sin": rows([1.0, 0])}, [[[[-2.0, 1, 3, 4]]]], [[[[-3.0, 2, 1, 4]]]]),
    "rotary embedding, halves": (
        "rotary_embedding", {"HALF_TABLE": 1},
        {"x": rows([[[1.0, 2, 3, 4]]]), "cos": rows([0.0, 1]), "sin": rows([1.0, 0])}, [[[[-3.0, 2, 1, 4]]]], [[[[-2.0, 1, 3, 4]]]]),
    "rotary embedding, part of the row": (
        "rotary_embedding", {"HALF_TABLE": 1}, {"x": (1 + arange(8)).view(1, 1, 1, 8), "cos": rows([0.0, 1]), "sin": rows([1.0, 0])},
        [[[[-3.0, 2, 1, 4, 5, 6, 7, 8]]]], [[[[-5.0, 2, 3, 4, 1, 6, 7, 8]]]]),
    "sum over the middle": ("reduce", {}, {"x": arange(2, 3, 4)}, [[12.0, 15, 18, 21], [48, 51, 54, 57]], [[12.0, 48, 15, 51], [18, 54, 21, 57]]),
    "sum over the first": (
        "reduce", {}, {"x": arange(1, 2, 12)}, [[12.0, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34]], [[12.0, 20, 28, 14, 22, 30, 16, 24, 32, 18, 26, 34]]),
    "sum over nothing": ("reduce", {}, {"x": torch.zeros(2, 0, 3)}, [[0.0] * 3] * 2, [[7.0] * 3] * 2),
    "mean over nothing": ("reduce", {"OP": 1}, {"x": torch.zeros(2, 0, 3)}, [[NAN] * 3] * 2, [[0.0] * 3] * 2),
    "maximum with a NaN": ("reduce", {"OP": 2}, {"x": rows([[NAN], [6.0], [8.0]])}, [[NAN]], [[8.0]]),
    "product that leaves the range in between": ("reduce", {"OP": 6}, {"x": ones_but({0: 2.0**100, 64: 2.0**-100, 2048: 2.0**100, 2112: 2.0**-100})}, [[1.0]], [[INF]]),
    "more than 65535 rows": ("reduce", {}, {"x": last_row_of_ones(65537, 64).view(65537, 64, 1)}, [[0.0]] * 65536 + [[64.0]], 0.0),
}
DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.int64: "int64"}


def asked(table, settings, inputs):
    """(dtype, dims, options, scalars) of a case, by the family.toml of its family."""
    options, scalars = ({name: settings.get(name, value) for name, value in table.get(kind, {}).items()} for kind in ("options", "scalars"))
    dims = {}
    for tensor in table["tensor"]:
        if tensor["name"] in inputs:
            dims.update(zip(tensor["shape"], inputs[tensor["name"]].shape))
    return DTYPES[next(iter(inputs.values())).dtype], dims, options, scalars


def whole(answer, shape):
    """The right or wrong answer of a case in an output's shape."""
    values = torch.tensor(answer, dtype=torch.float64)
    return values.reshape(shape) if values.dim() else values.expand(shape)
