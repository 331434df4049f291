"""The PyTorch worker: answers the engine's requests (docs/formats/worker.md) on descriptors 3 and 4."""

import importlib
import importlib.util
import logging
import os
import platform
import sys
import traceback

from autokernel import framing

PROTOCOL = 1
REQUESTS, REPLIES = 3, 4
_VERBS = {
    "load": "autokernel.session",
    "capture": "autokernel.session",
    "patterns": "autokernel.patterns",
    "profile": "autokernel.profile",
    "fixtures": "autokernel.fixtures",
    "baseline": "autokernel.baseline",
    "compile_ahead": "autokernel.baseline",
    "verify": "autokernel.verify",
}


def main():
    """Greet, then answer requests until the engine closes its end."""
    os.dup2(2, 1)
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # prints what the reply says anyway
    for descriptor in (REQUESTS, REPLIES):
        os.set_inheritable(descriptor, False)
    try:
        greeting = _greeting()
    except ImportError as error:
        _send({"error": {"kind": "environment", "message": f"PyTorch cannot be imported: {error}", "traceback": ""}})
        return 1
    _send(greeting)
    from autokernel.session import Session

    session = Session()
    while (request := framing.receive(REQUESTS)) is not None:
        reply = _answer(session, request)
        broken = "error" in reply and _is_broken()
        if broken:
            reply["error"].update(kind="environment", message=f"the GPU's context broke: {reply['error']['message']}", ends=True)
        _send(reply)
        if broken:
            return 1
    return 0


def _is_broken():
    from autokernel import device

    return device.is_broken()


def _greeting():
    import torch

    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    return {
        "hello": "autokernel.worker",
        "protocol": PROTOCOL,
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "device": devices,
        "threads": torch.get_num_threads(),
        "capabilities": capabilities(),
    }


def capabilities():
    """The verbs that this installation can answer."""
    return [verb for verb, module in _VERBS.items() if importlib.util.find_spec(module) is not None]


def _answer(session, request):
    from autokernel.errors import WorkerError, describe

    number = request.get("id")
    try:
        return {"id": number, "result": _dispatch(session, request)}
    except WorkerError as error:
        return {"id": number, "error": {"kind": error.kind, "message": error.message, "traceback": error.trace or ""}}
    except MemoryError:
        return {"id": number, "error": {"kind": "environment", "message": "Out of memory in the PyTorch worker.", "traceback": ""}}
    except OSError as error:
        return {"id": number, "error": {"kind": "environment", "message": describe(error), "traceback": traceback.format_exc()}}
    except Exception as error:
        kind = "environment" if "out of memory" in str(error).lower() else "bug"
        return {"id": number, "error": {"kind": kind, "message": describe(error), "traceback": traceback.format_exc()}}


def _dispatch(session, request):
    from autokernel.errors import WorkerError

    verb, arguments = request.get("verb"), request.get("arguments") or {}
    if verb not in capabilities():
        raise WorkerError("bug", f"The worker has no verb '{verb}'.")

    def progress(text, done=0, total=0):
        _send({"id": request.get("id"), "progress": {"text": text, "done": done, "total": total}})

    module = importlib.import_module(_VERBS[verb])
    return getattr(module, verb)(session, arguments, progress)


def _send(message):
    framing.send(REPLIES, message, allow_nan=False)


if __name__ == "__main__":
    sys.exit(main())
