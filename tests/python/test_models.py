"""Loading models: the four ways to name one, inputs that fit, and errors that show the user's own fault."""

import json

import pytest
import torch

from autokernel import models
from autokernel.capture import capture
from autokernel.errors import WorkerError

IDS = """
    import torch
    from torch import nn

    class Ids(nn.Module):
        def __init__(self):
            super().__init__()
            self.kinds = nn.Embedding(2, 8)
            self.table = nn.Embedding(57, 8)
            self.place = nn.Embedding(16, 8)

        def forward(self, ids):
            kinds = torch.zeros_like(ids)
            return self.table(ids) + self.kinds(kinds) + self.place(torch.arange(ids.shape[1], device=ids.device))
"""

PLAIN = """
    import torch
    from torch import nn

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(self.layer(x))

    def pair():
        return Plain(), (torch.ones(3, 8),)

    def named():
        return Plain(), {"x": torch.ones(3, 8)}

    def alone():
        return Plain()

    def number():
        return 3
"""


def failure(*arguments, **more):
    with pytest.raises(WorkerError) as caught:
        models.load(*arguments, **more)
    return caught.value


def test_ids_are_drawn_from_the_vocabulary(model_file):
    loaded = models.load(f"{model_file(IDS)}:Ids", [4, 16], "float32")
    (ids,) = loaded.args
    assert ids.dtype == torch.int64 and ids.shape == (4, 16)
    assert 2 <= int(ids.max()) < 57 and int(ids.min()) >= 0
    assert loaded.describe()["output"] == [{"dtype": "float32", "shape": [4, 16, 8]}]


def test_a_lookup_without_an_embedding_module_is_found_too(model_file):
    path = model_file("""
        import torch
        class Table(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.rows = torch.nn.Parameter(torch.randn(31, 4))
            def forward(self, ids):
                return torch.nn.functional.embedding(ids, self.rows)
    """)
    (ids,) = models.load(f"{path}:Table", [64]).args
    assert 2 <= int(ids.max()) < 31


def test_floats_in_the_dtype_asked_and_in_evaluation_mode(model_file):
    loaded = models.load(f"{model_file(PLAIN)}:Plain", [3, 8], "bfloat16")
    assert loaded.args[0].dtype == torch.bfloat16 and not loaded.model.training
    assert loaded.describe() == {
        "parameters": 36,
        "inputs": [{"dtype": "bfloat16", "shape": [3, 8]}],
        "output": [{"dtype": "bfloat16", "shape": [3, 4]}],
        "warnings": [],
        "kind": "class",
    }


def test_the_seed_decides_weights_and_inputs(model_file):
    path = f"{model_file(PLAIN)}:Plain"
    first, again, other = (models.load(path, [3, 8], "float32", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.output, again.output) and torch.equal(first.args[0], again.args[0])
    assert not torch.equal(first.output, other.output) and not torch.equal(first.args[0], other.args[0])


@pytest.mark.parametrize("function", ["pair", "named"])
def test_a_function_gives_model_and_inputs(model_file, function):
    loaded = models.load(f"{model_file(PLAIN)}:{function}", None, "float16")
    assert loaded.kind == "factory" and loaded.output.dtype == torch.float16 and list(loaded.output.shape) == [3, 4]


def test_a_module_path_and_a_function_without_inputs(model_file, monkeypatch, tmp_path):
    model_file(PLAIN, "plain_module.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert models.load("plain_module:alone", [2, 8]).output.shape == (2, 4)


def test_an_import_error_shows_the_users_traceback_once(model_file):
    error = failure(f"{model_file('import torch' + chr(10) + 'x = [1]' + chr(10) + 'y = x[3]' + chr(10))}:Model", [1])
    assert error.kind == "user" and "IndexError: list index out of range" in error.message
    assert error.trace.count("Traceback") == 1 and 'model.py", line 3' in error.trace
    assert "models.py" not in error.trace and "importlib" not in error.trace


@pytest.mark.parametrize(
    ("name", "shape", "told"),
    [
        ("{file}:Missing", [1, 8], "It defines: Plain."),
        ("{file}:number", [1, 8], "must return a torch.nn.Module"),
        ("{file}:torch", [1, 8], "neither a module class nor a function"),
        ("{file}:Plain", None, "--input-shape"),
        ("{file}:Plain", [3, 7], "mat1 and mat2 shapes cannot be multiplied (3x7 and 8x4)"),
        ("{file}:Plain", [3, -8], "An input shape is a list of sizes"),
        ("{file}:Plain", [1 << 44, 8], "give a smaller --input-shape"),
        ("nowhere.py:Plain", [3, 8], "There is no file nowhere.py"),
        ("no_such_module_here:Plain", [3, 8], "ModuleNotFoundError"),
        ("Plain", [3, 8], "names no model"),
        ("hf:nowhere", [3, 8], "There is no config.json"),
    ],
)
def test_faults_of_the_user_are_named(model_file, name, shape, told):
    error = failure(name.format(file=model_file(PLAIN)), shape, "float32")
    assert error.kind == "user" and told in error.message


def test_an_unknown_dtype_or_device_is_named(model_file):
    path = f"{model_file(PLAIN)}:Plain"
    assert "Unknown dtype 'float33'" in failure(path, [3, 8], "float33").message
    assert "Unknown device 'tpu'" in failure(path, [3, 8], "float32", "tpu").message


OWN_DTYPES = """
    import torch
    from torch import nn

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.filter = nn.Parameter(torch.full((5,), 1 + 2j))

        def forward(self, x):
            return torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=8)

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.narrow = nn.Linear(8, 8), nn.Linear(8, 8).to(torch.bfloat16)

        def forward(self, x):
            return self.narrow(self.wide(x).to(torch.bfloat16))

    def narrow():
        return nn.Linear(8, 4).to(torch.bfloat16), torch.randn(3, 8)
"""


def test_complex_weights_stay_complex(model_file):
    loaded = models.load(f"{model_file(OWN_DTYPES)}:Spectral", [3, 8], "float32")
    assert loaded.model.filter.dtype == torch.complex64
    torch.testing.assert_close(loaded.model.filter.imag, torch.full((5,), 2.0))


def test_a_model_of_several_dtypes_keeps_them_and_says_so(model_file):
    loaded = models.load(f"{model_file(OWN_DTYPES)}:Mixed", [3, 8], "float32")
    assert loaded.model.narrow.weight.dtype == torch.bfloat16 and loaded.model.wide.weight.dtype == torch.float32
    assert "bfloat16, float32" in loaded.warnings[0]


def test_a_ready_model_that_is_cast_says_so(model_file):
    path = model_file(OWN_DTYPES)
    assert "--dtype bfloat16" in models.load(f"{path}:narrow", None, "float32").warnings[0]
    assert models.load(f"{path}:narrow", None, "bfloat16").warnings == []


def test_a_wrong_id_shape_reports_the_error_for_ids(model_file):
    error = failure(f"{model_file(IDS)}:Ids", [1, 17], "float32")
    assert "index out of range" in error.message and "model.py" in error.trace


def test_hugging_face_needs_transformers(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    try:
        import transformers  # noqa: F401

        pytest.skip("transformers is installed")
    except ImportError:
        error = failure(f"hf:{tmp_path}", [1, 8])
        assert error.kind == "environment" and "pip install transformers" in error.message


def test_nan_in_the_weights_is_a_warning(model_file):
    path = model_file("""
        import torch
        class Broken(torch.nn.Linear):
            def __init__(self):
                super().__init__(8, 4)
                self.weight.data[1, 2] = float("nan")
    """)
    loaded = models.load(f"{path}:Broken", [3, 8])
    assert len(loaded.warnings) == 1 and "NaN in the weights weight" in loaded.warnings[0]


NEEDS_GRADIENTS = """
    import torch
    class Slope(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)
        def forward(self, x):
            x = x * self.layer.weight
            return torch.autograd.grad((x * x).sum(), x)[0]
"""


def test_a_model_that_differentiates_runs_and_says_so(model_file):
    loaded = models.load(f"{model_file(NEEDS_GRADIENTS)}:Slope", [3, 8])
    assert loaded.needs_gradients and loaded.warnings == [
        "The model needs gradients in its forward pass: those graphs are left to Inductor."
    ]
    assert not loaded.output.requires_grad


DATA_DEPENDENT = """
    import torch
    class Branch(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)
        def forward(self, x):
            y = self.layer(x)
            if float(y.sum()) > 1e9:
                return y
            return torch.softmax(y, -1)
"""


def test_a_data_dependent_model_is_captured_in_parts(model_file):
    captured = capture(models.load(f"{model_file(DATA_DEPENDENT)}:Branch", [3, 8]))
    assert captured.method == "dynamo" and captured.reason
    ops = [node["op"] for graph in captured.graphs for node in graph.nodes]
    assert "aten.linear.default" in ops and "aten.softmax.int" in ops
    assert [graph.name for graph in captured.graphs] == [f"g{i}" for i in range(len(captured.graphs))]
    assert all(inputs is not None for inputs in captured.inputs)
