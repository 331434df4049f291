"""Cross entropy against class indices: the oracle, and the ways in which models write it."""
import torch
import torch.nn.functional as F


def reference(logits, targets, weight, ignore_index, smoothing, REDUCED, MEAN, PER_ROW, SMOOTHED, WEIGHTED):
    reduction = "none" if PER_ROW else "mean" if MEAN else "sum"
    smoothing = smoothing if SMOOTHED else 0.0
    return F.cross_entropy(logits, targets, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=smoothing)


def functional(logits, targets, ignore_index):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index)


def functional_sum(logits, targets, ignore_index):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction="sum")


def functional_none(logits, targets, ignore_index):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction="none")


def smoothed(logits, targets, ignore_index, smoothing):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, label_smoothing=smoothing)


def smoothed_sum(logits, targets, ignore_index, smoothing):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction="sum", label_smoothing=smoothing)


def smoothed_none(logits, targets, ignore_index, smoothing):
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction="none", label_smoothing=smoothing)


def nll(logits, targets, ignore_index):
    return F.nll_loss(F.log_softmax(logits, dim=-1), targets, ignore_index=ignore_index)


def nll_sum(logits, targets, ignore_index):
    return F.nll_loss(F.log_softmax(logits, dim=-1), targets, ignore_index=ignore_index, reduction="sum")


def nll_none(logits, targets, ignore_index):
    return F.nll_loss(F.log_softmax(logits, dim=-1), targets, ignore_index=ignore_index, reduction="none")


def weighted(logits, targets, weight, ignore_index):
    return F.cross_entropy(logits, targets, weight, ignore_index=ignore_index)


def weighted_sum(logits, targets, weight, ignore_index):
    return F.cross_entropy(logits, targets, weight, ignore_index=ignore_index, reduction="sum")


def weighted_none(logits, targets, weight, ignore_index):
    return F.cross_entropy(logits, targets, weight, ignore_index=ignore_index, reduction="none")


def weighted_smoothed(logits, targets, weight, ignore_index, smoothing):
    return F.cross_entropy(logits, targets, weight, ignore_index=ignore_index, label_smoothing=smoothing)


def weighted_smoothed_sum(logits, targets, weight, ignore_index, smoothing):
    return F.cross_entropy(logits, targets, weight, ignore_index=ignore_index, reduction="sum", label_smoothing=smoothing)


def weighted_smoothed_none(logits, targets, weight, ignore_index, smoothing):
    return F.cross_entropy(logits, targets, weight, ignore_index=ignore_index, reduction="none", label_smoothing=smoothing)


def weighted_nll(logits, targets, weight, ignore_index):
    return F.nll_loss(F.log_softmax(logits, dim=-1), targets, weight, ignore_index=ignore_index)


def weighted_nll_sum(logits, targets, weight, ignore_index):
    return F.nll_loss(F.log_softmax(logits, dim=-1), targets, weight, ignore_index=ignore_index, reduction="sum")


def weighted_nll_none(logits, targets, weight, ignore_index):
    return F.nll_loss(F.log_softmax(logits, dim=-1), targets, weight, ignore_index=ignore_index, reduction="none")


def gathered_none(logits, targets):
    return -F.log_softmax(logits, dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def gathered(logits, targets):
    return -F.log_softmax(logits, dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1).mean()


def logsumexp_gathered_none(logits, targets):
    return torch.logsumexp(logits, dim=-1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def logsumexp_gathered(logits, targets):
    return (torch.logsumexp(logits, dim=-1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)).mean()
