"""Judges a Python solution (a KernelBench `ModelNew`, a torch extension) against a reference, each in a sandboxed child (docs/formats/solution.md).

Three processes: this one keeps the clock, the expected values and the comparison; one child has the reference and draws inputs; one has
the solution. A round draws new inputs, has both compute, and compares, whether it is timed or not: a solution cannot tell which round counts.
"""

import argparse
import contextlib
import json
import os
import secrets
import statistics
import sys
import time

import torch

from autokernel import device as devices
from autokernel import models, paired
from autokernel import solution_memory as memory
from autokernel.errors import WorkerError, describe, user_error
from autokernel.solution_budget import Expected, compare, passing_null_answers
from autokernel.solution_child import Child, ReferenceChild, Refusal, find_sandbox

_MINIMUM_GAIN = 0.01
_FLUSH_BYTES = 256 << 20
_DECOYS = 16  # elements of an input that are put right only when the clock runs
_NEARLY_ONE_IN = 4  # rounds whose inputs are those of the round before but for a few elements
_CHANGED_SHARE = 0.002
_CALIBRATIONS = 15
_LEAST_TIMED_ROUNDS = 5
_DISAGREEMENT_US = 300.0  # between a child's own clock and ours, beyond what a call that does nothing shows
_DISAGREEMENT_SHARE = 0.5
_SLOWED = 1.25
_REMEMBERED_BYTES = 1 << 28  # of a solution's earlier outputs, kept to recognise one that comes again


def judge_solution(solution, reference, *, device="cpu", dtype=None, entry="ModelNew", seeds=5, rounds=25, seconds=10.0, limits=None, tf32=False, sandbox=None):
    """The verdict on a solution, as a dict that JSON can hold (docs/formats/solution.md).

    errors: WorkerError, of kind `user` for the reference or an argument, `environment` for the machine.
    """
    with SolutionJudge(reference, device=device, dtype=dtype, limits=limits, tf32=tf32, sandbox=sandbox) as judge:
        return judge.judge(solution, entry=entry, seeds=seeds, rounds=rounds, seconds=seconds)


class SolutionJudge:
    """Holds a reference in its child, and judges one solution after another by it, each in a child of its own."""

    def __init__(self, reference, *, device="cpu", dtype=None, limits=None, tf32=False, sandbox=None):
        """The arguments and errors of judge_solution."""
        if not os.path.isfile(reference):
            raise user_error(f"There is no file {reference}.")
        self.device = models.parse_device(device)
        self.limits = {"load_seconds": 300.0, "call_seconds": 60.0, "memory_bytes": _half_of_memory(), **(limits or {})}
        self.options = {"device": str(self.device), "dtype": dtype, "tf32": tf32}
        self.sandbox = find_sandbox(sandbox)
        self.oracle = _Oracle(ReferenceChild(self.sandbox, self.device, self.limits), self.device, self.limits)
        try:
            self.oracle.prepare(reference, self.options)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End the reference's child."""
        self.oracle.child.close()

    def judge(self, solution, *, entry="ModelNew", seeds=5, rounds=25, seconds=10.0):
        """The verdict on one solution."""
        if not os.path.isfile(solution):
            raise user_error(f"There is no file {solution}.")
        verdict = {
            "schema": "autokernel.solution/1",
            "trust": "lower",
            "verdict": "kept",
            "rule": "",
            "correct": False,
            "compiled": False,
            "device": str(self.device),
            "dtype": self.options["dtype"],
            **dict.fromkeys(("solution_us", "reference_us", "speedup", "ci_low", "ci_high")),
            "sandbox": [],
            "evidence": {},
        }
        with contextlib.closing(Child(self.sandbox, self.device, self.limits)) as child:
            trial = _Trial(self.oracle, child, verdict)
            try:
                trial.admit(solution, entry, self.options)
                trial.try_seeds(seeds)
                if rounds:
                    trial.time(rounds, seconds)
            except Refusal as refusal:
                verdict.update(verdict=refusal.verdict, rule=refusal.rule)
                verdict["evidence"].update(refusal.evidence)
        verdict["correct"] = verdict["verdict"] in ("kept", "slower")
        return verdict


class _Party:
    """A child with what lies in its arena, seen from here."""

    def __init__(self, child, device, limits):
        self.child, self.device, self.limits = child, device, limits
        self.inputs, self.outputs, self.wide = [], [], []
        self.flush = devices.Flush(device, _FLUSH_BYTES)
        self._attached = None

    def attach(self, inputs, spec, outputs=(), wide=()):
        """Agree with the child on where everything lies, unless that is settled."""
        if self._attached == (inputs, spec, outputs, wide):
            return
        tensors = [each for each in inputs if "dtype" in each]
        places, end = memory.place([*tensors, *outputs, *wide])
        described = self.child.arena.require(end)
        first, second = len(tensors), len(tensors) + len(outputs)
        at = {"input_offsets": places[:first], "output_offsets": places[first:second], "wide_offsets": places[second:]}
        self.child.ask("attach", arena=described, inputs=inputs, spec=spec, outputs=outputs, wide=wide, **at)
        data = self.child.arena.bytes
        self.inputs = [_whole(view) for view in memory.views(data, tensors, places[:first])]
        self.outputs = memory.views(data, outputs, places[first:second])
        self.wide = memory.views(data, wide, places[second:])
        self._attached = (inputs, spec, outputs, wide)

    def call(self, seed, verb="run", originals=None):
        """(the child's answer, microseconds until it came) of one call, the cache empty before it and the outputs poisoned.

        The child stands still until the clock runs; `originals` are written into its inputs meanwhile.
        """
        self.child.pause()
        hidden = [_hand_over(tensor, original) for tensor, original in zip(self.inputs, originals or self.inputs)]
        for tensor in self.outputs:
            _bytes(tensor).random_(0, 256)
        self.flush()
        devices.synchronise(self.device)
        arguments = {"seed": seed} if verb == "run" else {}
        begin = time.perf_counter_ns()
        for restore in hidden:
            restore()
        devices.synchronise(self.device)
        self.child.resume()
        self.child.send(verb, **arguments)
        reply = self.child.answer(self.limits["call_seconds"], verb)
        return reply, (time.perf_counter_ns() - begin) / 1000


class _Oracle(_Party):
    """The reference: draws inputs, and knows the outputs, in the working precision and in float64."""

    def __init__(self, child, device, limits):
        super().__init__(child, device, limits)
        self.described = self.spec = None  # of the inputs
        self.described_outputs, self.random, self.changes_inputs = [], False, False
        self.why_not_float64 = None
        self.overhead_us = 0.0

    def prepare(self, reference, options):
        """Load it, and measure what a call costs that does nothing."""
        directory = self.child.directory
        (directory / "reference.py").write_bytes(_read(reference))
        self.weights_seed = secrets.randbits(31)
        self.child.ask("open", self.limits["load_seconds"], **options)
        paths = {"path": str(directory / "reference.py"), "directory": str(directory)}
        self.child.ask("reference", self.limits["load_seconds"], entry="Model", seed=self.weights_seed, **paths)
        self.draw()
        self.call(secrets.randbits(31))
        self.overhead_us = statistics.median(self.call(0, "nothing")[1] for _ in range(_CALIBRATIONS))

    def draw(self):
        """New inputs in its arena; new places where their shapes are others."""
        drawn = self._ask_to_draw()
        if (drawn["inputs"], drawn["spec"]) != (self.described, self.spec):
            self.described, self.spec = drawn["inputs"], drawn["spec"]
            self.attach(self.described, self.spec)
            self.child.ask("store")
            found = self.child.ask("outputs_of", seed=secrets.randbits(31))
            self.described_outputs = [_dense(each) for each in found["outputs"]]
            self.random, self.changes_inputs = found["random"], found["changes_inputs"]
            self.attach(self.described, self.spec, self.described_outputs, self._described_wide())
            self._ask_to_draw()
        self.child.ask("store")

    def change_a_little(self):
        """Other values at a few places of the inputs before: who looks at some elements only believes that they are the same."""
        for tensor in self.inputs:
            if tensor.numel() > 1 and tensor.is_floating_point():
                count = max(1, int(tensor.numel() * _CHANGED_SHARE))
                to, source = (torch.randint(tensor.numel(), (count,), device=self.device) for _ in range(2))
                tensor[to] = tensor[source].clone()

    def in_float64(self, seed):
        """The outputs in float64, or None for each."""
        if self.random:
            self.why_not_float64 = "its forward draws random numbers"
        if self.why_not_float64 is None:
            reply = self.child.ask("in_float64", seed=seed)
            self.why_not_float64 = reply.get("why")
        return self.wide if self.why_not_float64 is None else [None] * len(self.outputs)

    def shaped_inputs(self):
        """The inputs as the model sees them."""
        described = [each for each in self.described if "dtype" in each]
        return [whole.as_strided(each["shape"], each["strides"]) for whole, each in zip(self.inputs, described)]

    def _ask_to_draw(self):
        return self.child.ask("draw", seed=secrets.randbits(31))

    def _described_wide(self):
        if self.random:
            return []
        return [{**each, "dtype": "float64"} if memory.dtype_of(each).is_floating_point else each for each in self.described_outputs]


class _Trial:
    """One solution before the oracle; every fault is a Refusal."""

    def __init__(self, oracle, child, verdict):
        self.oracle, self.party = oracle, _Party(child, oracle.device, oracle.limits)
        self.verdict, self.evidence = verdict, verdict["evidence"]
        self.earlier = []  # outputs of the solution
        self.round = 0

    def admit(self, solution, entry, options):
        """Load the solution; only now does its code run, and its process never sees the reference."""
        child, seconds = self.party.child, self.oracle.limits["load_seconds"]
        self.verdict["sandbox"] = child.ask("open", seconds, **options)["sandbox"]
        for name in ("initial.pt", "state.pt"):
            (child.directory / name).write_bytes((self.oracle.child.directory / name).read_bytes())
        (child.directory / "solution.py").write_bytes(_read(solution))
        child.ask("load", seconds, path=str(child.directory / "solution.py"))
        self.verdict["compiled"] = True
        files = {"initial": str(child.directory / "initial.pt"), "state": str(child.directory / "state.pt")}
        self.evidence["weights"] = child.ask("build", seconds, entry=entry, seed=self.oracle.weights_seed, **files)["weights"]

    def try_seeds(self, seeds):
        """Rounds without a clock."""
        for _ in range(seeds):
            self._round()

    def time(self, rounds, seconds):
        """Rounds with a clock, until there are enough or the time is over, and what they say."""
        reference, solution = [], []
        begin = time.monotonic()
        while len(solution) < rounds:
            times = self._round()
            reference.append(times[self.oracle])
            solution.append(times[self.party])
            if time.monotonic() - begin > seconds and len(solution) >= _LEAST_TIMED_ROUNDS:
                break
        self._compare_clocks(reference, solution)
        if self.oracle.device.type == "cuda":
            self._compare_with_alone(reference)
        self._conclude(reference, solution)

    def _conclude(self, reference, solution):
        """By both clocks, and the one counts that is less kind to the solution."""
        inside = [[own for own, _ in pairs] for pairs in (reference, solution)]
        outside = [[self._outside(pair) for pair in pairs] for pairs in (reference, solution)]
        by_inside, by_outside = paired.speedup(*inside), paired.speedup(*outside)
        theirs, ours = inside if by_inside[0] < by_outside[0] else outside
        speedup, low, high = min(by_inside, by_outside)
        times = {"solution_us": paired.median(ours), "reference_us": paired.median(theirs), "speedup": speedup, "ci_low": low, "ci_high": high}
        self.verdict.update(times, verdict="kept" if low > 1 + _MINIMUM_GAIN else "slower")
        self.evidence.update(samples_us=ours, reference_samples_us=theirs)
        self.evidence.update(speedup_by_own_clock=by_inside[0], speedup_by_outside_clock=by_outside[0])

    def _compare_clocks(self, reference, solution):
        """The child's own clock may not leave out work that ours sees, beyond what it leaves out of the reference's rounds."""
        unseen = [[self._outside(pair) - pair[0] for pair in pairs] for pairs in (reference, solution)]
        spread = _quantile(unseen[0], 0.9) - _quantile(unseen[0], 0.1)
        typical, own_us = _quantile([ours - theirs for theirs, ours in zip(*unseen)], 0.25), statistics.median(own for own, _ in solution)
        self.evidence.update(overhead_us=self.oracle.overhead_us, unseen_us=typical)
        if typical > max(_DISAGREEMENT_US, _DISAGREEMENT_SHARE * own_us, spread):
            raise Refusal("cheating", f"its own clock says {own_us:.0f} us a call, ours {own_us + typical:.0f} us", "clocks disagree")

    def _compare_with_alone(self, reference):
        """What a solution leaves running on a GPU slows the reference; without the solution's process it is as fast as it is."""
        self.party.child.close()
        self.oracle.call(0)
        alone = statistics.median(_microseconds(self.oracle.call(0)[0]) for _ in range(_LEAST_TIMED_ROUNDS))
        beside = statistics.median(own for own, _ in reference)
        self.evidence["reference_alone_us"] = alone
        if beside > _SLOWED * alone + _DISAGREEMENT_US:
            raise Refusal("cheating", f"the reference takes {alone:.0f} us, and {beside:.0f} us beside the solution", "slows the reference")

    def _outside(self, pair):
        return max(pair[1] - self.oracle.overhead_us, 1e-3)

    def _round(self):
        """New inputs, both answers, the comparison. {party: (microseconds by its own clock, by ours)}."""
        oracle, party = self.oracle, self.party
        if self.round % _NEARLY_ONE_IN == _NEARLY_ONE_IN - 1:
            oracle.change_a_little()
        else:
            oracle.draw()
        party.attach(oracle.described, oracle.spec, oracle.described_outputs)
        seed = secrets.randbits(31)
        replies, times = {}, {}
        replies[party], outside = party.call(seed, originals=oracle.inputs)
        times[party] = (_microseconds(replies[party]), outside)
        got = [view.clone() for view in party.outputs]
        party.child.pause()
        wide = oracle.in_float64(seed)  # before the reference, which may change its inputs; after the solution, which cannot find it so
        replies[oracle], outside = oracle.call(seed)
        times[oracle] = (_microseconds(replies[oracle]), outside)
        party.child.resume()
        self.round += 1
        self.evidence["rounds"] = self.round
        self._check_manners(replies[party], replies[oracle])
        self._check_answer(got, [Expected(*each) for each in zip(oracle.outputs, wide)])
        if not oracle.changes_inputs:
            self._check_inputs()
        if not replies[oracle]["aliases"]:
            self._check_nothing_moves()
        self._remember(got)
        return times

    def _check_manners(self, reply, references):
        if reply.get("patched"):
            raise Refusal("cheating", f"it replaced {', '.join(map(str, reply['patched']))}", "tampering with the judge")
        for what in reply.get("aliases", ()):
            if what not in references["aliases"]:
                raise Refusal("cheating", f"an output shares memory with {what}", f"output aliases {what}")
        if not reply.get("written"):
            made, wanted = ([(each.get("dtype"), each.get("shape")) for each in list_] for list_ in (reply.get("outputs", ()), self.oracle.described_outputs))
            raise Refusal("wrong", f"its outputs are {made}, the reference's {wanted}")

    def _check_answer(self, got, expected):
        self.evidence["oracle"] = "float64" if self.oracle.why_not_float64 is None else f"eager: {self.oracle.why_not_float64}"
        for position, (ours, each) in enumerate(zip(got, expected)):
            fault = compare(f"output {position}", ours, each)
            if fault is not None:
                remembered = any(_same(got, before) for before in self.earlier)
                verdict, rule = ("cheating", "remembered answer") if remembered else ("wrong", "")
                raise Refusal(verdict, f"output {position} of round {self.round} is wrong", rule, **fault)
        if self.round == 2:  # there is an answer to other data now
            self.evidence["null_candidates"] = passing_null_answers(expected, self.oracle.shaped_inputs(), self.earlier[-1])

    def _check_inputs(self):
        for position, (theirs, original) in enumerate(zip(self.party.inputs, self.oracle.inputs)):
            if not torch.equal(_bytes(theirs), _bytes(original)):
                raise Refusal("changed_input", f"input {position} is not what it was before the call")

    def _check_nothing_moves(self):
        """Outputs of the round before are still what they were, now that other inputs lie where theirs lay."""
        if self.earlier:
            self.party.child.ask("recall")
            if not _same(self.party.outputs, self.earlier[-1]):
                raise Refusal("cheating", "an output of an earlier call has changed since", "output changes after its call")

    def _remember(self, got):
        size = sum(each.numel() * each.element_size() for each in got)
        self.earlier = [*self.earlier, got][-max(1, _REMEMBERED_BYTES // max(size, 1)) :]


def _hand_over(tensor, original):
    """Write the original, but for some places; a function that puts those right. A GPU does not stand still with its process."""
    if original.numel() < 4 * _DECOYS or not original.is_floating_point():
        if tensor is not original:
            tensor.copy_(original)
        return lambda: None
    places = torch.randint(original.numel(), (_DECOYS,), device=original.device)
    right = original[places].clone()
    original[places] = original[torch.randint(original.numel(), (_DECOYS,), device=original.device)].clone()
    if tensor is not original:
        tensor.copy_(original)
        original[places] = right

    def restore():
        tensor[places] = right

    return restore


def _whole(tensor):
    """All elements that a view spans, in a row."""
    span = 0 if tensor.numel() == 0 else 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((span,), (1,))


def _bytes(tensor):
    return tensor.view(-1).view(torch.uint8)


def _same(tensors, others):
    """Bit by bit."""
    return all(torch.equal(_bytes(one), _bytes(other)) for one, other in zip(tensors, others))


def _dense(described):
    return memory.describe_tensor(torch.empty(described["shape"], dtype=memory.dtype_of(described), device="meta"))


def _microseconds(reply):
    """A child's own time: a number above 0, whatever it says."""
    us = reply.get("us")
    return float(us) if isinstance(us, (int, float)) and us > 1e-3 else 1e-3


def _quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def _half_of_memory():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def main():
    """`python -m autokernel.solution FILE REFERENCE`; the exit code is that of `autokernel bench`."""
    parser = argparse.ArgumentParser(prog="autokernel bench --solution", description=__doc__.splitlines()[0])
    parser.add_argument("solution")
    parser.add_argument("reference")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--entry", default="ModelNew")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    try:
        verdict = judge_solution(options.pop("solution"), options.pop("reference"), **options)
    except WorkerError as error:
        print(json.dumps({"error": {"kind": error.kind, "message": error.message, "traceback": error.trace}}) if as_json else error.message)
        return 4 if error.kind == "environment" else 1
    except OSError as error:
        print(json.dumps({"error": {"kind": "environment", "message": describe(error), "traceback": None}}) if as_json else describe(error))
        return 4
    print(json.dumps(verdict) if as_json else _text(verdict))
    return 0 if verdict["verdict"] == "kept" else 3


def _text(verdict):
    rule = f" ({verdict['rule']})" if verdict["rule"] else ""
    lines = [f"{verdict['verdict']}{rule}  (trust: {verdict['trust']}; confined by {', '.join(verdict['sandbox']) or 'nothing'})"]
    if verdict["speedup"] is not None:
        interval = f"{verdict['speedup']:.3f}x ({verdict['ci_low']:.3f} to {verdict['ci_high']:.3f})"
        lines.append(f"  {verdict['solution_us']:.1f} us, the reference {verdict['reference_us']:.1f} us: {interval}")
    lines += [f"  {key}: {verdict['evidence'][key]}" for key in ("message", "worst", "null_candidates") if verdict["evidence"].get(key)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
