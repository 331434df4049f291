"""The verdict `kb`: KernelBench's own evaluation, step by step (docs/formats/kernelbench.md), so that its scripts and this agree.

Its weaknesses are kept on purpose: one namespace for reference and solution, integer inputs cast to floats, public seeds. The verdict
`strict` is there for the rest. On the CPU, where the benchmark has no evaluation, the same is done by the host's clock.
"""

import contextlib
import importlib.util
import os
import statistics
import tempfile
import time
import traceback

import torch

from autokernel.kernelbench.problems import PRECISIONS, SEED

TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}  # relative and absolute
CORRECTNESS_TRIALS = 5
PERFORMANCE_TRIALS = {"cuda": 100, "cpu": 20}
EXCESSIVE_SPEEDUP = 10.0
_SOLUTION_WARM_UP, _BASELINE_WARM_UP = 3, 5
_DISCARDED = 1
_FLUSH_WORDS = {"cuda": 32 << 20, "cpu": 4 << 20}  # of 8 bytes
_AS_MODULES = ("triton",)  # backends whose solutions are imported from a file
_LONGEST_TEXT = 200


class Machine:
    """Where the evaluation runs."""

    def __init__(self, device, precision):
        self.device = torch.device(device)
        if self.device.type == "cuda":
            self.device = torch.device("cuda", self.device.index or 0)
            torch.cuda.set_device(self.device)
        self.dtype = PRECISIONS[precision]

    @property
    def name(self):
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"

    def synchronise(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seed(self, seed):
        torch.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def place(self, values):
        """Tensors on the device and in the precision, integers too."""
        return [value.to(dtype=self.dtype).to(device=self.device) if isinstance(value, torch.Tensor) else value for value in values]

    def put(self, model):
        return model.to(device=self.device, dtype=self.dtype)


def trial_seeds(count):
    """The seeds of the inputs of the correctness trials."""
    torch.manual_seed(SEED)
    return [torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(count)]


def evaluate(reference, solution, device, precision, backend, build_directory, trials=CORRECTNESS_TRIALS, timed=None):
    """The record of one sample, with the fields of the benchmark's eval_results.json and the reference's time beside them.

    `reference`, `solution`: texts. `timed`: calls that are timed, by default the benchmark's; 0 for correctness only.
    """
    machine = Machine(device, precision)
    timed = PERFORMANCE_TRIALS[machine.device.type] if timed is None else timed
    try:
        return _evaluate(reference, solution, machine, backend, build_directory, trials, timed)
    except Exception as error:  # as the benchmark's script records what its evaluation lets through
        kind = "cuda_error" if "CUDA error" in str(error) else "other_error"
        text = f"CUDA Error: {error}" if kind == "cuda_error" else f"error: {error}"
        return _record(False, False, {kind: text, f"{kind}_name": _error_name(error), "hardware": machine.name, "device": str(machine.device)})


def _evaluate(reference, solution, machine, backend, build_directory, trials, timed):
    metadata = {"hardware": machine.name, "device": str(machine.device)}
    names = {}
    exec(reference, names)
    machine.seed(SEED)
    arguments = machine.place(names["get_init_inputs"]())
    with torch.no_grad():
        machine.seed(SEED)
        original = names["Model"](*arguments)
    get_inputs = names["get_inputs"]
    try:
        made = _load(solution, names, backend, build_directory)
        machine.synchronise()
    except Exception as error:
        return _record(False, False, {**metadata, "compilation_error_name": _error_name(error), "compilation_error": str(error)})
    if made is None:
        text = "Syntax error in custom generated code or ModelNew not found"
        return _record(False, False, {**metadata, "compilation_error_name": "SyntaxError", "compilation_error": text})
    try:
        with torch.no_grad():
            machine.seed(SEED)
            custom = made(*arguments)
            original, custom = machine.put(original), machine.put(custom)
            machine.synchronise()
    except RuntimeError as error:
        return _record(True, False, {**metadata, "runtime_error": str(error), "runtime_error_name": _error_name(error)})
    record = _checked(original, custom, get_inputs, machine, metadata, trials)
    if timed:
        _time(record, original, custom, get_inputs, machine, timed)
    return record


def _record(compiled, correct, metadata):
    return {"compiled": compiled, "correctness": correct, "metadata": metadata, "runtime": -1.0, "runtime_stats": {}, "ref_runtime": -1.0, "ref_runtime_stats": {}}


def failed(text):
    """The record of a sample whose evaluation did not come to its end."""
    return _record(False, False, {"error": text})


def _error_name(error):
    return f"{type(error).__module__}.{type(error).__name__}"


# --- loading a solution


def _load(text, names, backend, build_directory):
    """The class ModelNew; None where the text does not parse or defines none."""
    os.environ["TORCH_USE_CUDA_DSA"] = "1"
    if backend in _AS_MODULES:
        return _import(text)
    os.environ["TORCH_EXTENSIONS_DIR"] = build_directory
    try:
        compiled = compile(text, "<string>", "exec")
    except SyntaxError:
        return None
    try:
        exec(compiled, names)  # among the reference's own names: so has the benchmark
    except SyntaxError:
        return None
    return names.get("ModelNew")


def _import(text):
    """From a file, since Triton reads its kernels' source; the file stays until the process ends."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location("temp_module", file.name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew


# --- correctness


def _checked(original, custom, get_inputs, machine, metadata, trials):
    try:
        return _check(original, custom, get_inputs, machine, metadata, trials)
    except Exception as error:
        return _record(True, False, {**metadata, "runtime_error": str(error), "runtime_error_name": _error_name(error)})


def _check(original, custom, get_inputs, machine, metadata, trials):
    passed, tolerance = 0, TOLERANCES[machine.dtype]
    with torch.no_grad():
        for seed in trial_seeds(trials):
            machine.seed(seed)
            inputs = machine.place(get_inputs())
            machine.seed(seed)
            original = machine.put(original)
            machine.seed(seed)
            custom = machine.put(custom)
            expected = original(*inputs)
            machine.synchronise()
            try:
                output = custom(*inputs)
                machine.synchronise()
                if expected.shape != output.shape:
                    text = f"Output shape mismatch: Expected {expected.shape}, got {output.shape}"
                    return _record(True, False, {**metadata, "correctness_issue": text, "correctness_issue_name": "correctness_issue"})
                if torch.allclose(expected, output, atol=tolerance, rtol=tolerance):
                    passed += 1
                else:
                    _note_difference(metadata, expected, output)
            except Exception as error:
                told = {"runtime_error": _shortened(str(error)), "runtime_error_name": _error_name(error), "runtime_error_traceback": traceback.format_exc()}
                return _record(True, False, {**metadata, **told})
    metadata["correctness_trials"] = f"({passed} / {trials})"
    return _record(True, passed == trials, metadata)


def _note_difference(metadata, expected, output):
    difference = torch.abs(expected - output)
    metadata.setdefault("max_difference", []).append(f"{torch.max(difference).item():.6f}")
    metadata.setdefault("avg_difference", []).append(f"{torch.mean(difference).item():.6f}")
    metadata["correctness_issue"] = "Output mismatch"


def _shortened(text):
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


# --- time


def _time(record, original, custom, get_inputs, machine, timed):
    """The solution's time where it is correct, and the reference's, in milliseconds."""
    if record["correctness"]:
        try:
            machine.synchronise()
            machine.seed(SEED)
            inputs = machine.place(get_inputs())
            record["runtime_stats"] = stats(times_ms(machine.put(custom), inputs, machine, _SOLUTION_WARM_UP, timed), machine)
            record["runtime"] = record["runtime_stats"]["mean"]
        except Exception as error:
            record["metadata"]["error_during_performance"] = str(error)
    machine.seed(SEED)
    inputs = machine.place(get_inputs())
    record["ref_runtime_stats"] = stats(times_ms(original, inputs, machine, _SOLUTION_WARM_UP, timed), machine)
    record["ref_runtime"] = record["ref_runtime_stats"]["mean"]
    if record["runtime"] > 0 and record["ref_runtime"] / record["runtime"] > EXCESSIVE_SPEEDUP:
        record["metadata"]["excessive_speedup"] = True


def times_ms(function, inputs, machine, warm_up, timed):
    """Times of calls with an emptied cache: by events on the current stream, or by the host's clock on the CPU."""
    clock = _event_ms if machine.device.type == "cuda" else _host_ms
    for _ in range(warm_up):
        function(*inputs)
        machine.synchronise()
    if machine.device.type == "cuda":
        torch.cuda.empty_cache()
    times = []
    for _ in range(timed + _DISCARDED):
        machine.synchronise()
        times.append(clock(function, inputs, machine))
    return times[_DISCARDED:]


def _flush(machine):
    torch.empty(_FLUSH_WORDS[machine.device.type], dtype=torch.int64, device=machine.device).fill_(SEED)


def _event_ms(function, inputs, machine):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    _flush(machine)
    begin.record()
    function(*inputs)
    end.record()
    torch.cuda.synchronize(machine.device)
    return begin.elapsed_time(end)


def _host_ms(function, inputs, machine):
    _flush(machine)
    begin = time.perf_counter()
    function(*inputs)
    return 1000 * (time.perf_counter() - begin)


def stats(times, machine):
    """As the benchmark writes them: milliseconds, to three digits."""
    mean = statistics.fmean(times)
    deviation = statistics.fmean((value - mean) ** 2 for value in times) ** 0.5
    named = {"mean": mean, "std": deviation, "min": min(times), "max": max(times)}
    return {**{name: float(f"{value:.3g}") for name, value in named.items()}, "num_trials": len(times), "hardware": machine.name, "device": str(machine.device)}


# --- what the reference needs, and what passes without a computation

BASELINES = {"eager": None, "compile": "default"}


def measure_baselines(reference, device, precision, timed=None):
    """{"eager": stats, "compile": stats} of the reference alone, without gradients; {"error"} where it cannot be compiled."""
    machine = Machine(device, precision)
    timed = PERFORMANCE_TRIALS[machine.device.type] if timed is None else timed
    return {kind: _baseline(reference, machine, mode, timed) for kind, mode in BASELINES.items()}


def _baseline(reference, machine, mode, timed):
    names = {}
    exec(reference, names)
    with torch.no_grad():
        machine.seed(SEED)
        inputs = machine.place(names["get_inputs"]())
        machine.seed(SEED)
        model = machine.put(names["Model"](*machine.place(names["get_init_inputs"]())))
        if mode is None:
            return stats(times_ms(model, inputs, machine, _BASELINE_WARM_UP, timed), machine)
        try:
            torch._dynamo.reset()
            model = torch.compile(model, backend="inductor", mode=mode)
            return stats(times_ms(model, inputs, machine, _BASELINE_WARM_UP, timed), machine)
        except Exception as error:  # eager is there still
            return {"error": f"{_error_name(error)}: {_shortened(str(error))}"}


def passing_null_candidates(reference, device, precision):
    """Names of the answers that compute nothing and pass all the same, each on the inputs of two seeds.

    They know the output for another seed, and its mean, as somebody who runs the reference once does.
    """
    machine = Machine(device, precision)
    names = {}
    exec(reference, names)
    with torch.no_grad():
        machine.seed(SEED)
        arguments = machine.place(names["get_init_inputs"]())
        machine.seed(SEED)
        model = machine.put(names["Model"](*arguments))
        first, second = trial_seeds(2)
        known, passing = _seen(model, names["get_inputs"], second, machine)[1], []
        for seed in (first, second):  # one after the other: inputs may fill the device
            inputs, expected = _seen(model, names["get_inputs"], seed, machine)
            passing.append(_passing(inputs, expected, known))
            known = expected
            del inputs, expected
    return sorted(set.intersection(*passing))


def _seen(model, get_inputs, seed, machine):
    machine.seed(seed)
    inputs = machine.place(get_inputs())
    machine.seed(seed)
    return inputs, model(*inputs)


def _passing(inputs, expected, known):
    tolerance = TOLERANCES.get(expected.dtype, 0.0)
    nulls = {"zeros": expected.new_zeros(()).expand(expected.shape), "another seed's output": known}
    if known.is_floating_point():
        nulls["the mean of another seed's output"] = known.mean(dtype=torch.float64).to(known.dtype).expand(expected.shape)
    for number, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            nulls[f"input {number}"] = value
    return {name for name, output in nulls.items() if _is_close(expected, output, tolerance)}


def _is_close(expected, output, tolerance):
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return False
    with contextlib.suppress(RuntimeError):
        return torch.allclose(expected, output, atol=tolerance, rtol=tolerance)
    return False
