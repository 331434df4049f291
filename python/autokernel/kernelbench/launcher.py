# What the kernels of this file need around them: outputs, scratch memory, prepared weights, and the launches of their plan.
import torch


class Kernel:
    """The kernels of one region of the model. A call takes the region's inputs and returns its outputs, without gradients.

    `plan`: launches with every number evaluated; `inputs`, `outputs`: (name, shape, strides, dtype); `weights`: inputs that the
    preparation reads.
    """

    def __init__(self, plan, inputs, outputs, weights):
        self.plan, self.inputs, self.outputs, self.weights = plan, inputs, outputs, weights
        self.prepared_for, self.prepared = None, {}
        read_by_preparation = {argument.get("scratch") for launch in plan["prepare"] for argument in launch["arguments"]}
        shared = [scratch for scratch in plan["scratch"] if not scratch["per_worker"]]
        self.kept = [scratch for scratch in shared if scratch["name"] in read_by_preparation]
        self.scratch = [scratch for scratch in shared if scratch["name"] not in read_by_preparation]

    def __call__(self, *tensors):
        for tensor, expected in zip(tensors, self.inputs):
            check_layout(tensor, *expected)
        device = tensors[0].device
        self.open(device)
        results = [torch.empty_strided(shape, strides, dtype=dtype, device=device) for _, shape, strides, dtype in self.outputs]
        memory = {name: tensor for (name, *_), tensor in zip((*self.inputs, *self.outputs), (*tensors, *results))}
        memory.update(self.prepare(memory, device))
        memory.update(allocate(self.scratch, device))
        for number, launch in enumerate(self.plan["launches"]):
            self.start(("launches", number), launch, memory)
        return results

    def prepare(self, memory, device):
        """Scratch that was filled from the weights; filled again where other weights, or other values in them, are given."""
        if not self.plan["prepare"]:
            return {}
        given = [memory[name].detach() for name in self.weights]  # held, so that no others come to lie at their addresses
        if not is_prepared(given, self.prepared_for):
            self.prepared = allocate(self.kept, device)
            for number, launch in enumerate(self.plan["prepare"]):
                self.start(("prepare", number), launch, {**memory, **self.prepared})
            self.settle(device)
            self.prepared_for = [(weight, weight._version) for weight in given]
        return self.prepared

    def settle(self, device):
        """Wait for the preparation: calls on other streams read what it left, and a launch may overlap the one before it."""
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()


def is_prepared(weights, known):
    """Whether these are the weights of the last preparation, not written since."""
    return known is not None and len(weights) == len(known) and all(a.data_ptr() == b.data_ptr() and a._version == version for a, (b, version) in zip(weights, known))


def check_layout(tensor, name, shape, strides, dtype):
    same = tensor.dtype == dtype and list(tensor.shape) == shape
    if not same or any(size > 1 and a != b for size, a, b in zip(shape, tensor.stride(), strides)):
        raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)} {tensor.stride()}; this file is for {dtype} {shape} {strides}")


def allocate(scratch, device):
    """{name: memory} as the plan declares it."""
    return {each["name"]: (torch.zeros if each["zeroed"] else torch.empty)(max(1, each["bytes"]), dtype=torch.uint8, device=device) for each in scratch}
