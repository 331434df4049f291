"""A small family with its kernel, built where a test wants it: a run directory as an engine would leave it."""

import hashlib
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAGS = ["-O3", "-march=native", "-std=c++20", "-fno-exceptions", "-fno-rtti", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC",
         "-shared"]

KERNEL = """/*autokernel
family  = "tiny_norm"
backend = "cpu"

[tune]
ROWS = { values = [1, 2, 4], default = 1, tier = 1 }

[scratch.offset]
dtype = "float32"
shape = ["N"]

[[prepare]]
kernel = "prepare"
grid = ["1"]
args = ["weight", "offset", "N"]

[[launch]]
kernel = "rows"
grid   = ["cdiv(M, ROWS)"]
args   = ["x", "offset", "out", "M", "N", "x.stride(0)", "out.stride(0)", "eps"]
*/
#include <autokernel/cpu.h>
void prepare(int64_t, int64_t, void*, const float* weight, float* offset, int64_t n) {
  for (int64_t i = 0; i < n; ++i) offset[i] = weight[i];
}
AK_KERNEL(prepare)
void rows(int64_t block, int64_t, void*, const float* x, const float* weight, float* out, int64_t m, int64_t n, int64_t x_row, int64_t out_row,
          float eps) {
  for (int64_t row = block * ROWS; row < (block + 1) * ROWS && row < m; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[row * x_row + i] * x[row * x_row + i];
    const float scale = 1.0f / __builtin_sqrtf(sum / n + eps);
    for (int64_t i = 0; i < n; ++i) out[row * out_row + i] = x[row * x_row + i] * scale * weight[i] FACTOR;
  }
}
AK_KERNEL(rows)
"""

FAMILY = """name = "tiny_norm"
summary = "Root-mean-square normalisation, for tests."
dtypes = ["float32"]
flops = "4*M*N"
bytes = "8*M*N"
[[tensor]]
name = "x"
role = "data"
shape = ["M", "N"]
[[tensor]]
name = "weight"
role = "weight"
shape = ["N"]
[[tensor]]
name = "out"
role = "output"
shape = ["M", "N"]
[scalars]
eps = 1e-6
[[spelling]]
function = "by_hand"
labels = { x = ["*M", "N"], weight = ["N"], out = ["*M", "N"] }
scalars = ["eps"]
[stages]
sweep = [ { M = 1, N = 8 } ]
edges = [ { M = 3, N = 1 } ]
stability = ["large"]
"""

PATTERN = {
    "family": "tiny_norm", "spelling": "by_hand", "dtype": "float32", "options": {},
    "inputs": [{"name": "x", "labels": ["*M", "N"], "dtype": "float32"}, {"name": "weight", "labels": ["N"], "dtype": "float32"}],
    "nodes": [
        {"name": "pow_1", "op": "aten.pow.Tensor_Scalar", "args": {"self": {"input": "x"}, "exponent": 2}},
        {"name": "mean", "op": "aten.mean.dim", "args": {"self": {"node": "pow_1"}, "dim": [-1], "keepdim": True, "dtype": None}},
        {"name": "add", "op": "aten.add.Tensor", "args": {"self": {"node": "mean"}, "other": {"scalar": "eps"}, "alpha": 1}},
        {"name": "rsqrt", "op": "aten.rsqrt.default", "args": {"self": {"node": "add"}}},
        {"name": "mul", "op": "aten.mul.Tensor", "args": {"self": {"input": "x"}, "other": {"node": "rsqrt"}}},
        {"name": "mul_1", "op": "aten.mul.Tensor", "args": {"self": {"input": "weight"}, "other": {"node": "mul"}}}],
    "outputs": [{"node": "mul_1", "labels": ["*M", "N"], "name": "out"}],
}


def write_family(directory):
    """A directory of families for AUTOKERNEL_FAMILIES."""
    os.makedirs(os.path.join(directory, "tiny_norm"))
    with open(os.path.join(directory, "tiny_norm", "family.toml"), "w", encoding="utf-8") as file:
        file.write(FAMILY)
    return str(directory)


def task(m, n, eps=1e-6):
    """task.json of the family at one binding."""
    made = {
        "schema": "autokernel.task/1", "family": "tiny_norm", "spelling": "by_hand", "dtype": "float32",
        "tensors": [{"name": "x", "role": "data", "dtype": "float32", "shape": ["M", "N"]},
                    {"name": "weight", "role": "weight", "dtype": "float32", "shape": ["N"]},
                    {"name": "out", "role": "output", "dtype": "float32", "shape": ["M", "N"]}],
        "scalars": {"eps": eps}, "options": {},
        "workload": [{"dims": {"M": m, "N": n}, "strides": {"x": [n, 1], "weight": [1], "out": [n, 1]}, "calls": 1}],
        "sweep": [], "edges": [], "stability": [], "tolerance": {"k": 16}, "flops": "4*M*N", "bytes": "8*M*N",
        "reference": {"kind": "family", "family": "tiny_norm", "function": "reference"}}
    made["id"] = "tiny_norm_" + hashlib.sha256(json.dumps(made["workload"]).encode()).hexdigest()[:8]
    return made


def write_bundle(run, task, factor="", us=1.0, baseline_us=10.0, rows=2, architecture=""):
    """Compile the kernel and write its bundle; `factor` is code after the product, to make it wrong. Returns the bundle's directory."""
    directory = os.path.join(run, "bundles", task["id"])
    os.makedirs(directory, exist_ok=True)
    source = os.path.join(directory, "kernel.cpp")
    with open(source, "w", encoding="utf-8") as file:
        file.write(KERNEL.replace("FACTOR", factor))
    subprocess.run(["g++", *FLAGS, f"-DROWS={rows}", "-DT=float", f"-I{ROOT}/kernels/include", source, "-o", os.path.join(directory, "kernel.so")],
                   check=True)
    bundle = {"schema": "autokernel.bundle/1", "task": task, "kernel_file": "kernel.cpp", "module": "kernel.so", "backend": "cpu",
              "architecture": architecture, "point": {"ROWS": rows}, "speedup_vs_best": baseline_us / us, "us": us, "baseline_us": baseline_us,
              "replaces_us": baseline_us}
    _write(os.path.join(directory, "bundle.json"), bundle)
    _write(os.path.join(run, "patterns.json"), {"schema": "autokernel.patterns/1", "torch": "", "patterns": [PATTERN]})
    return directory


def _write(path, content):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
