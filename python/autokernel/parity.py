"""Whether a model computes as well as eager PyTorch does: both are compared with the same graph in float64."""

import torch
from torch.utils import _pytree as pytree

from autokernel.normalise import normalise

MAX_LIMIT = 2.0  # error of ours over eager's, in the largest element: honest variants reach 1.25
NORM_LIMIT = 1.25  # and in the norm
_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def float64_twin(entry):
    """`entry`, a function, such that every graph in it is computed in float64: casts inside the model included."""
    return torch.compile(entry, backend=_float64_backend, dynamic=False)


def _float64_backend(gm, example_inputs):
    graph = normalise(gm, example_inputs)
    for node in graph.module.graph.nodes:
        node.args = pytree.tree_map(_widen_dtype, node.args, is_leaf=_is_node)
        node.kwargs = pytree.tree_map(_widen_dtype, node.kwargs, is_leaf=_is_node)
    graph.module.recompile()
    lifted = [widen(tensor) for tensor in graph.lifted]

    def run(*inputs):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return graph.module(*lifted, *(widen(value) for value in inputs))
        finally:
            torch.set_default_dtype(before)

    return torch._dynamo.disable(run)


def _is_node(value):
    return isinstance(value, torch.fx.Node)


def _widen_dtype(value):
    return torch.float64 if value in _NARROW and isinstance(value, torch.dtype) else value


def widen(value):
    """A floating tensor in float64, anything else as it is."""
    return value.detach().to(torch.float64) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def other_inputs(inputs, seed):
    """Inputs of the same shapes and layouts, other values: normal with the same mean and deviation; integers in another order."""
    generator = torch.Generator().manual_seed(seed)
    return pytree.tree_map(lambda leaf: _other_tensor(leaf, generator) if isinstance(leaf, torch.Tensor) else leaf, inputs)


def _other_tensor(tensor, generator):
    if tensor.is_floating_point():
        values = tensor.double()
        mean, deviation = (values.mean().item(), values.std().item()) if tensor.numel() > 1 else (0.0, 1.0)
        if not 0 < deviation < float("inf"):
            return tensor.clone()
        made = torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * deviation + mean
    elif tensor.dtype == torch.bool or tensor.numel() < 2 or bool((tensor.flatten().diff() >= 0).all()):
        return tensor.clone()  # a mask or positions
    else:
        made = tensor.flatten()[torch.randperm(tensor.numel(), generator=generator)].reshape(tensor.shape)
    return torch.empty_like(tensor).copy_(made)


class Comparison:
    """The worst of what was seen over outputs and input sets."""

    def __init__(self):
        self.max_ratio = 0.0
        self.norm_ratio = 0.0
        self.problems = []

    @property
    def holds(self):
        return not self.problems and self.max_ratio <= MAX_LIMIT and self.norm_ratio <= NORM_LIMIT

    def add(self, ours, eager, reference):
        """Compare one call's outputs, each a tree of tensors."""
        ours, eager, reference = (pytree.tree_leaves(tree) for tree in (ours, eager, reference))
        if not len(ours) == len(eager) == len(reference):
            self.problems.append(f"{len(ours)} outputs for eager's {len(eager)}")
            return
        for position, (a, b, r) in enumerate(zip(ours, eager, reference)):
            if isinstance(b, torch.Tensor):
                self._add_tensor(f"output {position}", a, b, r)

    def _add_tensor(self, name, ours, eager, reference):
        if ours.dtype != eager.dtype or ours.shape != eager.shape:
            self.problems.append(f"{name} is {ours.dtype} {list(ours.shape)}, eager's {eager.dtype} {list(eager.shape)}")
        elif not eager.is_floating_point():
            if not torch.equal(ours, eager):
                self.problems.append(f"{name} has other integers than eager's")
        else:
            self._add_floats(name, ours, eager, reference)

    def _add_floats(self, name, ours, eager, reference):
        ours, eps = ours.double(), torch.finfo(eager.dtype).eps
        eager, reference = eager.double(), reference.double()
        finite = eager.isfinite()
        if not torch.equal(torch.nan_to_num(ours[~finite], 1.5), torch.nan_to_num(eager[~finite], 1.5)) or not bool(ours[finite].isfinite().all()):
            self.problems.append(f"{name} has NaN or infinities in other places than eager's")
            return
        finite &= reference.isfinite()
        ours, eager, reference = ours[finite], eager[finite], reference[finite]
        if reference.numel() == 0:
            return
        # Where eager is exact by luck, the rounding of the output itself is allowed.
        largest = max((eager - reference).abs().max().item(), eps / 2 * reference.abs().max().item())
        norm = max((eager - reference).norm().item(), eps / 4 * reference.norm().item())
        self.max_ratio = max(self.max_ratio, _ratio((ours - reference).abs().max().item(), largest))
        self.norm_ratio = max(self.norm_ratio, _ratio((ours - reference).norm().item(), norm))


def _ratio(error, yardstick):
    if yardstick > 0:
        return error / yardstick
    return 0.0 if error == 0 else float("inf")
