"""Loads a model by name, makes example inputs for it, and checks that it runs."""

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import os
import sys

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from autokernel.errors import WorkerError, describe, environment_error, user_error
from autokernel.graph_json import dtype_name

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


@dataclasses.dataclass
class Loaded:
    """A model in evaluation mode, ready to call as `model(*args, **kwargs)`."""

    name: str
    kind: str  # "class", "factory", "instance" or "hf"
    model: torch.nn.Module
    args: tuple
    kwargs: dict
    output: object
    needs_gradients: bool
    warnings: list
    device: torch.device = torch.device("cpu")

    def call(self):
        with self.no_gradients():
            return self.model(*self.args, **self.kwargs)

    def no_gradients(self):
        return contextlib.nullcontext() if self.needs_gradients else torch.no_grad()

    def describe(self):
        """The result of the verb `load`."""
        return {
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "inputs": _tensors((self.args, self.kwargs)),
            "output": _tensors(self.output),
            "warnings": self.warnings,
            "kind": self.kind,
        }


def load(name, input_shape=None, dtype=None, device="cpu", seed=0):
    """Load `file.py:Class`, `module:Class`, `hf:DIR` or `file.py:function`; a function may return (model, example inputs).

    errors: WorkerError of kind "user" for what the user can mend, "environment" for a missing package or device.
    """
    torch_dtype = parse_dtype(dtype)
    torch_device = parse_device(device)
    torch.manual_seed(seed)
    kind, model, inputs = _hf(name) if name.startswith("hf:") else _named(name, torch_device)
    torch_dtype, dtype_warnings = _settled_dtype(model, torch_dtype, inputs is not None)
    model = _prepared(name, model, torch_dtype, torch_device)
    loaded = Loaded(name, kind, model, (), {}, None, False, dtype_warnings + _weight_warnings(model), torch_device)
    if inputs is None:
        _make_inputs(loaded, input_shape, torch_dtype or _model_dtype(model), torch_device, seed)
    else:
        loaded.args, loaded.kwargs = _given_inputs(inputs, torch_dtype, torch_device)
        _run_once(loaded, "The model does not run on the example inputs that its function returned")
    return loaded


def parse_dtype(name):
    if name is None:
        return None
    if name not in DTYPES:
        raise user_error(f"Unknown dtype '{name}': use one of {', '.join(list(DTYPES)[:4])}.")
    return DTYPES[name]


def parse_device(name):
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise user_error(f"Unknown device '{name}': use cpu or cuda.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise environment_error("PyTorch sees no CUDA device: use --device cpu, or install a PyTorch with CUDA and its driver.")
    device = torch.device(name)
    if device.type == "cuda":
        _check_cuda_index(device)
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(device)  # events and streams are of the current one
    return device


def _check_cuda_index(device):
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise user_error(f"There is no device {device}: PyTorch sees {torch.cuda.device_count()}.")


# --- finding the model


def _named(name, device):
    """(kind, model, inputs or None) of `file.py:Attribute` or `module:Attribute`."""
    place, separator, attribute = name.rpartition(":")
    if not separator or not place or not attribute:
        raise user_error(f"'{name}' names no model: write file.py:Class, module:Class, hf:CONFIG_DIR or file.py:function.")
    module = _import_file(place) if place.endswith(".py") else _import_module(place)
    if not hasattr(module, attribute):
        raise user_error(f"{place} has no '{attribute}'.{_suggestion(module)}")
    return _built(name, getattr(module, attribute), device)


def _import_file(path):
    if not os.path.isfile(path):
        raise user_error(f"There is no file {path}.")
    path = os.path.abspath(path)
    module_name = os.path.splitext(os.path.basename(path))[0]
    if os.path.dirname(path) not in sys.path:
        sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    displaced = sys.modules.get(module_name)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        _restore(module_name, displaced)
        raise user_error(f"{path} does not import: {describe(error)}", error) from error
    return module


def _restore(module_name, displaced):
    if displaced is None:
        sys.modules.pop(module_name, None)
    else:
        sys.modules[module_name] = displaced


def _import_module(place):
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise user_error(f"The module {place} does not import: {describe(error)}", error) from error


def _suggestion(module):
    classes = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__
    ]
    return f" It defines: {', '.join(sorted(classes))}." if classes else ""


def _built(name, found, device):
    if isinstance(found, torch.nn.Module):
        return "instance", found, None
    if not callable(found):
        raise user_error(f"{name} is neither a module class nor a function, but {type(found).__name__}.")
    is_class = inspect.isclass(found)
    if is_class and not issubclass(found, torch.nn.Module):
        raise user_error(f"{name} is a class, but no torch.nn.Module.")
    try:
        result = _constructed(found, device) if is_class else found()
    except (Exception, SystemExit) as error:
        raise user_error(f"{name}() failed: {describe(error)}", error) from error
    if is_class:
        return "class", result, None
    if isinstance(result, torch.nn.Module):
        return "factory", result, None
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], torch.nn.Module):
        return "factory", result[0], result[1]
    raise user_error(f"{name}() must return a torch.nn.Module, or (module, example inputs); it returned {type(result).__name__}.")


def _constructed(found, device):
    """A module of the class, made on the device where its constructor lets us: gigabytes of weights need not pass through the host."""
    if device.type != "cpu":
        try:
            with device:
                return found()
        except Exception:  # it mixes devices, or does not fit in float32
            pass
    return found()


def _hf(name):
    """A Hugging Face model of random weights from the configuration in a directory; never the network."""
    directory = name.removeprefix("hf:")
    if not os.path.isfile(os.path.join(directory, "config.json")):
        raise user_error(f"There is no config.json in '{directory}': hf: takes a directory with a model's configuration.")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError as error:
        raise environment_error(f"hf: needs the package transformers ({describe(error)}): pip install transformers.") from error
    try:
        config = transformers.AutoConfig.from_pretrained(directory, local_files_only=True)
        config.use_cache = False
        return "hf", _hf_class(transformers, config)(config), None
    except WorkerError:
        raise
    except Exception as error:
        raise user_error(f"The model of {directory} cannot be built: {describe(error)}", error) from error


def _hf_class(transformers, config):
    for architecture in getattr(config, "architectures", None) or []:
        if hasattr(transformers, architecture):
            return getattr(transformers, architecture)
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        if type(config) in auto._model_mapping:
            return auto._model_mapping[type(config)]
    raise user_error(f"transformers has no model for a configuration of type {type(config).__name__}.")


# --- preparing it


def _settled_dtype(model, dtype, is_ready):
    """(what to cast to, or None where everything stays as it is, warnings). `is_ready`: its author chose dtype and inputs."""
    if not isinstance(model, torch.nn.Module):
        return dtype, []
    own = sorted({dtype_name(tensor.dtype) for tensor in model.parameters() if tensor.is_floating_point()})
    if dtype is None or own in ([], [dtype_name(dtype)]):
        return dtype, []
    if len(own) > 1:
        return None, [f"The model's weights are of several dtypes ({', '.join(own)}): they and its inputs stay as they are, whatever --dtype says."]
    if not is_ready:
        return dtype, []
    return dtype, [f"The model's weights are {own[0]}, and run in {dtype_name(dtype)}: give --dtype {own[0]} to keep them."]


def _prepared(name, model, dtype, device):
    """On the device, in the dtype, but for complex numbers and integers, and in evaluation mode."""
    try:
        model = model.to(device=device)
        return (model if dtype is None else model._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)).eval()
    except Exception as error:
        raise user_error(f"{name} cannot be moved to {device} as {dtype_name(dtype)}: {describe(error)}", error) from error


def _model_dtype(model):
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _weight_warnings(model):
    bad = [
        name
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
        if tensor.is_floating_point() and not torch.is_inference(tensor) and bool(torch.isnan(tensor.detach()).any())
    ]
    if not bad:
        return []
    shown = ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
    return [f"NaN in the weights {shown}: the model's output will be NaN, so a comparison of outputs proves little."]


# --- inputs


def _given_inputs(inputs, dtype, device):
    kwargs = dict(inputs) if isinstance(inputs, dict) else {}
    args = () if isinstance(inputs, dict) else tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)

    def place(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to(device=device, dtype=dtype if leaf.is_floating_point() and dtype is not None else leaf.dtype)

    return pytree.tree_map(place, args), pytree.tree_map(place, kwargs)


def _make_inputs(loaded, shape, dtype, device, seed):
    """One float tensor if the model takes it, else one tensor of ids within the vocabulary that it looks them up in."""
    if shape is None:
        raise user_error(
            f"{loaded.name} needs an input shape: give --input-shape, for example 1,256; or name a function that "
            "returns (model, example inputs)."
        )
    if any(not isinstance(size, int) or size < 0 for size in shape):
        raise user_error(f"An input shape is a list of sizes, not {shape}.")
    generator = torch.Generator().manual_seed(seed)
    try:
        loaded.args = (torch.randn(shape, generator=generator).to(device=device, dtype=dtype),)
    except (RuntimeError, MemoryError) as error:
        raise user_error(f"An input of shape {list(shape)} cannot be made ({describe(error)}): give a smaller --input-shape.") from error
    float_error = _attempt(loaded)
    if float_error is None:
        return
    probe = torch.randint(0, 2, shape, generator=generator).to(device)
    loaded.args = (probe,)
    with _Lookups(probe) as lookups:
        id_error = _attempt(loaded)
    if id_error is None:
        vocabulary = min(lookups.rows, default=2)
        loaded.args = (torch.randint(0, vocabulary, shape, generator=generator).to(device),)
        id_error = _attempt(loaded)
    if id_error is not None:
        error = id_error if lookups.rows else float_error
        raise user_error(f"The model does not run on an input of shape {list(shape)}: {describe(error)}", error) from error


class _Lookups(TorchFunctionMode):
    """Records the number of rows of every table that `ids` are looked up in."""

    def __init__(self, ids):
        super().__init__()
        self.ids = ids
        self.rows = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.nn.functional.embedding, torch.embedding):
            tensors = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, torch.Tensor)]
            ids = next((t for t in tensors if not t.is_floating_point()), None)
            table = next((t for t in tensors if t.is_floating_point()), None)
            if ids is not None and table is not None and ids.shape == self.ids.shape and torch.equal(ids, self.ids):
                self.rows.append(table.shape[0])
        return function(*args, **(kwargs or {}))


def _attempt(loaded):
    """Run the model; the exception that it raised, or None."""
    try:
        _forward(loaded)
    except Exception as error:
        return error
    return None


def _run_once(loaded, complaint):
    error = _attempt(loaded)
    if error is not None:
        raise user_error(f"{complaint}: {describe(error)}", error) from error


def _forward(loaded):
    """Run without gradients, or with them where the model differentiates in its forward."""
    loaded.needs_gradients = False
    try:
        loaded.output = loaded.call()
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        loaded.needs_gradients = True
        loaded.output = pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, loaded.call())
        loaded.warnings.append("The model needs gradients in its forward pass: those graphs are left to Inductor.")


def _tensors(tree):
    return [
        {"dtype": dtype_name(leaf.dtype), "shape": list(leaf.shape)} for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)
    ]
