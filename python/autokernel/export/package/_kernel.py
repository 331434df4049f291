"""A kernel as PyTorch sees it: an operator with the shapes of its results, and with a backward pass by PyTorch's own operations."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Spec:
    """A tensor of the contract. units: strides in elements. `folds`: its first dim stands for any number of leading dims. `limit`: integers are below it."""

    name: str
    dtype: torch.dtype
    shape: tuple
    strides: tuple
    folds: bool
    limit: int


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One tuned kernel and the only call that it serves."""

    name: str
    device: str
    capability: tuple | None  # of the GPU that it was compiled for
    inputs: tuple
    outputs: tuple
    scalars: dict
    options: dict
    operator: object = None

    def runs_on(self, device):
        if device.type != self.device or torch.is_autocast_enabled(device.type):
            return False
        return self.capability is None or capability(device.index) == self.capability


@torch.compiler.assume_constant_result
def capability(index):
    """(major, minor) of a GPU."""
    return torch.cuda.get_device_capability(index)


def fake_of(kernel):
    """What the operator returns, without computing it."""

    def fake(*inputs):
        results = [inputs[0].new_empty_strided(spec.shape, spec.strides, dtype=spec.dtype) for spec in kernel.outputs]
        return results[0] if len(results) == 1 else tuple(results)

    return fake


def gradients_of(kernel, reference):
    """(backward, setup_context) for torch.library.register_autograd: `reference` is computed again, and differentiated."""

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, *gradients):
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad) if needed]
        with torch.enable_grad():
            inputs = [tensor.detach().requires_grad_(i in wanted) for i, tensor in enumerate(ctx.saved_tensors)]
            results = reference(dict(zip((spec.name for spec in kernel.inputs), inputs)), kernel.scalars, kernel.options)
        found = torch.autograd.grad(results, [inputs[i] for i in wanted], gradients)
        by_input = dict(zip(wanted, found))
        return tuple(by_input.get(i) for i in range(len(inputs)))

    return backward, setup_context
