"""What the worker remembers between requests, and the verbs `load` and `capture`."""

import os

from autokernel import graph_json, models
from autokernel.capture import capture as capture_model
from autokernel.errors import WorkerError, user_error


class Session:
    """The loaded model, its capture, and where the families are."""

    def __init__(self):
        self.loaded = None
        self.captured = None
        self.families = None
        self.ways = None  # of the baseline that was asked for last

    def require_loaded(self):
        if self.loaded is None:
            raise WorkerError("bug", "No model is loaded: send `load` first.")
        return self.loaded

    def require_captured(self):
        """The capture of the loaded model, made now if it was not asked for yet."""
        if self.captured is None:
            self.captured = capture_model(self.require_loaded())
        return self.captured

    def families_directory(self, arguments):
        """Where kernels/<family>/ lie: said in the request, or before, or by the environment, or beside this package."""
        here = os.path.dirname(os.path.abspath(__file__))
        candidates = [
            arguments.get("families"),
            self.families,
            os.environ.get("AUTOKERNEL_FAMILIES"),
            os.path.join(here, "kernels"),
            os.path.join(here, "..", "..", "kernels"),
        ]
        for candidate in candidates:
            if candidate and os.path.isdir(candidate):
                return os.path.abspath(candidate)
        raise user_error("The directory of kernel families is not found: set AUTOKERNEL_FAMILIES.")


def load(session, arguments, progress):
    """The verb `load`."""
    progress(f"Loading {arguments['model']}")
    session.loaded = session.captured = session.ways = None
    session.loaded = models.load(
        arguments["model"],
        arguments.get("input_shape"),
        arguments.get("dtype"),
        arguments.get("device") or "cpu",
        arguments.get("seed") or 0,
    )
    return session.loaded.describe()


def capture(session, arguments, progress):
    """The verb `capture`."""
    progress("Capturing the model's graph")
    captured = session.require_captured()
    graph_json.write_graphs(arguments["path"], captured.graphs, captured.method)
    return {"capture": captured.method, "reason": captured.reason, "graphs": len(captured.graphs), "nodes": captured.node_count()}
