"""Exported packages: loaded with nothing but PyTorch and the kernels package, called, differentiated, compiled, put into layers."""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import PROGRAM, Program

PYTHON = os.environ.get("AUTOKERNEL_PYTHON", sys.executable)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"))]
needs_kernels = pytest.mark.skipif(importlib.util.find_spec("kernels") is None, reason="the kernels package of Hugging Face is not installed")

MODEL = '''
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    """Enough of each family that none is left out as too small."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(torch.rand(192) + 0.5 for _ in range(12))
        self.up = nn.Linear(192, 256)

    def forward(self, x):
        for weight in self.weights:
            x = F.rms_norm(x, (192,), weight, 1e-6)
        return F.softmax(self.up(x), dim=-1)

def example():
    return Model().eval(), (torch.randn(64, 192),)
'''

LOADED = '''
import json, os, pathlib, sys
import kernels, torch
from torch import nn

assert not any(name.startswith("autokernel") for name in sys.modules)
tree, device = pathlib.Path(sys.argv[1]), sys.argv[2]
module = kernels.get_local_kernel(tree, backend=device)
dispatch = sys.modules[module.__name__ + "._dispatch"]
assert "autokernel" not in sys.modules
'''

ROWS = LOADED + '''
function, layer_class, make_layer = {
    "softmax": ("softmax", "Softmax", lambda: nn.Softmax(-1)),
    "rmsnorm": ("rmsnorm", "RMSNorm", lambda: nn.RMSNorm(192, eps=1e-6)),
    "matmul": ("matmul", "Linear", lambda: nn.Linear(192, 256)),
}[sys.argv[3]]
(kernel,) = dispatch.KERNELS[function]
torch.manual_seed(3)
layer = make_layer().to(device)
with torch.no_grad():
    for parameter in layer.parameters():
        parameter.copy_(torch.randn_like(parameter))
x = torch.randn(4, 16, 256 if function == "softmax" else 192, device=device)
arguments = {"softmax": (), "rmsnorm": (getattr(layer, "weight", None), None, 1e-6), "matmul": (getattr(layer, "weight", None), getattr(layer, "bias", None))}[function]
call = getattr(module, function)

def runs(x):
    """How often the kernel was called by the last call: its operator is in the profile."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call(x, *arguments)
    return sum(event.count for event in profile.key_averages() if event.key.endswith("::" + kernel.name))

with torch.no_grad():
    assert runs(x) == 1 and runs(x.reshape(64, -1)) == 1
    torch.testing.assert_close(call(x, *arguments), layer(x), rtol=1e-4, atol=1e-5)
    for other in (x[:, :3], x.double() if function == "softmax" else x[:, 1:], x.transpose(0, 1)):
        assert runs(other) == 0
        torch.testing.assert_close(call(other, *arguments), layer(other), rtol=1e-4, atol=1e-5)

kernels.replace_kernel_forward_from_hub(type(layer), layer_class)
(variant,) = (tree / "build").iterdir()
mapping = {layer_class: {device: kernels.LocalLayerRepository(repo_path=variant, layer_name=layer_class)}}
model, plain = (nn.Sequential(make_layer()).to(device) for _ in range(2))
for each in (model, plain):
    each[0].load_state_dict(layer.state_dict())
with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
    kernels.kernelize(model, mode=kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE, device=device, use_fallback=False)
call, arguments = model, ()
assert runs(x) == 1

def gradients(model):
    given = x.clone().requires_grad_()
    result = model(given)
    result.square().sum().backward()
    found = [result.detach(), given.grad, *(parameter.grad for parameter in model.parameters())]
    model.zero_grad()
    return found

expected = gradients(plain)
for got in (gradients(model), gradients(torch.compile(model, fullgraph=True))):
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
print(json.dumps({"passed": kernel.name}))
'''

INSTALLED = '''
import sys
sys.path.insert(0, sys.argv[1])
import torch, my_softmax
assert "autokernel" not in sys.modules
x = torch.randn(64, 256, device=sys.argv[2], requires_grad=True)
(kernel,) = sys.modules["my_softmax._dispatch"].KERNELS["softmax"]
torch.library.opcheck(kernel.operator, (x,))
torch.testing.assert_close(my_softmax.softmax(x), torch.softmax(x, -1))
exported = torch.export.export(torch.nn.Softmax(-1), (x.detach(),))
assert torch.compile(my_softmax.softmax, fullgraph=True)(x.detach()).shape == (64, 256)
'''


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By device: a run whose three starters are judged and kept."""

    @functools.cache
    def run(device):
        program = extracted(tmp_path_factory.mktemp(device), device)
        program.names = program.tasks()
        assert set(program.names) == {"softmax", "rmsnorm", "matmul"}
        return program

    return run


@pytest.fixture(params=DEVICES)
def kept_on(request, runs):
    return runs(request.param)


@pytest.fixture
def kept(runs):
    return runs("cpu")


def extracted(directory, device="cpu"):
    program = Program(directory)
    program.device = device
    program.model.write_text(MODEL)
    program.environment.update(OMP_NUM_THREADS="1")  # a thread that waits for another is what a busy machine makes slow
    program.ok("prepare", f"{program.model}:example", "--device", device, "--run-dir", program.run_dir)
    program.extract()
    return program


def bench(program, family):
    if not any(record["type"] == "trial" and record["task"] == program.names[family] for record in program.journal()):
        program.ok("bench", program.names[family], "--run-dir", program.run_dir, "--note", "the starter")


def outside(script, *arguments):
    """Run a script in a Python that knows nothing of this checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AUTOKERNEL")}
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path and not os.path.isdir(os.path.join(path, "autokernel"))]
    environment["PYTHONPATH"] = ":".join(paths)
    result = subprocess.run([PYTHON, "-c", script, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@needs_kernels
@pytest.mark.parametrize("family", ["softmax", "rmsnorm", "matmul"])
def test_tree_for_the_hub_loads_and_serves_a_layer(kept_on, tmp_path, family):
    bench(kept_on, family)
    tree = tmp_path / "tree"
    written = kept_on.last_json("export", family, tree, "--to", "hf", "--run-dir", kept_on.run_dir)
    assert written["name"] == f"ak-{family}" and [kernel["task"] for kernel in written["kernels"]] == [kept_on.names[family]]
    assert json.loads(outside(ROWS, tree, kept_on.device, family).splitlines()[-1])["passed"] == kept_on.names[family]
    for name in ("build.toml", "flake.nix", "README.md", "LICENSE", "benchmarks/benchmark.py", f"torch-ext/ak_{family}/__init__.py"):
        assert (tree / name).is_file()
    test = subprocess.run([PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", tree / "tests"], capture_output=True, text=True, check=False)
    assert test.returncode == 0, test.stdout
    card = (tree / "README.md").read_text()
    assert kept_on.names[family] in card and "95 % interval" in card and "PyTorch's own operations" in card


@needs_kernels
def test_tree_stands_aside_on_a_lesser_processor(kept, tmp_path):
    bench(kept, "softmax")
    tree = tmp_path / "tree"
    kept.ok("export", "softmax", tree, "--to", "hf", "--run-dir", kept.run_dir)
    for path in tree.rglob("_kernels.py"):
        path.write_text(path.read_text().replace("NEEDED = '", "NEEDED = 'quantum "))
    out = outside("import torch, warnings; warnings.simplefilter('error')\ntry:\n    " + LOADED.strip().replace("\n", "\n    ") +
                  "\nexcept UserWarning as warning:\n    print(warning)", tree, "cpu")
    assert "this machine lacks quantum; PyTorch's own operations are used instead" in out
    out = outside(LOADED + "x = torch.randn(64, 256)\ntorch.testing.assert_close(module.softmax(x), torch.softmax(x, -1))\nprint(dispatch.KERNELS)", tree, "cpu")
    assert "{'softmax': ()}" in out


def test_package_for_pip_works_without_autokernel(kept_on, tmp_path):
    bench(kept_on, "softmax")
    tree = tmp_path / "tree"
    written = kept_on.last_json("export", "softmax", tree, "--to", "torch", "--name", "my-softmax", "--run-dir", kept_on.run_dir)
    assert written["functions"] == ["softmax"]
    outside(INSTALLED, tree, kept_on.device)
    assert "my-softmax" in (tree / "pyproject.toml").read_text()


def test_bad_exports_say_what_to_do(kept, tmp_path):
    bench(kept, "softmax")
    untouched = Program(tmp_path)
    shutil.copytree(kept.run_dir, untouched.run_dir)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")

    def fails(*arguments):
        result = untouched("export", *arguments, "--run-dir", untouched.run_dir)
        assert result.returncode == 1, result.out
        return result.err

    assert "is not empty" in fails("softmax", tmp_path / "full", "--to", "hf")
    assert (tmp_path / "full" / "file").read_text() == "mine"
    assert "is no name of a package" in fails("softmax", tmp_path / "new", "--to", "hf", "--name", "My_Softmax")
    assert "is no repository" in fails("softmax", tmp_path / "new", "--to", "hf", "--push", "softmax")
    assert "use --to hf or --to torch" in fails("softmax", tmp_path / "new", "--to", "onnx")
    assert "its tasks are" in fails("nothing", tmp_path / "new", "--to", "hf")
    assert not (tmp_path / "new").exists()


def test_nothing_kept_is_not_exported(tmp_path):
    program = extracted(tmp_path)
    result = program("export", "softmax", tmp_path / "new", "--to", "hf", "--run-dir", program.run_dir)
    assert result.returncode == 1 and "no kernel of softmax" in result.err and "autokernel optimize" in result.err
    result = program("export", program.run_dir, tmp_path / "new", "--to", "torch")
    assert result.returncode == 1 and "no kernel that beats its baseline" in result.err
    assert not (tmp_path / "new").exists()


@needs_kernels
def test_push_without_a_token_leaves_the_tree_and_says_so(kept, tmp_path, monkeypatch):
    bench(kept, "softmax")
    kept.environment.update(HF_HOME=str(tmp_path / "hf"), HF_TOKEN="")
    result = kept("export", "softmax", tmp_path / "tree", "--to", "hf", "--run-dir", kept.run_dir, "--push", "someone/softmax")
    assert result.returncode == 1 and "there is no token" in result.err and "hf upload someone/softmax" in result.err
    assert (tmp_path / "tree" / "build.toml").is_file()
