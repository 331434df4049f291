"""Finished kernels on disk, and which of them serve which regions of a graph."""

import json
import os

from autokernel import installation, runtime

SCHEMA = "autokernel.bundle/1"
DEVICES = {"cpu": "cpu", "cuda": "cuda", "triton": "cuda"}  # the type of device that a backend's kernels run on
_EXACT_UP_TO = 14  # overlapping regions that are tried in every combination; more are taken by gain


class Bundle:
    """bundle.json of one finished kernel."""

    def __init__(self, directory):
        with open(os.path.join(directory, "bundle.json"), encoding="utf-8") as file:
            content = json.load(file)
        if content.get("schema") != SCHEMA:
            raise ValueError(f"{directory} is not of the format {SCHEMA}")
        self.directory = directory
        self.task = content["task"]
        self.backend = content["backend"]
        self.kernel_file, self.module, self.architecture = content["kernel_file"], content["module"], content["architecture"]
        self.device = DEVICES.get(self.backend, self.backend)
        self.us = float(content["us"])
        self.replaces_us = float(content["replaces_us"])

    @property
    def gain_us(self):
        """Time saved a call, as judged."""
        return self.replaces_us - self.us

    def why_not(self, region, graph):
        """A reason why this kernel does not serve the region, or None."""
        for name in ("family", "options", "scalars"):
            if region.get(name) != self.task.get(name):
                return f"made for other {name}"
        tensors = [tensor for tensor in self.task["tensors"] if not tensor.get("absent")]
        nodes = {**region["inputs"], **region["outputs"]}
        if {tensor["name"] for tensor in tensors} != set(nodes):
            return "made for other tensors"
        places = {graph.fx_nodes[node].meta["val"].device for node in nodes.values()}
        if {place.type for place in places} != {self.device}:
            return "made for another device"
        if len(places) > 1:
            return "its tensors are on several devices"
        for tensor in tensors:
            if str(graph.fx_nodes[nodes[tensor["name"]]].meta["val"].dtype) != f"torch.{tensor['dtype']}":
                return f"made for another dtype of {tensor['name']}"
            if tensor["role"] == "weight" and tensor["name"] not in region["constants"]:
                return f"{tensor['name']} is not the same in every forward"
        if not any(_same_binding(binding, region) for binding in self.task["workload"]):
            return "made for other shapes or strides"
        return None


def _same_binding(binding, region):
    """Equal dims, and equal strides where both say them; a tensor without strides is contiguous, and the runtime checks that."""
    if binding["dims"] != region["dims"]:
        return False
    known = binding.get("strides") or {}
    return all(known.get(name, strides) == strides for name, strides in region["strides"].items())


class Bundles:
    """The bundles of a run directory, or of the user's data directory, and the patterns that find where they fit."""

    def __init__(self, root=None, exclude=None):
        """`exclude`: task ids; by default those that the run's verification has taken out."""
        root = root or data_directory()
        exclude = taken_out(root) if exclude is None else exclude
        made = _read_all(os.path.join(root, "bundles"))
        self.nothing = None if made else f"there is no finished kernel in {root}"
        self.bundles = [bundle for bundle in made if bundle.task["id"] not in exclude]
        self.patterns_path = os.path.join(root, "patterns.json")

    def choose(self, graph, report):
        """[(region, bundle)]: the set of regions without overlap that leaves the least time, as far as times measured apart tell."""
        if not self.bundles:
            return []
        usable = []
        for region in runtime.match(_as_json(graph), self._patterns(), installation.families_directory()):
            bundle, reason = self._best(region, graph)
            if bundle is None:
                report.left.append(left(region, report, reason))
            else:
                usable.append((region, bundle))
        regions = [frozenset(region["nodes"]) for region, _ in usable]
        replaced = at_least_their_parts([(bundle.replaces_us, nodes) for (_, bundle), nodes in zip(usable, regions)])
        chosen = best_disjoint([(us - bundle.us, nodes) for us, (_, bundle), nodes in zip(replaced, usable, regions)])
        report.left += [left(region, report, "overlaps a region that saves more") for i, (region, _) in enumerate(usable) if i not in chosen]
        return [pair for i, pair in enumerate(usable) if i in chosen]

    def _patterns(self):
        """Those of the families and dtypes that have a kernel: a search for others would be for nothing."""
        with open(self.patterns_path, encoding="utf-8") as file:
            content = json.load(file)
        wanted = {(bundle.task["family"], bundle.task["dtype"]) for bundle in self.bundles}
        return {**content, "patterns": [pattern for pattern in content["patterns"] if (pattern["family"], pattern["dtype"]) in wanted]}

    def _best(self, region, graph):
        if not 1 <= len(region["inputs"]) <= runtime.MAX_INPUTS or not 1 <= len(region["outputs"]) <= runtime.MAX_OUTPUTS:
            return None, "more tensors than the operator takes"
        reasons = {id(bundle): bundle.why_not(region, graph) for bundle in self.bundles}
        fitting = [bundle for bundle in self.bundles if reasons[id(bundle)] is None and bundle.gain_us > 0]
        if fitting:
            return max(fitting, key=lambda bundle: bundle.gain_us), None
        same_family = [reasons[id(b)] or "saves nothing" for b in self.bundles if b.task["family"] == region["family"]]
        return None, same_family[0] if len(set(same_family)) == 1 else "no finished kernel"


def data_directory():
    """${XDG_DATA_HOME:-~/.local/share}/autokernel"""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "autokernel")


def taken_out(root):
    """Task ids whose kernels the verification of the run has taken out of the model."""
    path = os.path.join(root, "verification.json")
    if not os.path.exists(path):
        return ()
    with open(path, encoding="utf-8") as file:
        return [entry["task"] for entry in json.load(file).get("taken_out", ())]


def chosen_rest(root=None):
    """How what is not replaced runs fastest, as the verification of the run found."""
    path = os.path.join(root or data_directory(), "verification.json")
    if not os.path.exists(path):
        return "inductor"
    with open(path, encoding="utf-8") as file:
        return json.load(file).get("rest") or "inductor"


def best_disjoint(weighted):
    """Indices of the sets without overlap that weigh most together; the larger set wins a tie. `weighted`: [(weight, set)]."""
    chosen = set()
    for component in _components(weighted):
        if len(component) <= _EXACT_UP_TO:
            chosen |= _exact([], component, weighted, 0.0, 0)[2]
        else:
            chosen |= _greedy(component, weighted)
    return chosen


def at_least_their_parts(measured):
    """What a region takes, where regions inside it that do not overlap take more together: a part may have been measured as too slow, as it
    was alone. `measured`: [(us, set)]; the result in its order."""
    us = {}
    for i, (alone, nodes) in sorted(enumerate(measured), key=lambda entry: len(entry[1][1])):
        inside = [(us[j], other) for j, (_, other) in enumerate(measured) if other < nodes]
        us[i] = max(alone, sum(inside[j][0] for j in best_disjoint(inside)))
    return [us[i] for i in range(len(measured))]


def _components(weighted):
    """Groups of indices that overlap, directly or by way of others."""
    groups = []
    for i, (_, nodes) in enumerate(weighted):
        touching = [group for group in groups if group[1] & nodes]
        merged = ([i], set(nodes))
        for group in touching:
            merged = (group[0] + merged[0], group[1] | merged[1])
            groups.remove(group)
        groups.append(merged)
    return [sorted(indices) for indices, _ in groups]


def _exact(taken, rest, weighted, weight, size):
    if not rest:
        return weight, size, set(taken)
    first, others = rest[0], rest[1:]
    with_first = _exact(taken + [first], [i for i in others if not weighted[i][1] & weighted[first][1]], weighted,
                        weight + weighted[first][0], size + len(weighted[first][1]))
    without = _exact(taken, others, weighted, weight, size)
    return max(with_first, without, key=lambda result: result[:2])


def _greedy(component, weighted):
    taken, nodes = set(), set()
    for i in sorted(component, key=lambda i: (weighted[i][0], len(weighted[i][1])), reverse=True):
        if not nodes & weighted[i][1]:
            taken.add(i)
            nodes |= weighted[i][1]
    return taken


def _read_all(directory):
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    return [Bundle(os.path.join(directory, name)) for name in names if os.path.exists(os.path.join(directory, name, "bundle.json"))]


def _as_json(graph):
    return {"schema": "autokernel.graph/1", "torch": "", "capture": "dynamo", "graphs": [{"name": graph.name, "nodes": graph.nodes}]}


def left(region, report, reason):
    """The entry of Report.left for a region that no kernel serves."""
    return {"family": region["family"], "task": region.get("task"), "graph": report.graphs, "node": min(region["outputs"].values()), "reason": reason}
