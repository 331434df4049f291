"""The verb `profile`: median time of each node of the captured graphs, and of the whole forward."""

import statistics

import torch
from torch.fx import Interpreter

from autokernel import device as devices
from autokernel.errors import describe, user_error
from autokernel.graph_json import write_json

WARM_UP = 2


def profile(session, arguments, progress):
    """Interpret each graph node by node with a clock around every node; the whole forward is timed as the model runs. All warm."""
    loaded, captured = session.require_loaded(), session.require_captured()
    iterations = max(1, int(arguments.get("iterations") or 20))
    device = loaded.device
    progress("Timing the whole forward", 0, len(captured.graphs) + 1)
    forward_us = _median_us(loaded.call, iterations, device)
    nodes = {}
    for position, (graph, inputs) in enumerate(zip(captured.graphs, captured.inputs)):
        progress(f"Timing the nodes of {graph.name}", position + 1, len(captured.graphs) + 1)
        nodes.update(_node_times(graph, inputs, iterations, device))
    total_us = sum(node["us"] * node["calls"] for node in nodes.values())  # shares of it add up to one, however busy the machine is
    profiled = {"device": device.type, "iterations": iterations, "forward_us": forward_us, "total_us": total_us, "nodes": nodes}
    write_json(arguments["path"], {"schema": "autokernel.profile/1", **profiled})
    return {"total_us": total_us, "nodes": len(nodes)}


def _median_us(call, iterations, device):
    samples = []
    for _ in range(iterations + WARM_UP):
        devices.synchronise(device)
        samples.append(devices.elapsed_us(device, call))
    return statistics.median(samples[WARM_UP:])


def _node_times(graph, inputs, iterations, device):
    if inputs is None:  # captured, but never called
        return {}
    arguments = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in (*graph.lifted, *inputs)]
    timer = _Timer(graph.module, devices.stopwatch(device))
    samples = {}
    with torch.no_grad():
        for iteration in range(iterations + WARM_UP):
            try:
                timer.run(*arguments)
            except Exception as error:
                raise user_error(f"The captured graph {graph.name} does not run: {describe(error)}", error) from error
            for name, us in timer.stopwatch.end().items():
                if iteration >= WARM_UP:
                    samples.setdefault(name, []).append(us)
    return {f"{graph.name}/{name}": {"us": statistics.median(times), "calls": 1} for name, times in samples.items()}


class _Timer(Interpreter):
    """Runs a graph with a clock around each node that computes."""

    def __init__(self, module, stopwatch):
        super().__init__(module)
        self.stopwatch = stopwatch

    def run_node(self, node):
        if node.op != "call_function":
            return super().run_node(node)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        return self.stopwatch.time(node.name, lambda: node.target(*args, **kwargs))
