"""The verb `verify`: is the model with its kernels put back right, are they really called, and is it faster?"""

import functools
import math
import os

import torch
from torch.utils import _pytree as pytree

from autokernel import device as devices
from autokernel import dynamo, paired, parity, runtime
from autokernel.baseline import SdpaSeen
from autokernel.capture import first_line
from autokernel.graph_json import write_json

SCHEMA = "autokernel.verification/1"
EAGER_GRAPH = "eager in a CUDA graph"
OFF = "replacement_off"  # the model with nothing replaced, the rest as it is with the kernels
_MODES = {"torch.compile": None}
# Captured here like all others, so without the graphs that these modes make themselves: on an H200 with PyTorch 2.11 those ended in a launch
# failure beside captured ones, and cost up to 0.2 ms of host time a call. `torch.compile` in a graph is what reduce-overhead stands for.
_CUDA_MODES = {"torch.compile max-autotune": "max-autotune-no-cudagraphs"}
_REST_OF = {"torch.compile": "inductor", "torch.compile max-autotune": "max-autotune", EAGER_GRAPH: "eager"}
_STALE = 0.1  # of the way from the results on other inputs
_SEEDS = (101, 202)  # of the input sets beside the model's own
_MAXIMUM_S = 60.0  # of the measurement that is reported
_TRIAL_S = 15.0  # of one that decides on taking a kernel out
_MAXIMUM_TRIALS = 6  # kernels that are taken out on trial


def verify(session, arguments, progress):
    """Write and return the verification of a run's bundles in the loaded model (docs/formats/verification.md)."""
    session.ways = None
    devices.release(session.require_loaded().device)
    verification = Verification(session.require_loaded(), arguments["run"], arguments.get("rounds") or 20, progress)
    with torch._dynamo.config.patch(recompile_limit=64, accumulated_recompile_limit=1024):
        result = verification.run(list(arguments.get("exclude") or ()))
    if arguments.get("path"):
        os.makedirs(os.path.dirname(os.path.abspath(arguments["path"])), exist_ok=True)
        write_json(arguments["path"], result)
    return result


class Variant:
    """The model compiled with the run's kernels, but for some."""

    def __init__(self, loaded, run, exclude, **options):
        self.exclude = list(exclude)
        self.report = dynamo.Report()
        compiler = functools.partial(dynamo.backend, report=self.report)
        self.call = torch.compile(entry_of(loaded.model), backend=compiler, dynamic=False, options={"run": run, "exclude": self.exclude, **options})

    def tasks(self):
        """Ids of the tasks whose kernels are in it, the one that saves least first."""
        saved = {}
        for entry in self.report.replaced:
            saved[entry["task"]] = saved.get(entry["task"], 0.0) + entry["replaces_us"] - entry["us"]
        return sorted(saved, key=saved.get)


def entry_of(model):
    """A function that calls the model, with a code object of its own: what Dynamo compiled for another is not looked at."""
    scope = {"model": model}
    exec("def entry(*args, **kwargs):\n    return model(*args, **kwargs)\n", scope)
    return scope["entry"]


class Verification:
    """One run's bundles in one model."""

    def __init__(self, loaded, run, rounds, progress):
        self.loaded = loaded
        self.device = loaded.device
        self.directory = run
        self.rounds = rounds
        self.progress = progress
        self.errors = {}
        self.rest = "inductor"  # one of dynamo.RESTS
        self.inputs = [(loaded.args, loaded.kwargs)] + [parity.other_inputs((loaded.args, loaded.kwargs), seed) for seed in _SEEDS]
        self.eager_outputs, self.references = [], []
        self.no_graph = {}  # name -> why it is timed as it is called

    def run(self, exclude):
        self.progress("Computing the model in float64")
        self._make_references()
        self.progress("Compiling the baselines")
        baselines = self._baselines()
        self.progress("Choosing how the rest of the model runs")
        self.rest, baselines[OFF] = self._fastest_rest(baselines)
        self.progress("Putting the kernels into the model")
        ours = self._variant(exclude)
        comparison = self._compare(ours)
        ours, comparison, taken_out = self._take_out(ours, comparison, baselines)
        self.progress("Measuring end to end")
        samples = self._measure({**baselines, "autokernel": ours.call}, _MAXIMUM_S)
        return self._result(ours, comparison, taken_out, samples)

    # --- what is compared

    def _call(self, function, inputs):
        args, kwargs = inputs
        with self.loaded.no_gradients():
            return function(*args, **kwargs)

    def _variant(self, exclude, **options):
        variant = Variant(self.loaded, self.directory, exclude, **{"rest": self.rest, **options})
        self._call(variant.call, self.inputs[0])
        return variant

    def _baselines(self):
        """{name: function}, compiled; what cannot be compiled is in `errors`."""
        made = {"eager": self.loaded.model}
        modes = _MODES if self.device.type == "cpu" else {**_MODES, **_CUDA_MODES}
        for name, mode in modes.items():
            try:
                function = torch.compile(entry_of(self.loaded.model), mode=mode, dynamic=False)
                self._call(function, self.inputs[0])
                made[name] = function
            except Exception as error:
                self.errors[name] = first_line(error)
        if self.device.type == "cuda":
            made[EAGER_GRAPH] = self.loaded.model
        return made

    # --- the rest of the model

    def _fastest_rest(self, baselines):
        """(name, function) of the fastest way to run the model without kernels: as the fastest baseline does, or with another attention."""
        names = self._rests(baselines)
        variants = {name: self._variant([], replace="none", rest=name) for name in names}
        right = {name: variant.call for name, variant in variants.items() if name == names[0] or self._compare(variant).holds}
        samples = self._measure(right, _TRIAL_S) if len(right) > 1 else {}
        gains = {name: paired.speedup(samples[names[0]], times) for name, times in samples.items() if name != names[0]}
        faster = [name for name in gains if gains[name][1] > 1.0]
        best = max(faster, key=lambda name: gains[name][0], default=names[0])
        return best, right[best]

    def _rests(self, baselines):
        """Ways worth trying, first that of the fastest baseline."""
        if self.device.type == "cpu":
            return ["inductor"]
        known = {name: rest for name, rest in _REST_OF.items() if name in baselines}
        samples = self._measure({name: baselines[name] for name in known}, _TRIAL_S)
        ranked = sorted(samples, key=lambda name: paired.median(samples[name]))
        names = [known[ranked[0]]] if ranked else ["inductor"]
        compiled = next((known[name] for name in ranked if known[name] != "eager"), None)
        if compiled and _calls_sdpa(self.loaded):
            names.append(compiled + dynamo.CUDNN)
        return names

    def _measure(self, functions, maximum_s):
        calls = {name: self._timed(name, function) for name, function in functions.items()}
        if self.no_graph.get(EAGER_GRAPH):  # it would be eager once more
            self.errors[EAGER_GRAPH] = self.no_graph[EAGER_GRAPH]
            calls.pop(EAGER_GRAPH, None)
        for call in calls.values():
            call()
        return paired.interleaved(calls, self.rounds, maximum_s, self.device)

    def _timed(self, name, function):
        """The call that is timed: on CUDA the replay of its graph, where there can be one, since host overhead is no kernel's merit."""
        call = functools.partial(self._call, function, self.inputs[0])
        if self.device.type == "cpu" or name == "eager":
            return call
        call, self.no_graph[name] = devices.in_graph(call, self.device, functools.partial(self._check_graph, function))
        return call

    @torch.no_grad()
    def _check_graph(self, function, replay):
        """Replay on other inputs, put where the captured ones lie: work that the graph does not hold would give stale results."""
        stale, fresh = (self._call(function, inputs) for inputs in self.inputs[:2])
        places, others = (_tensors(inputs) for inputs in self.inputs[:2])
        originals = [place.clone() for place in places]
        try:
            for place, other in zip(places, others):
                place.copy_(other)
            replayed = replay()
            same = all(_nearer(*leaves) for leaves in zip(_tensors(replayed), _tensors(fresh), _tensors(stale)))
        finally:
            for place, original in zip(places, originals):
                place.copy_(original)
        if not same:
            raise ValueError("its CUDA graph computes something else")

    # --- parity

    def _make_references(self):
        try:
            twin = parity.float64_twin(entry_of(self.loaded.model))
            self.references = [self._call(twin, inputs) for inputs in self.inputs]
        except Exception as error:
            self.errors["float64"] = first_line(error)
        self.eager_outputs = [self._call(self.loaded.model, inputs) for inputs in self.inputs]

    def _compare(self, variant):
        comparison = parity.Comparison()
        if not self.references:
            comparison.problems.append(f"the model cannot be computed in float64: {self.errors['float64']}")
            return comparison
        for inputs, eager, reference in zip(self.inputs, self.eager_outputs, self.references):
            comparison.add(self._call(variant.call, inputs), eager, reference)
        return comparison

    # --- kernels that do not pay

    def _take_out(self, ours, comparison, baselines):
        """Take kernels out while the model is wrong or does not gain by them: (variant, its comparison, [{"task", "reason"}])."""
        taken_out, trials = [], 0
        while ours.tasks() and trials < _MAXIMUM_TRIALS:
            gain = self._gain(baselines[OFF], ours.call)
            if comparison.holds and gain[1] > 1.0:
                return ours, comparison, taken_out
            better = None
            for task in ours.tasks():
                trials += 1
                self.progress(f"Trying without the kernel of {task}", trials, _MAXIMUM_TRIALS)
                better = self._better_without(task, ours, comparison)
                if better is not None or trials == _MAXIMUM_TRIALS:
                    break
            if better is None:
                break
            ours, comparison, reason = better
            taken_out.append({"task": task, "reason": reason})
        return self._without_any(ours, comparison, baselines, taken_out)

    def _without_any(self, ours, comparison, baselines, taken_out):
        """Where no kernel can be shown to pay, the model without: then it is level with the best baseline by what it is."""
        if not ours.tasks() or (comparison.holds and self._gain(baselines[OFF], ours.call)[1] > 1.0):
            return ours, comparison, taken_out
        reason = "the model does not gain by it" if comparison.holds else "the model's error was too large"
        taken_out += [{"task": task, "reason": reason} for task in ours.tasks()]
        without = self._variant([*ours.exclude, *ours.tasks()])
        return without, self._compare(without), taken_out

    def _better_without(self, task, ours, comparison):
        without = self._variant([*ours.exclude, task])
        compared = self._compare(without)
        if compared.holds and not comparison.holds:
            return without, compared, "the model's error was too large with it"
        faster = self._gain(ours.call, without.call)
        if comparison.holds and compared.holds and faster[1] > 1.0:
            return without, compared, f"the model is {100 * (faster[0] - 1):.1f} % faster without it"
        return None

    def _gain(self, baseline, function):
        samples = self._measure({"baseline": baseline, "function": function}, _TRIAL_S)
        return paired.speedup(samples["baseline"], samples["function"])

    # --- the result

    def _result(self, ours, comparison, taken_out, samples):
        replaced = self._replaced(ours)
        return {
            "schema": SCHEMA, "torch": torch.__version__.split("+")[0], "device": self.device.type, "threads": torch.get_num_threads(),
            "rounds": len(samples["autokernel"]),
            "median_us": _us(samples["autokernel"]), "vs": self._versus(samples),
            "max_error_over_eager_error": _finite(comparison.max_ratio), "norm_error_over_eager_error": _finite(comparison.norm_ratio),
            "parity": comparison.holds, "parity_problems": sorted(set(comparison.problems)), "input_sets": len(self.inputs),
            "rest": self.rest,
            "engaged": all(entry["calls"] == entry["regions"] for entry in replaced),
            "replaced": replaced, "regions_left": _counted(ours.report.left), "graphs": ours.report.graphs,
            "graphs_to_inductor": sorted(set(ours.report.fallbacks)), "excluded": [t for t in ours.exclude if t not in {e["task"] for e in taken_out}],
            "taken_out": taken_out,
            **({"no_graph": {name: why for name, why in self.no_graph.items() if why and name in samples}} if self.device.type == "cuda" else {}),
        }

    def _versus(self, samples):
        versus = {}
        for name, times in samples.items():
            if name != "autokernel":
                middle, low, high = paired.speedup(times, samples["autokernel"])
                versus[name] = {"speedup": middle, "ci_low": low, "ci_high": high, "median_us": _us(times)}
        return {**versus, **{name: {"error": self.errors[name]} for name in (*_CUDA_MODES, *_MODES, EAGER_GRAPH) if name in self.errors}}

    def _replaced(self, ours):
        """One entry a task: its regions, how often one forward calls them, and at which shapes."""
        before = {entry["instance"]: runtime.calls(entry["instance"]) for entry in ours.report.replaced}
        self._call(ours.call, self.inputs[0])
        called = {instance: runtime.calls(instance) - count for instance, count in before.items()}
        entries = {}
        for region in ours.report.replaced:
            entry = entries.setdefault(region["task"], {"task": region["task"], "family": region["family"], "regions": 0, "calls": 0,
                                                        "shapes": [], "us_saved": 0.0, "nodes": []})
            entry["regions"] += 1
            calls = called.pop(region["instance"], 0)  # equal call sites share an instance
            entry["calls"] += calls
            entry["us_saved"] += calls * (region["replaces_us"] - region["us"])
            entry["nodes"].append(region["node"])
            if region["inputs"] not in entry["shapes"]:
                entry["shapes"].append(region["inputs"])
        return sorted(entries.values(), key=lambda entry: -entry["us_saved"])


def _calls_sdpa(loaded):
    with SdpaSeen() as mode:
        loaded.call()
    return mode.seen


def _tensors(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _nearer(values, right, wrong):
    """Whether `values` are `right`, but for what a sum in another order makes, and not `wrong`."""
    values, right, wrong = (tensor.double().nan_to_num(1.5) for tensor in (values, right, wrong))
    return bool((values - right).norm() <= _STALE * (right - wrong).norm())


def _us(seconds):
    return 1e6 * paired.median(seconds)


def _finite(value):
    return value if math.isfinite(value) else None


def _counted(left):
    """Regions that were matched and not replaced, by family and reason."""
    counts = {}
    for region in left:
        key = (region["family"], region["task"], region["reason"])
        counts[key] = counts.get(key, 0) + 1
    return [{"family": family, "task": task, "reason": reason, "regions": count} for (family, task, reason), count in counts.items()]
