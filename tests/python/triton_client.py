"""The engine's end of docs/formats/triton.md, for tests."""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Compiler:
    """A started server; `with` ends it."""

    def __init__(self, environment=None):
        self.directory = tempfile.TemporaryDirectory(prefix="autokernel-")
        engine_read, self.engine = os.pipe()
        greeting_read, greeting_write = os.pipe()

        def place():
            high = [os.dup(engine_read), os.dup(greeting_write)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.socket = os.path.join(self.directory.name, "socket")
        path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))  # of another Triton, too
        env = {**os.environ, "PYTHONPATH": path, **(environment or {})}
        command = [sys.executable, "-m", "autokernel.triton_backend.server", self.socket]
        self.process = subprocess.Popen(command, preexec_fn=place, close_fds=False, env=env, stderr=subprocess.DEVNULL)
        os.close(engine_read)
        os.close(greeting_write)
        with os.fdopen(greeting_read, "rb") as greeting:
            self.greeting = json.loads(greeting.read(struct.unpack("<I", greeting.read(4))[0]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.engine)
        assert self.process.wait(20) == 0
        self.directory.cleanup()

    def connect(self, text, specification, seconds=120):
        """A connection over which a compile was asked for, and its directory."""
        directory = tempfile.mkdtemp(dir=self.directory.name)
        pathlib.Path(directory, "kernel.py").write_text(text)
        request = {"directory": directory, "source": "kernel.py", "module": "kernel.triton", "specification": specification, "seconds": seconds}
        request |= {"memory_bytes": 4 << 30, "file_bytes": 1 << 28, "log_bytes": 8192}
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.socket)
        body = json.dumps(request).encode()
        connection.sendall(struct.pack("<I", len(body)) + body)
        return connection, pathlib.Path(directory)

    def compile(self, text, specification, seconds=120):
        """The reply; where it compiled with the module's `launches` and `images`."""
        connection, directory = self.connect(text, specification, seconds)
        with connection:
            (size,) = struct.unpack("<I", connection.recv(4, socket.MSG_WAITALL))
            reply = json.loads(connection.recv(size, socket.MSG_WAITALL))
        if reply.get("code") == 0:
            reply |= read_module(directory / "kernel.triton")
        return reply


def read_module(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    images = [body[slice(*header[f"image{i}"]["data_offsets"])] for i in range(len(header) - 1)]
    return {"launches": json.loads(header["__metadata__"]["launches"]), "images": images}
