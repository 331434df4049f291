"""The warm compiler: imports Triton once, then forks a confined child for each connection to its socket (docs/formats/triton.md)."""

import contextlib
import os
import platform
import select
import signal
import socket
import struct
import sys
import tempfile

from autokernel import framing

PROTOCOL = 1
ENGINE, GREETING = 3, 4  # descriptors: closes when the engine ends; takes the greeting


def main(socket_path, engine):
    """Greet, then serve the process `engine` until it closes its end."""
    os.dup2(2, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        greeting = _warm_up()
    except Exception as error:
        framing.send(GREETING, {"error": f"{type(error).__name__}: {error}"})
        return 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(socket_path)
        listener.listen(64)
        framing.send(GREETING, greeting)
        while True:
            ready, _, _ = select.select([listener, ENGINE], [], [], 1.0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0] != 0:
                    pass
            if ENGINE in ready:
                return 0
            if listener in ready:
                _serve_in_child(listener, engine)


def _warm_up():
    """What every compile needs is loaded before the first fork: the libraries, the key of the installation, the version of ptxas."""
    import triton

    from autokernel.triton_backend import compile as compiler

    with tempfile.TemporaryDirectory() as directory:
        levels = _levels(directory)
        os.environ["TRITON_CACHE_DIR"] = directory
        path = os.path.join(directory, "kernel.py")
        with open(path, "w") as file:
            file.write("import triton\n\n\n@triton.jit\ndef nothing():\n    pass\n")
        launch = {"kernel": "nothing", "arguments": [], "constexprs": {}}
        compiler.compile_module(path, {"architecture": "sm_90", "tunables": [], "launches": [launch]}, os.path.join(directory, "module"))
    return {"hello": "autokernel.triton", "protocol": PROTOCOL, "triton": triton.__version__, "python": platform.python_version(), "programs": _programs(), "sandbox": levels}


def _levels(directory):
    """What confines a compile here, as a child finds out."""
    from autokernel import library
    from autokernel.triton_backend import confine

    library.loaded()  # by what is forked from now on, too
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            framing.send(tells, confine.close(directory, _programs()))
        finally:
            os._exit(0)
    os.close(tells)
    levels = framing.receive(told)
    os.close(told)
    os.waitpid(child, 0)
    if levels is None:
        raise library.RuntimeFailure("a compile cannot be confined")
    return [*levels, "limits"]


def _programs():
    """The assemblers that Triton may start."""
    import pathlib

    import triton

    folder = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    named = [os.environ.get(variable) for variable in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")]
    return [str(path) for path in folder.glob("ptxas*")] + [path for path in named if path]


def _serve_in_child(listener, engine):
    from autokernel.triton_backend import confine

    connection, _ = listener.accept()
    if _peer(connection) != engine or os.fork() != 0:  # a compile might ask for others, in directories that it may not write in
        connection.close()
        return
    confine.die_with_parent()
    listener.close()
    with connection:
        request = framing.receive(connection.fileno())
        if request is not None:
            framing.send(connection.fileno(), _supervise(connection, request))
    os._exit(0)


def _peer(connection):
    """The process that connected."""
    return struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def _supervise(connection, request):
    """How the compile ended: {"code" or "signal", "timed_out", "log"}. It is killed when its time is over or nobody waits for it any more."""
    log = os.open(os.path.join(request["directory"], "log"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)  # whatever it may become a link to
    worker = os.fork()
    if worker == 0:
        _compile_confined(request, log)
    with contextlib.suppress(OSError):
        os.setpgid(worker, worker)  # whoever of the two comes first
    watched = os.pidfd_open(worker)
    ready, _, _ = select.select([watched, connection], [], [], request["seconds"])
    timed_out = watched not in ready
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)  # with what it started
    _, status = os.waitpid(worker, 0)
    text = os.pread(log, request["log_bytes"], 0).decode(errors="replace")
    ended = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"code": os.WEXITSTATUS(status)}
    return {**ended, "timed_out": timed_out, "log": text}


def _compile_confined(request, log):
    from autokernel.triton_backend import compile as compiler
    from autokernel.triton_backend import confine

    os.setpgid(0, 0)
    confine.leave_network()
    confine.die_with_parent()
    os.chdir(request["directory"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.update({"TRITON_CACHE_DIR": request["directory"], "TMPDIR": request["directory"], "HOME": request["directory"]})
    tempfile.tempdir = request["directory"]
    code = 1
    try:
        confine.limit_resources(int(request["seconds"]) + 1, request["memory_bytes"], request["file_bytes"])
        confine.close(request["directory"], _programs())
        compiler.compile_module(request["source"], request["specification"], request["module"])
        code = 0
    except BaseException as error:
        print(compiler.explain(error, request["source"]), flush=True)
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
