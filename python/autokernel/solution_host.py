"""The sandboxed child that holds a Python solution, or the reference that it is judged by: answers on descriptors 3 and 4.

What a solution says from here is hearsay: the judge keeps its own clock and reads the outputs itself (docs/formats/solution.md).
"""

import contextlib
import copy
import importlib.util
import json
import os
import sys
import time
import traceback

import torch
from torch.utils import _pytree as pytree

from autokernel import framing
from autokernel import solution_memory as memory

REQUESTS, REPLIES = 3, 4
_clock = time.perf_counter_ns  # as they are before anybody else's code runs
_synchronize, _Event = torch.cuda.synchronize, torch.cuda.Event
_WATCHED = [
    (time, "perf_counter"),
    (time, "perf_counter_ns"),
    (time, "time"),
    (time, "monotonic"),
    (torch, "allclose"),
    (torch, "equal"),
    (torch, "manual_seed"),
    (torch.cuda, "Event"),
    (torch.cuda, "synchronize"),
    (torch.cuda.Event, "record"),
    (torch.cuda.Event, "elapsed_time"),
    (torch.cuda.Event, "synchronize"),
    (torch.Tensor, "copy_"),
    (torch.Tensor, "data_ptr"),
    (os, "read"),
    (os, "write"),
    (json, "dumps"),
    (json, "loads"),
]


class Refused(Exception):
    """What the solution did that ends its judgement: a verdict, with a rule where it is cheating."""

    def __init__(self, verdict, message, rule="", trace=""):
        super().__init__(message)
        self.reply = {"verdict": verdict, "rule": rule, "message": message, "traceback": trace}


class Host:
    def __init__(self):
        self.device = self.dtype = self.module = self.namespace = None
        self.arena = memory.MappedArena()
        self.inputs, self.outputs, self.wide = [], [], []
        self.spec = self.drawn = self.result = self.previous = None
        self.watched = [getattr(*each) for each in _WATCHED]

    # --- both roles

    def open(self, device, dtype, tf32):
        self.device = torch.device(device)
        self.dtype = None if dtype is None else getattr(torch, dtype)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.zeros(1, device=self.device)
        return {"sandbox": os.environ.get("AUTOKERNEL_SANDBOX", "").split()}

    def load(self, path):
        """Execute a file of source; a solution's fault is a verdict."""
        spec = importlib.util.spec_from_file_location("solution", path)
        loaded = importlib.util.module_from_spec(spec)
        sys.modules["solution"] = loaded  # Triton and dataclasses look a function's module up
        self._theirs(lambda: spec.loader.exec_module(loaded), "does_not_compile")
        self.namespace = vars(loaded)
        return {}

    def build(self, entry, initial, state, seed):
        """Construct the module from the reference's constructor arguments, and give it the reference's parameters where they fit."""
        maker = self.namespace.get(entry)
        if not callable(maker):
            raise Refused("does_not_compile", f"the file has no class {entry}")
        arguments = torch.load(initial, weights_only=False, map_location=self.device)
        torch.manual_seed(seed)
        self.module = self._theirs(lambda: self._placed(maker(*arguments)), "crashed")
        return {"weights": self._take_weights(state) if state else "as made"}

    def attach(self, arena, inputs, input_offsets, spec, outputs=(), output_offsets=(), wide=(), wide_offsets=()):
        """Where the inputs, the outputs and (of the reference) the outputs in float64 lie."""
        data = self.arena.map(arena, self.device)
        tensors = iter(memory.views(data, [each for each in inputs if "dtype" in each], input_offsets))
        self.inputs = [next(tensors) if "dtype" in each else each["value"] for each in inputs]
        self.spec = pytree.treespec_loads(spec)
        self.outputs = memory.views(data, outputs, output_offsets)
        self.wide = memory.views(data, wide, wide_offsets)
        return {}

    def run(self, seed):
        """Call the module, write its outputs where the judge reads them, say when all is done."""
        torch.manual_seed(seed)
        arguments = pytree.tree_unflatten(self.inputs, self.spec)
        self._wait()
        result, us = self._timed(lambda: self.module(*arguments))
        leaves = pytree.tree_leaves(result)
        self._check_leaves(leaves)
        aliases = self._aliases(leaves)
        self.previous, self.result = self.result, leaves
        fits = self._matches(leaves)
        if fits:
            self._write(leaves)
        return {"us": us, "outputs": [_describe(leaf) for leaf in leaves], "written": fits, "aliases": aliases, "patched": self._patched()}

    def nothing(self):
        """What a call costs beside the module: everything but that, on the outputs of the last call."""
        torch.manual_seed(0)
        pytree.tree_unflatten(self.inputs, self.spec)
        self._wait()
        _, us = self._timed(lambda: None)
        self._write(self.result)
        return {"us": us}

    def recall(self):
        """Write the outputs of the call before the last once more: nobody may have changed them since."""
        self._write(self.previous)
        return {}

    # --- the reference only

    def reference(self, path, entry, directory, seed):
        """Load the reference, and leave its constructor's arguments and its parameters in `directory`."""
        self.load(path)
        for name in (entry, "get_inputs", "get_init_inputs"):
            if not callable(self.namespace.get(name)):
                raise Refused("does_not_compile", f"the reference has no {name}")
        torch.manual_seed(seed)
        initial = self._theirs(lambda: list(self.namespace["get_init_inputs"]()), "crashed")
        torch.save(initial, os.path.join(directory, "initial.pt"))
        self.build(entry, os.path.join(directory, "initial.pt"), None, seed)
        torch.save(self._state(), os.path.join(directory, "state.pt"))
        return {"parameters": sum(p.numel() for p in self._parameters())}

    def draw(self, seed):
        """New inputs; their description."""
        torch.manual_seed(seed)
        drawn = self._theirs(self._inputs_on_device, "crashed")
        leaves, spec = pytree.tree_flatten(tuple(drawn))
        self.drawn = [self._placed(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return {"inputs": [_describe(leaf) for leaf in self.drawn], "spec": pytree.treespec_dumps(spec)}

    def store(self):
        """Write what was drawn into the arena, where its tensors are attached."""
        for place, leaf in zip(self.inputs, self.drawn):
            if isinstance(leaf, torch.Tensor):
                _storage_of(place).copy_(_storage_of(leaf))
        self.drawn = None
        self._wait()
        return {}

    def outputs_of(self, seed):
        """What the module gives for the inputs attached now, whether it draws random numbers on the way, and whether it changes them."""
        copies = [[leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self.inputs] for _ in range(2)]
        leaves, others = (self._leaves_of(self.module, each, seed + more) for more, each in enumerate(copies))
        self._check_leaves(leaves)
        return {
            "outputs": [_describe(leaf) for leaf in leaves],
            "random": not _alike(leaves, others),
            "changes_inputs": not _alike(self.inputs, copies[0]),
        }

    def in_float64(self, seed):
        """The same from float64 arithmetic, where the module computes so."""
        wide = copy.deepcopy(self.module)
        wide = wide.double() if isinstance(wide, torch.nn.Module) else wide
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            leaves = self._leaves_of(wide, [_widened(leaf) for leaf in self.inputs], seed)
        except Exception as error:  # then the judge goes by the working precision, and says so
            return {"computed": False, "why": f"{type(error).__name__}: {error}"[:300]}
        finally:
            torch.set_default_dtype(before)
        for place, leaf in zip(self.wide, leaves):
            place.copy_(leaf)
        self._wait()
        return {"computed": True}

    # --- within

    def _leaves_of(self, module, inputs, seed):
        torch.manual_seed(seed)
        return pytree.tree_leaves(self._call(module, pytree.tree_unflatten(inputs, self.spec)))

    def _inputs_on_device(self):
        try:
            with self.device:
                return self.namespace["get_inputs"]()
        except torch.OutOfMemoryError:
            raise
        except Exception:  # a generator of the CPU's, for one
            return self.namespace["get_inputs"]()

    def _placed(self, thing):
        """A tensor or a module on the device; what floats, in the dtype asked for."""
        if isinstance(thing, torch.Tensor):
            thing = thing.detach()
            return thing.to(self.device, self.dtype) if thing.is_floating_point() else thing.to(self.device)
        if not isinstance(thing, torch.nn.Module):
            return thing
        return thing.to(self.device) if self.dtype is None else thing.to(self.device, self.dtype)

    def _parameters(self):
        return self.module.parameters() if isinstance(self.module, torch.nn.Module) else ()

    def _state(self):
        return self.module.state_dict() if isinstance(self.module, torch.nn.Module) else {}

    def _take_weights(self, path):
        """By name, else by order where all shapes agree; else both sides were made from the same seed, and that has to do."""
        given, own = torch.load(path, weights_only=True, map_location=self.device), self._state()
        if given.keys() == own.keys() and all(given[name].shape == own[name].shape for name in own):
            self.module.load_state_dict(given)
            return "by name"
        if given and [value.shape for value in given.values()] == [value.shape for value in own.values()]:
            self.module.load_state_dict(dict(zip(own, given.values())))
            return "by order"
        return "by seed"

    def _timed(self, call):
        if self.device.type != "cuda":
            begin = _clock()
            result = self._call(call)
            return result, (_clock() - begin) / 1000
        begin, end = _Event(enable_timing=True), _Event(enable_timing=True)
        begin.record()
        result = self._call(call)
        end.record()
        self._wait()
        return result, 1000 * begin.elapsed_time(end)

    def _call(self, module, arguments=()):
        with torch.no_grad():
            return self._theirs(lambda: module(*arguments), "crashed")

    def _theirs(self, call, verdict):
        """Run their code; its exceptions are theirs."""
        try:
            return call()
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise Refused("out_of_memory", f"{error}"[:500]) from error
        except Exception as error:
            memory_ended = "can't allocate memory" in str(error) or "out of memory" in str(error).lower()
            trace = "".join(traceback.format_exception(error)[-6:])[-3000:]
            text = f"{type(error).__name__}: {error}"[:2000]
            raise Refused("out_of_memory" if memory_ended else verdict, text, trace=trace) from error

    def _wait(self):
        if self.device.type == "cuda":
            _synchronize(self.device)

    def _check_leaves(self, leaves):
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                raise Refused("wrong", f"an output is of type {type(leaf).__name__}, which is no tensor")
            if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
                raise Refused("cheating", f"an output is of type {type(leaf).__name__}, which can compute when it is read", "lazy output")
            if leaf.device != self.device and self.device.index is not None or leaf.device.type != self.device.type:
                raise Refused("wrong", f"an output is on {leaf.device}, not on {self.device}")
            if leaf.layout != torch.strided:
                raise Refused("wrong", f"an output has the layout {leaf.layout}")

    def _aliases(self, leaves):
        """Which of the inputs and of the outputs before share memory with the outputs."""
        found = []
        if any(_overlap(leaf, other) for leaf in leaves for other in self.inputs if isinstance(other, torch.Tensor)):
            found.append("an input")
        if any(_overlap(leaf, other) for leaf in leaves for other in (*(self.result or ()), *(self.previous or ()))):
            found.append("an earlier output")
        return found

    def _matches(self, leaves):
        return len(leaves) == len(self.outputs) and all(
            leaf.shape == place.shape and leaf.dtype == place.dtype for leaf, place in zip(leaves, self.outputs)
        )

    def _write(self, leaves):
        for place, leaf in zip(self.outputs, leaves):
            place.copy_(leaf)
        self._wait()

    def _patched(self):
        return [f"{getattr(owner, '__name__', owner)}.{name}" for (owner, name), now in zip(_WATCHED, self.watched) if getattr(owner, name) != now]


def _describe(leaf):
    if isinstance(leaf, torch.Tensor):
        return memory.describe_tensor(leaf)
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return {"value": leaf}
    raise Refused("wrong", f"an input is of type {type(leaf).__name__}: tensors, numbers and texts can be handed over")


def _storage_of(tensor):
    """The elements from the first to the last, also those between."""
    if tensor.numel() == 0:
        return tensor.reshape(-1)
    return tensor.as_strided((1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())),), (1,))


def _widened(leaf):
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.to(torch.float64, copy=True) if leaf.is_floating_point() else leaf.clone()


def _alike(leaves, others):
    pairs = [pair for pair in zip(leaves, others) if isinstance(pair[0], torch.Tensor)]
    return all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs)


def _overlap(one, other):
    if one.numel() == 0 or other.numel() == 0:
        return False
    begin, end = _extent(one)
    other_begin, other_end = _extent(other)
    return begin < other_end and other_begin < end


def _extent(tensor):
    return tensor.data_ptr(), tensor.data_ptr() + _storage_of(tensor).numel() * tensor.element_size()


# --- the protocol


def main():
    """Greet, then answer until the judge closes its end."""
    os.dup2(2, 1)
    for descriptor in (REQUESTS, REPLIES):
        os.set_inheritable(descriptor, False)
    host = Host()
    framing.send(REPLIES, {"hello": "autokernel.solution_host"})
    while (request := framing.receive(REQUESTS)) is not None:
        try:
            reply = {"result": getattr(host, request["verb"])(**request["arguments"])}
        except Refused as refused:
            reply = {"refused": refused.reply}
        except (MemoryError, torch.OutOfMemoryError) as error:
            reply = {"refused": {"verdict": "out_of_memory", "rule": "", "message": f"{error}"[:500], "traceback": ""}}
        framing.send(REPLIES, reply)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
