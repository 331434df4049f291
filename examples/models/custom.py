"""A template: copy this file, put your model in, and give it to AutoKernel.

There are two ways to name a model on the command line.

1. A class that can be made without arguments, and a shape for its one input:

       autokernel run custom.py:Custom --input-shape 8,256,512 --device cpu

2. A function that returns the model and its example inputs. Use it when the model has several inputs, a mask, ids or
   targets that must lie in a range, constructor arguments, or weights to load:

       autokernel run custom.py:example --device cpu

What helps:
- The example inputs decide everything. Their shapes are the shapes the kernels are tuned for, so use those that you serve.
- Inference only: a model in training keeps PyTorch's own kernels, because the kernels here have no gradient.
- `forward` should be plain tensor code. Python that depends on the values of tensors (`if x.sum() > 0`) still works, in
  several graphs instead of one, and a kernel cannot reach across the break.
- Write operations the way you like: RMSNorm, softmax, attention, rotary embedding and the like are recognised in the
  graph, by what they compute, and not by the names of modules.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Custom(nn.Module):
    """Replace this with your model. As it stands: two residual layers, (batch, length, width) to the same shape."""

    def __init__(self, width: int = 512, hidden: int = 2048):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + self.down(F.gelu(self.up(self.norm(x))))
        return x


def example() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model and its example inputs. The seed is set by the caller, so two calls of one run see the same weights."""
    model = Custom()
    # model.load_state_dict(torch.load("weights.pt", map_location="cpu"))
    return model.eval(), (torch.randn(8, 256, 512),)
