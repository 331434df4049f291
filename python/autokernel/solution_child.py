"""The judge's side of a sandboxed child: starts it, asks it, and ends it with all that it started."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import site
import struct
import subprocess
import sys
import time
from pathlib import Path

import torch

from autokernel import solution_memory as memory
from autokernel.errors import WorkerError, environment_error
from autokernel.temporary import TemporaryDirectory

_LARGEST_REPLY = 1 << 20
_GREETING_SECONDS = 120
_LOG_TAIL = 2000
_STOPPING_SECONDS = 1e-3
_LOOK_EVERY_SECONDS = 0.5
_KEPT_VARIABLES = ("PATH", "LANG", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


class Refusal(Exception):
    """A verdict on what the child holds, with its evidence."""

    def __init__(self, verdict, message, rule="", **evidence):
        super().__init__(message)
        self.verdict, self.rule, self.evidence = verdict, rule, {"message": message, **evidence}


def find_sandbox(named=None):
    """Path of autokernel-judge: as named, AUTOKERNEL_JUDGE, beside the runtime library or the newest build of the checkout.

    errors: there is none: other people's code runs in a sandbox or not at all.
    """
    library = os.environ.get("AUTOKERNEL_RUNTIME")
    here = Path(__file__).resolve().parent
    candidates = [named, os.environ.get("AUTOKERNEL_JUDGE")]
    if library:
        candidates.append(Path(library).resolve().parent.parent / "bin" / "autokernel-judge")
    candidates.append(here / "bin" / "autokernel-judge")
    candidates += sorted(here.parents[1].glob("build/*/bin/autokernel-judge"), key=lambda path: -path.stat().st_mtime)
    candidates.append(shutil.which("autokernel-judge"))
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise environment_error("autokernel-judge, which makes the sandbox, was not found: build it, or set AUTOKERNEL_JUDGE to its path.")


class Child:
    """One process with somebody else's code in it, a directory of its own, and an arena that it shares with the judge."""

    def __init__(self, sandbox, device, limits):
        self.device, self.limits = device, limits
        self._temporary = TemporaryDirectory("autokernel-solution-")
        self.directory = self._temporary.path
        self.arena = memory.CudaArena(device) if device.type == "cuda" else memory.HostArena()
        self._log = open(self.directory / "log", "w+b")
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        try:
            self.process = self._start(sandbox, requests, replies)
        finally:
            os.close(requests)
            os.close(replies)
        try:
            self._receive(_GREETING_SECONDS, "greet")
        except Refusal as refusal:
            log = self.log_tail()
            self.close()
            raise environment_error(f"The sandboxed Python does not start: {refusal}\n{log}") from refusal

    def _start(self, sandbox, requests, replies):
        handed = {3: requests, 4: replies} | ({} if self.arena.fd is None else {memory.ARENA_FD: self.arena.fd})

        def place():  # out of the way of the targets first
            moved = {target: os.dup(source) for target, source in handed.items()}
            high = {target: _above(source) for target, source in moved.items()}
            for target, source in high.items():
                os.dup2(source, target)
            os.closerange(max(handed) + 1, 256)

        command = [sandbox, "--confine", *self._readable(), "--write", str(self.directory), "--memory", str(self.limits["memory_bytes"])]
        command += (["--cuda"] if self.device.type == "cuda" else []) + ["--", sys.executable, "-m", "autokernel.solution_host"]
        return subprocess.Popen(
            command,
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            close_fds=False,
            preexec_fn=place,
            process_group=0,
        )

    def _readable(self):
        folders = [str(Path(file).resolve().parents[1]) for file in (torch.__file__, __file__)]
        paths = {sys.prefix, sys.base_prefix, *site.getsitepackages(), *folders}
        return [word for path in sorted(paths) for word in ("--read", path)]

    def _environment(self):
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        own = str(self.directory)
        return {
            **kept,
            "HOME": own,
            "TMPDIR": own,
            "XDG_CACHE_HOME": own,
            "CUDA_CACHE_PATH": own,
            "TORCH_EXTENSIONS_DIR": own,
            "TORCHINDUCTOR_CACHE_DIR": f"{own}/inductor",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TRITON_CACHE_DIR": f"{own}/triton",
            "USER": "solution",
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def pause(self):
        """Stop every process of the child: while another is timed, and while its inputs are written."""
        self._signal(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        time.sleep(_STOPPING_SECONDS)  # the others of its group

    def resume(self):
        self._signal(signal.SIGCONT)

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def ask(self, verb, seconds=None, **arguments):
        """The answer to a verb. errors: Refusal for what the child refused, for its death and for its silence."""
        self.send(verb, **arguments)
        return self.answer(seconds or self.limits["call_seconds"], verb)

    def send(self, verb, **arguments):
        body = json.dumps({"verb": verb, "arguments": arguments}).encode()
        with contextlib.suppress(BrokenPipeError):  # its death is found out by the answer that does not come
            os.write(self._requests, struct.pack("<I", len(body)) + body)

    def answer(self, seconds, verb):
        reply = self._receive(seconds, verb)
        if "refused" in reply:
            refused = reply["refused"]
            evidence = {"traceback": refused["traceback"]} if refused.get("traceback") else {}
            raise Refusal(str(refused["verdict"]), str(refused["message"]), str(refused["rule"]), **evidence)
        return reply["result"]

    def _receive(self, seconds, verb):
        deadline = time.monotonic() + seconds
        try:
            (size,) = struct.unpack("<I", self._read(4, deadline))
            if size > _LARGEST_REPLY:
                raise ValueError(f"a reply of {size} bytes")
            reply = json.loads(self._read(size, deadline))
            if not isinstance(reply, dict) or not reply.keys() & {"result", "refused", "hello"}:
                raise ValueError("a reply of another form")
            return reply
        except TimeoutError:
            raise Refusal("timed_out", f"no answer to `{verb}` within {seconds:g} s") from None
        except EOFError:
            raise self._death(verb) from None
        except ValueError as error:
            raise Refusal("cheating", f"the child does not speak the protocol: {error}", "tampering with the judge") from None

    def _read(self, size, deadline):
        data = b""
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            ready, _, _ = select.select([self._replies], [], [], min(left, _LOOK_EVERY_SECONDS))
            if not ready:
                self._check_room()
                continue
            part = os.read(self._replies, size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def _check_room(self):
        """The kernel's limit is on private memory, of each process by itself: shared memory and files take room as well.

        errors: Refusal where all of it together is more than the limit; the processes are ended.
        """
        held = held_memory(self.process.pid) + held_on_disk(self.directory)
        limit = self.limits["memory_bytes"] + self.arena.host_bytes
        if held > limit:
            self._signal(signal.SIGKILL)
            raise Refusal("out_of_memory", f"its processes and files hold {held >> 20} MiB, more than {limit >> 20} MiB")

    def _death(self, verb):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.returncode
        how = "closed its pipe" if code is None else f"died of signal {_signal_of(code)}" if _signal_of(code) else f"exited with code {code}"
        return Refusal("crashed", f"the process {how} in `{verb}`", log=self.log_tail())

    def log_tail(self):
        """The end of what it printed: by our own descriptor, since the name is the child's, which may have put another file there."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), _LOG_TAIL, max(0, size - _LOG_TAIL)).decode(errors="replace")

    def close(self):
        """End the process and all it started, give the memory back, remove its directory. The second time does nothing."""
        if self._log.closed:
            return
        self._signal(signal.SIGKILL)
        self.process.wait()
        for descriptor in (self._requests, self._replies):
            os.close(descriptor)
        self._log.close()
        self.arena.close()
        self._temporary.close()


def held_memory(group):
    """Bytes that the processes of a group hold, private and shared."""
    held = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended
            if int((process / "stat").read_text().rpartition(")")[2].split()[2]) != group:
                continue
            status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if line.startswith("Rss"))
            held += 1024 * sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem") if name in status)
    return held


def held_on_disk(directory):
    """Bytes of all files under a directory."""
    held = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(OSError):
                held += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return held


def _signal_of(code):
    """bubblewrap passes a signal on as 128 and its number."""
    number = -code if code < 0 else code - 128 if code > 128 else 0
    return number if number in signal.valid_signals() else 0


def _above(descriptor):
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64)


class ReferenceChild(Child):
    """The child that holds the reference: where it fails, the user or the machine is at fault, and no candidate."""

    def answer(self, seconds, verb):
        try:
            return super().answer(seconds, verb)
        except Refusal as refusal:
            text = f"The reference fails in `{verb}`: {refusal}"
            if refusal.verdict in ("out_of_memory", "timed_out"):
                raise environment_error(text) from refusal
            raise WorkerError("user", text, refusal.evidence.get("traceback") or refusal.evidence.get("log")) from refusal
