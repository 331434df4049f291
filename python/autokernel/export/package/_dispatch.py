"""Sends a call to the kernel that was made for its sizes, strides, dtype and device, and every other call to PyTorch's own operations."""

import torch

from ._kernels import KERNELS, register


def run(function, tensors, scalars, options):
    """One call of a function. `tensors`: {name: tensor or None}, in the order of the contract."""
    for kernel in KERNELS[function]:
        if kernel.scalars == scalars and kernel.options == options:
            views, leading = _views(kernel, tensors)
            if views is not None:
                return _unfolded(kernel.operator(*views), kernel, leading)
    return REFERENCES[function](tensors, scalars, options)


def would_run(function, tensors, scalars, options):
    """The name of the kernel that a call would run, or None where PyTorch computes it."""
    for kernel in KERNELS[function]:
        if kernel.scalars == scalars and kernel.options == options and _views(kernel, tensors)[0] is not None:
            return kernel.name
    return None


def _views(kernel, tensors):
    """The inputs as the kernel takes them, and the leading dims that were folded into one; (None, None) where it was made for others."""
    views, leading = [], None
    for spec in kernel.inputs:
        tensor = tensors[spec.name]
        if tensor is None or tensor.dtype != spec.dtype or tensor.layout != torch.strided or not kernel.runs_on(tensor.device):
            return None, None
        if spec.folds:
            folded = tensor.dim() - len(spec.shape) + 1
            if folded < 1 or not _foldable(tensor, folded):
                return None, None
            if leading is not None and leading != tensor.shape[:folded]:
                return None, None
            leading = tensor.shape[:folded]
            if folded > 1:
                tensor = tensor.view(-1, *tensor.shape[folded:])
        if tuple(tensor.shape) != spec.shape or not _same_strides(tensor, spec):
            return None, None
        views.append(tensor)
    return views, leading


def _foldable(tensor, dims):
    """Whether the first `dims` dims are one dim in memory."""
    sizes, strides = tensor.shape, tensor.stride()
    return all(sizes[i] == 1 or strides[i] == strides[i + 1] * sizes[i + 1] for i in range(dims - 1)) and 0 not in sizes


def _same_strides(tensor, spec):
    return all(size == 1 or stride == wanted for size, stride, wanted in zip(spec.shape, tensor.stride(), spec.strides))


def _unfolded(results, kernel, leading):
    if leading is None or len(leading) == 1:
        return results
    if isinstance(results, torch.Tensor):
        return _unfold(results, kernel.outputs[0], leading)
    return tuple(_unfold(result, spec, leading) for result, spec in zip(results, kernel.outputs))


def _unfold(result, spec, leading):
    return result.view(*leading, *result.shape[1:]) if spec.folds else result


REFERENCES = register()
