"""Sum, mean, extremes, their places, product and norm over one dimension: the oracle, and the ways in which models write them."""
import torch


def reference(x, OP):
    if OP == 6:  # on a CPU PyTorch multiplies 16-bit numbers in 16 bits, and of a long product nothing is right
        return x.prod(1, dtype=torch.promote_types(x.dtype, torch.float32)).to(x.dtype)
    if OP in (0, 1, 7):
        return x.sum(1) if OP == 0 else x.mean(1) if OP == 1 else torch.linalg.vector_norm(x, dim=1)
    if x.shape[1] == 0:  # PyTorch has no answer; the neutral element is the natural one, and no place
        shape = (x.shape[0], x.shape[2])
        return x.new_full(shape, -1, dtype=torch.int64) if OP > 3 else x.new_full(shape, float("-inf") if OP == 2 else float("inf"))
    return x.amax(1) if OP == 2 else x.amin(1) if OP == 3 else x.argmax(1) if OP == 4 else x.argmin(1)


def sum_last(x):
    return x.sum(-1)


def sum_last_keepdim(x):
    return x.sum(-1, keepdim=True)


def sum_middle(x):
    return x.sum(-2)


def sum_middle_keepdim(x):
    return x.sum(-2, keepdim=True)


def sum_all(x):
    return x.sum()


def mean_last(x):
    return x.mean(-1)


def mean_last_keepdim(x):
    return x.mean(-1, keepdim=True)


def mean_middle(x):
    return x.mean(-2)


def mean_middle_keepdim(x):
    return x.mean(-2, keepdim=True)


def mean_all(x):
    return x.mean()


def max_last(x):
    return x.max(-1)[0]


def max_last_keepdim(x):
    return x.max(-1, keepdim=True)[0]


def max_middle(x):
    return x.max(-2)[0]


def max_middle_keepdim(x):
    return x.max(-2, keepdim=True)[0]


def max_all(x):
    return x.max()


def amax_last(x):
    return x.amax(-1)


def amax_last_keepdim(x):
    return x.amax(-1, keepdim=True)


def amax_middle(x):
    return x.amax(-2)


def amax_middle_keepdim(x):
    return x.amax(-2, keepdim=True)


def min_last(x):
    return x.min(-1)[0]


def min_last_keepdim(x):
    return x.min(-1, keepdim=True)[0]


def min_middle(x):
    return x.min(-2)[0]


def min_middle_keepdim(x):
    return x.min(-2, keepdim=True)[0]


def min_all(x):
    return x.min()


def amin_last(x):
    return x.amin(-1)


def amin_last_keepdim(x):
    return x.amin(-1, keepdim=True)


def amin_middle(x):
    return x.amin(-2)


def amin_middle_keepdim(x):
    return x.amin(-2, keepdim=True)


def argmax_last(x):
    return x.argmax(-1)


def argmax_last_keepdim(x):
    return x.argmax(-1, keepdim=True)


def argmax_middle(x):
    return x.argmax(-2)


def argmax_middle_keepdim(x):
    return x.argmax(-2, keepdim=True)


def argmax_all(x):
    return x.argmax()


def argmin_last(x):
    return x.argmin(-1)


def argmin_last_keepdim(x):
    return x.argmin(-1, keepdim=True)


def argmin_middle(x):
    return x.argmin(-2)


def argmin_middle_keepdim(x):
    return x.argmin(-2, keepdim=True)


def argmin_all(x):
    return x.argmin()


def prod_last(x):
    return x.prod(-1)


def prod_last_keepdim(x):
    return x.prod(-1, keepdim=True)


def prod_middle(x):
    return x.prod(-2)


def prod_middle_keepdim(x):
    return x.prod(-2, keepdim=True)


def prod_all(x):
    return x.prod()


def norm_last(x):
    return x.norm(dim=-1)


def norm_last_keepdim(x):
    return x.norm(dim=-1, keepdim=True)


def norm_middle(x):
    return x.norm(dim=-2)


def norm_middle_keepdim(x):
    return x.norm(dim=-2, keepdim=True)


def norm_all(x):
    return x.norm()
