"""The engine's end of the judge's protocol (docs/formats/judge.md), and kernels compiled for it without the engine."""

import hashlib
import json
import os
import struct
import subprocess
from pathlib import Path

import torch
from conftest import PROGRAM, ROOT

JUDGE = PROGRAM.with_name("autokernel-judge")
_HEADERS = ROOT / "kernels" / "include"
_CPU_FLAGS = ["-O2", "-march=native", "-std=c++20", "-fno-exceptions", "-fno-rtti", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-shared"]


class Judge:
    """autokernel-judge, opened for a device; `under`: the words of a program that runs it."""

    def __init__(self, under=(), **opening):
        request_read, self.requests = os.pipe()
        self.replies, reply_write = os.pipe()

        def place():
            high = [os.dup(request_read), os.dup(reply_write)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen([*under, str(JUDGE)], preexec_fn=place, close_fds=False)
        os.close(request_read)
        os.close(reply_write)
        self.ask("open", **opening)

    def ask(self, verb, **arguments):
        body = json.dumps({"id": 1, "verb": verb, "arguments": arguments}).encode()
        os.write(self.requests, struct.pack("<I", len(body)) + body)
        reply = json.loads(self._read(struct.unpack("<I", self._read(4))[0]))
        assert "result" in reply, reply
        return reply["result"]

    def _read(self, size):
        data = b""
        while len(data) < size:
            part = os.read(self.replies, size - len(data))
            assert part, "the judge died"
            data += part
        return data

    def close(self):
        """Let it end; gives its exit code."""
        os.close(self.requests)
        code = self.process.wait()
        os.close(self.replies)
        return code


def compile_cpu(directory, text, macros=()):
    """Path of the module of a kernel.cpp."""
    stem = Path(directory) / hashlib.sha256(repr((text, macros)).encode()).hexdigest()[:16]
    stem.with_suffix(".cpp").write_text(text)
    defines = [f"-D{name}={value}" for name, value in macros]
    subprocess.run(["g++", *_CPU_FLAGS, *defines, f"-I{_HEADERS}", str(stem.with_suffix(".cpp")), "-o", str(stem.with_suffix(".so"))], check=True)
    return str(stem.with_suffix(".so"))


def compile_cuda(directory, text, macros=()):
    """Path of the cubin of a kernel.cu, for this machine's GPU. errors: no NVRTC."""
    library, headers = _toolkit()
    stem = Path(directory) / hashlib.sha256(repr((text, macros)).encode()).hexdigest()[:16]
    stem.with_suffix(".cu").write_text("".join(f"#define {name} {value}\n" for name, value in macros) + "#line 1\n" + text)
    major, minor = torch.cuda.get_device_capability()
    command = [str(JUDGE), "--nvrtc", library, f"sm_{major}{minor}a", f"{stem.name}.cubin", str(_HEADERS), headers, "--", "-std=c++20", f"{stem.name}.cu"]
    if not stem.with_suffix(".cubin").exists():  # its name is its content's
        subprocess.run(command, check=True, cwd=directory)
    return str(stem.with_suffix(".cubin"))


def _toolkit():
    import nvidia

    wheels = [Path(root) / part for root in nvidia.__path__ for part in ("cu13", "cuda_nvrtc", "cuda_runtime")]
    places = [*wheels, Path("/usr/local/cuda")]
    libraries = [library for place in places for library in sorted(place.glob("lib*/libnvrtc.so*"))]
    headers = [place / "include" for place in places if (place / "include" / "cuda_fp16.h").exists()]
    return str(libraries[0]), str(headers[0])


def open_judge(device, directory, under=()):
    """A judge for `cpu` or `cuda`."""
    if device == "cpu":
        return Judge(under, device="cpu", threads=2)
    return Judge(under, device="cuda", index=0, builtin=compile_cuda(directory, (_HEADERS / "judge" / "builtin.cu").read_text()))
