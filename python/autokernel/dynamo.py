"""The Dynamo backend: regions of the graph that have a finished kernel are replaced, the rest goes to Inductor.

`torch.compile(model, backend="autokernel", options={"run": DIR})`. Nothing here may break a model: whatever goes wrong, whatever is not
static, and whatever needs a gradient is given to Inductor as it came, and the reason is logged once.
"""

import contextlib
import logging
import operator

import torch
from torch._dynamo.source import ConstantSource
from torch.nn.attention import SDPBackend, sdpa_kernel

from autokernel import library, runtime
from autokernel.bundles import Bundles, chosen_rest, left
from autokernel.capture import first_line

_log = logging.getLogger("autokernel")
_said = set()
_OWN_OPTIONS = {"run", "replace", "exclude", "rest"}
_CUDNN_FIRST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
CUDNN = ", cuDNN attention"  # ends the name of a way in which SDPA prefers cuDNN
RESTS = ("inductor", "max-autotune", f"inductor{CUDNN}", f"max-autotune{CUDNN}", "eager")  # ways to run what is not replaced


def backend(gm, example_inputs, *, options=None, mode=None, report=None):
    """Compile `gm` as Dynamo hands it over.

    options: `run`, a run directory (default: the user's data directory); `replace` = "none" takes the same path and replaces nothing;
    `exclude`, task ids not to use; `rest`, one of RESTS (default: what the run's verification found fastest); any other is Inductor's.
    `report`, a Report, is told what was replaced.
    """
    options = dict(options or {})
    patches = {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
    report = report if report is not None else Report()
    report.graphs += 1
    reason = _why_not(gm, example_inputs)
    if reason is None:
        try:
            replaced = _replace(gm, example_inputs, options, report)
            rest = options.get("rest") or chosen_rest(options.get("run"))
            return _compiled(replaced, example_inputs, rest, patches, mode)
        except Exception as error:  # whatever it is, the model must run
            reason = first_line(error)
            report.forget()
    report.fallbacks.append(reason)
    _say_once(f"the whole graph goes to Inductor: {reason}")
    return _inductor(gm, example_inputs, patches, mode)


class Report:
    """What happened to the graphs that a backend was given."""

    def __init__(self):
        self.replaced = []  # {"task", "family", "instance", "graph", "node", "dims", "inputs", "us", "replaces_us"}
        self.left = []  # {"family", "task", "graph", "node", "reason"}
        self.fallbacks = []  # reasons, one a graph that went to Inductor as a whole
        self.graphs = 0  # given to the backend

    def forget(self):
        """Nothing of the graph at hand was replaced after all."""
        self.replaced = [entry for entry in self.replaced if entry["graph"] != self.graphs]
        self.left = [entry for entry in self.left if entry["graph"] != self.graphs]


def _compiled(gm, example_inputs, rest, patches, mode):
    """What is not replaced, compiled in one of RESTS."""
    if rest not in RESTS:
        raise ValueError(f"the option `rest` is one of {', '.join(RESTS)}, not {rest}")
    if rest == "eager":
        return gm.forward
    mode = mode or ("max-autotune-no-cudagraphs" if rest.startswith("max-autotune") else None)
    with _cudnn_first() if rest.endswith(CUDNN) else contextlib.nullcontext():
        return _inductor(gm, example_inputs, patches, mode)


@contextlib.contextmanager
def _cudnn_first():
    """While AOT traces, SDPA becomes cuDNN's where that serves. The cache of traces does not know of it."""
    with sdpa_kernel(_CUDNN_FIRST, set_priority=True), torch._functorch.config.patch(enable_autograd_cache=False):
        yield


def _inductor(gm, example_inputs, patches, mode):
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx
    patches = {**(list_mode_options(mode) if mode else {}), **patches}
    return compile_fx(gm, example_inputs, config_patches=patches or None)


def _say_once(text):
    if text not in _said:
        _said.add(text)
        _log.warning("autokernel: %s", text)


# --- what is not served

def _why_not(gm, example_inputs):
    """A reason to leave the graph alone, or None."""
    try:
        tensors = [value for value in example_inputs if isinstance(value, torch.Tensor)]
        if _needs_gradient(gm, tensors):
            return "a gradient is needed, and kernels serve inference only (use torch.no_grad())"
        if len(tensors) < len(example_inputs) or any(_is_symbolic(value) for value in tensors):
            return "its shapes are dynamic (torch.compile(…, dynamic=False) compiles each shape for itself)"
        if any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")):
            return "autocast is on"
        devices = {value.device for value in tensors if value.dim()}  # a number may stay on the CPU
        if len(devices) > 1:
            return f"its tensors are on several devices: {', '.join(sorted(map(str, devices)))}"
        if any(device.type not in ("cpu", "cuda") for device in devices):
            return "it is neither on the CPU nor on a CUDA device"
        if any(type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) for value in example_inputs):
            return "it has tensors of a subclass"
    except Exception as error:
        return first_line(error)
    return None


def _is_symbolic(tensor):
    return any(not isinstance(size, int) for size in (*tensor.shape, *tensor.stride()))


def _needs_gradient(gm, example_inputs):
    turned_on = torch.is_grad_enabled() or any(n.target is torch._C._set_grad_enabled and n.args == (True,) for n in gm.graph.nodes)
    return turned_on and any(value.requires_grad for value in (*example_inputs, *gm.parameters(), *gm.buffers()))


# --- replacing regions

def _replace(gm, example_inputs, options, report):
    """The normalised graph of `gm`, with the calling convention of `gm`, in which the regions that have kernels are calls of them."""
    from autokernel.normalise import normalise
    graph = normalise(gm, example_inputs)
    if options.get("replace") != "none":
        library = Bundles(options.get("run"), options.get("exclude"))
        if library.nothing:
            _say_once(f"nothing is replaced: {library.nothing}")
        for region, bundle in library.choose(graph, report):
            _replace_region(graph, region, bundle, report)
    return _as_dynamo_graph(gm, graph)


def _replace_region(graph, region, bundle, report):
    call = call_site(graph, region, bundle)
    try:
        instance = runtime.open_instance(bundle.directory, call)
    except library.RuntimeFailure as error:  # a kernel for another processor, or a damaged file: the others still serve
        _say_once(f"a region goes to Inductor: {error}")
        report.left.append(left(region, report, str(error)))
        return
    inputs = [graph.fx_nodes[region["inputs"][spec["name"]]] for spec in call["inputs"]]
    outputs = [graph.fx_nodes[region["outputs"][spec["name"]]] for spec in call["outputs"]]
    fx = graph.module.graph
    position = {node: i for i, node in enumerate(fx.nodes)}
    replaced = sorted((graph.fx_nodes[name] for name in region["nodes"]), key=position.get)
    with fx.inserting_after(replaced[-1]):
        result = fx.call_function(runtime.operator(len(inputs), len(outputs)), (instance, *inputs))
    results = [result]
    if len(outputs) > 1:
        with fx.inserting_after(result):
            results = [fx.call_function(operator.getitem, (result, i)) for i in range(len(outputs))]
    for old, new in zip(outputs, results):
        new.meta["val"] = old.meta["val"]
        old.replace_all_uses_with(new)
        graph.fx_nodes[old.name] = new  # it may be the input of another region
    for node in reversed(replaced):
        fx.erase_node(node)
    report.replaced.append({"task": bundle.task["id"], "family": bundle.task["family"], "instance": instance, "graph": report.graphs,
                            "node": outputs[0].name, "dims": region["dims"], "inputs": {s["name"]: s["shape"] for s in call["inputs"]},
                            "us": bundle.us, "replaces_us": bundle.replaces_us})


def call_site(graph, region, bundle):
    """The call_json of ak_open. `site` tells apart call sites that are equal but for their weights, `device` those on several devices."""
    tensors = [t["name"] for t in bundle.task["tensors"] if t["role"] != "output" and not t.get("absent")]
    outputs = [t["name"] for t in bundle.task["tensors"] if t["role"] == "output" and not t.get("absent")]
    inputs = [_spec(name, graph.fx_nodes[region["inputs"][name]]) for name in tensors]
    device = next(iter(graph.fx_nodes[name] for name in region["inputs"].values())).meta["val"].device
    where = {"device": device.index} if device.type == "cuda" else {}
    return {"site": f"{graph.name}/{min(region['outputs'].values())}", **where, "inputs": inputs,
            "outputs": [_spec(name, graph.fx_nodes[region["outputs"][name]]) for name in outputs],
            "dims": region["dims"], "strides": region["strides"]}


def _spec(name, node):
    value = node.meta["val"]
    return {"name": name, "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "strides": list(value.stride())}


def _as_dynamo_graph(gm, graph):
    """Give the normalised graph the calling convention and the metadata of `gm`; what export lifted becomes a buffer."""
    module, fx = graph.module, graph.module.graph
    placeholders = [node for node in fx.nodes if node.op == "placeholder"]
    lifted, inputs = placeholders[:len(graph.lifted)], placeholders[len(graph.lifted):]
    originals = [node for node in gm.graph.nodes if node.op == "placeholder"]
    if len(inputs) != len(originals):
        raise ValueError(f"the normalised graph has {len(inputs)} inputs, Dynamo's {len(originals)}")
    sources = {**getattr(gm, "_param_name_to_source", {})}
    first = next(node for node in fx.nodes if node.op != "placeholder")
    for number, (node, tensor) in enumerate(zip(lifted, graph.lifted)):
        name = f"lifted_{number}"
        module.register_buffer(name, tensor.detach())
        sources[name] = ConstantSource(f"autokernel_{name}")
        with fx.inserting_before(first):
            node.replace_all_uses_with(fx.get_attr(name))
        fx.erase_node(node)
    for node in fx.nodes:
        node.meta = {key: value for key, value in node.meta.items() if key in ("stack_trace", "nn_module_stack")}
    for node, original in zip(inputs, originals):
        node.meta = {**original.meta}
        if hasattr(original, "_dynamo_source"):
            node._dynamo_source = original._dynamo_source
    module.meta = dict(gm.meta)
    if hasattr(gm, "_param_name_to_source"):
        module._param_name_to_source = sources
    fx.lint()
    module.recompile()
    return module
