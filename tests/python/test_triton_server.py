"""The Triton compiler: what it makes, what it refuses and with which line, and what a compile may not do."""

import concurrent.futures
import ctypes
import os
import pathlib
import socket
import struct
import subprocess
import sys
import time

import pytest

pytest.importorskip("triton")

from triton_client import ROOT, Compiler

SOURCE = '''"""autokernel
family  = "scaled"
backend = "triton"
[tune]
BLOCK     = { values = [128, 256], default = 128 }
NUM_WARPS = { values = [4, 8], default = 4 }
[[launch]]
kernel = "scale"
grid   = ["cdiv(N, BLOCK)"]
args   = ["x", "weight", "out", "N", "x.stride(0)", "eps"]
"""
import triton
import triton.language as tl


@triton.jit
def doubled(values):
    return values * 2


@triton.jit
def scale(x, weight, out, n, step, eps, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + places * step, mask=places < n)
    tl.store(out + places, doubled(values) * eps, mask=places < n)
'''
ARGUMENTS = [
    {"type": "*fp16", "divisible": True},
    {"type": "constexpr", "value": None},
    {"type": "*fp16", "divisible": True},
    {"type": "i32", "divisible": True},
    {"type": "constexpr", "value": 1},
    {"type": "fp32", "divisible": False},
]
LAUNCH = {"kernel": "scale", "arguments": ARGUMENTS, "constexprs": {"BLOCK": 128, "NUM_WARPS": 8}}


def told(launch=None, tunables=("BLOCK", "NUM_WARPS"), architecture="sm_90"):
    return {"architecture": architecture, "tunables": list(tunables), "launches": [{**LAUNCH, **(launch or {})}]}


@pytest.fixture(scope="module")
def compiler():
    with Compiler() as started:
        yield started


def line_of(text, part):
    return text[: text.index(part)].count("\n") + 1


def refused(compiler, text, specification=None, seconds=60):
    reply = compiler.compile(text, specification or told(), seconds)
    assert reply["code"] == 1 and not reply["timed_out"], reply
    return reply["log"]


def test_a_module_has_the_cubin_and_what_its_launch_takes(compiler):
    reply = compiler.compile(SOURCE, told())
    (launch,) = reply["launches"]
    assert (launch["kernel"], launch["threads"], launch["cluster"], launch["cooperative"]) == ("scale", 256, 1, False)
    assert launch["parameters"][:4] == [8, 8, 4, 4]  # the absent tensor and the step of 1 are constants
    assert all(size == 8 for size in launch["parameters"][4:]) and len(launch["parameters"]) <= 6
    assert reply["images"][0].startswith(b"\x7fELF")


def test_equal_launches_share_an_image_and_others_do_not(compiler):
    specification = told()
    wider = {**LAUNCH, "constexprs": {"BLOCK": 256, "NUM_WARPS": 8}}
    specification["launches"] += [specification["launches"][0], wider]
    reply = compiler.compile(SOURCE, specification)
    assert [launch["image"] for launch in reply["launches"]] == [0, 0, 1]
    assert len(reply["images"]) == 2


def test_divisibility_decides_how_wide_memory_is_read(compiler):
    wide = {"constexprs": {"BLOCK": 4096, "NUM_WARPS": 4}}
    narrow = [{**argument, "divisible": False} if argument["type"] == "*fp16" else argument for argument in ARGUMENTS]
    wide_image, narrow_image = (compiler.compile(SOURCE, told(launch))["images"][0] for launch in (wide, {**wide, "arguments": narrow}))
    assert wide_image != narrow_image


def test_a_descriptor_asks_for_memory_of_its_own(compiler):
    body = "    fetched = tl.make_tensor_descriptor(x, [n], [1], [BLOCK])\n    tl.store(out + tl.arange(0, BLOCK), fetched.load([0]))\n"
    text = SOURCE[: SOURCE.index("    places =")] + body
    (launch,) = compiler.compile(text, told())["launches"]
    assert launch["scratch"][0]["bytes"] >= 128 and launch["scratch"][0]["alignment"] >= 64


MAPPED = '''"""autokernel
family  = "scaled"
backend = "triton"
"""
import triton
import triton.language as tl


@triton.jit
def scale_tiles(weight, source, n, unused, target, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    values = source.load([tl.program_id(0) * ROWS, 0]) * (eps + source.shape[0])
    target.store([tl.program_id(0) * ROWS, 0], values.to(target.dtype))
'''
MAPS = [{"type": "tensordesc<fp32[32, 64]>"}, {"type": "tensordesc<fp16[32, 64]>"}]
MAPPED_ARGUMENTS = [ARGUMENTS[0], MAPS[0], ARGUMENTS[3], {"type": "constexpr", "value": None}, MAPS[1], ARGUMENTS[5]]
MAPPED_LAUNCH = {"kernel": "scale_tiles", "arguments": MAPPED_ARGUMENTS, "constexprs": {"ROWS": 32, "COLUMNS": 64}}


def test_a_tensor_map_of_the_host_is_described_as_the_compiler_wants_it(compiler):
    reply = compiler.compile(MAPPED, told(MAPPED_LAUNCH, tunables=()))
    (launch,) = reply["launches"]
    wide, narrow = launch["descriptors"]
    assert (narrow["box"], narrow["swizzle"]) == ([32, 64], 128)
    assert wide["box"][1] * 4 <= wide["swizzle"] == 128  # cut to what the hardware swizzles
    assert wide["passes"] == [{"map": True}, {"shape": 0}, {"shape": 1}, {"stride": 0}, {"stride": 1}]
    assert launch["parameters"][:13] == [8, 128, 4, 4, 8, 8, 4, 128, 4, 4, 8, 8, 4]


def test_parameters_are_those_of_the_machine_code(compiler):
    for text, launch in ((SOURCE, None), (MAPPED, MAPPED_LAUNCH)):
        reply = compiler.compile(text, told(launch, tunables=()))
        assert parameters_of_cubin(reply["images"][0], reply["launches"][0]["kernel"]) == reply["launches"][0]["parameters"]


def parameters_of_cubin(image, kernel):
    """Sizes by the notes of an ELF's .nv.info section: one EIATTR_KPARAM_INFO a parameter."""
    header, size, count, names = struct.unpack_from("<Q", image, 40)[0], *struct.unpack_from("<HHH", image, 58)
    sections = [struct.unpack_from("<IIQQQQ", image, header + i * size) for i in range(count)]
    strings = sections[names][4]
    (notes,) = [image[each[4] : each[4] + each[5]] for each in sections if image[strings + each[0] :].split(b"\0")[0] == f".nv.info.{kernel}".encode()]
    found, at = {}, 0
    while at < len(notes):
        form, attribute, value = struct.unpack_from("<BBH", notes, at)
        at += 4
        if form != 4:  # the value is the attribute's
            continue
        if attribute == 0x17:
            _, ordinal, _, packed = struct.unpack_from("<IHHI", notes, at)
            found[ordinal] = packed >> 18
        at += value
    return [found[i] for i in sorted(found)]


@pytest.mark.parametrize(
    "change, architecture, message",
    [
        ({}, "sm_80", "sm_80 has none: guard its variant with `compute_capability >= 90`"),
        ({1: {"type": "tensordesc<fp32[32, 48]>"}}, "sm_90", "ower of"),
        ({1: ARGUMENTS[0]}, "sm_90", "load"),
    ],
)
def test_a_tensor_map_that_cannot_be_is_refused(compiler, change, architecture, message):
    arguments = [change.get(i, argument) for i, argument in enumerate(MAPPED_ARGUMENTS)]
    assert message in refused(compiler, MAPPED, told({**MAPPED_LAUNCH, "arguments": arguments}, (), architecture))


def test_many_compile_side_by_side(compiler):
    def one(block):
        return compiler.compile(SOURCE, told({"constexprs": {"BLOCK": 2**block, "NUM_WARPS": 4}}))["code"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, [*range(5, 13)] * 2)) == [0] * 16


def inserted(before, line):
    return SOURCE.replace(before, line + "\n" + before, 1)


@pytest.mark.parametrize(
    "text, part, message",
    [
        (SOURCE + "x = (\n", "x = (", "Python does not parse it"),
        (SOURCE + "print('hello')\n", "print('hello')", "has no host code"),
        (SOURCE + "for i in range(3):\n    pass\n", "for i in", "has no host code"),
        (SOURCE + "def host():\n    return 1\n", "def host", "decorate it with @triton.jit"),
        (inserted("@triton.jit\ndef scale", "@triton.autotune(configs=[], key=[])"), "@triton.autotune", "what can be tuned is in [tune]"),
        (inserted("@triton.jit\ndef scale", "@triton.heuristics({})"), "@triton.heuristics", "what can be tuned is in [tune]"),
        (inserted("import triton\n", "import os"), "import os", "imports os"),
        (inserted("import triton\n", "from os import path"), "from os", "imports os"),
        (inserted("import triton\n", "from . import neighbour"), "from . import", "imports a neighbour"),
        (inserted("    values =", "    tl.core.builtins.open('/etc/passwd')"), "tl.core", ".builtins is host code"),
        (inserted("    values =", "    triton.runtime.driver"), "triton.runtime", "is host code"),
        (inserted("    values =", "    tl.load.__globals__"), "tl.load.__globals__", "is private"),
        (inserted("    values =", "    getattr(tl, 'load')"), "getattr", "has no place in device code"),
        (inserted("    values =", "    unknown = missing + 1"), "unknown = missing", "missing is not defined"),
        (inserted("    values =", "    tl.extra.pkgutil.resolve_name('os:system')"), "tl.extra", "is of pkgutil, which is host code"),
        (inserted("    values =", "    tl.core.typing.get_type_hints(doubled)"), "tl.core", "is of typing, which is host code"),
        (inserted("    values =", "    doubled.warmup()"), "doubled.warmup", ".warmup of a device function is host code"),
        (inserted("import triton\n", "from triton.language.core import builtins as harmless"), "from triton", "triton.language.core.builtins is of builtins, which is host code"),
        (inserted("import triton\n", "from triton.language.core import *"), "from triton", "imports * of triton.language.core"),
        (inserted("import triton\n", "from triton.language.extra import pkgutil as harmless"), "from triton", "triton.language.extra.pkgutil is of pkgutil, which is host code"),
        (SOURCE.replace("values * 2", "values * absent"), "values * absent", "absent is not defined"),
        (SOURCE.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, DEPTH: tl.constexpr"), "def scale", "constexpr DEPTH of scale is not in the plan"),
        (SOURCE.replace("eps, BLOCK", "eps, more, BLOCK"), "def scale", "the plan gives scale 6 arguments, it takes 7"),
        (SOURCE.replace("def scale", "def scaled"), 'kernel = "scale"', "the plan launches scale, which is no @triton.jit function"),
    ],
)
def test_what_a_kernel_file_may_not_say_is_refused_with_its_line(compiler, text, part, message):
    log = refused(compiler, text)
    assert log.startswith(f"kernel.py:{line_of(text, part)}:") and message in log, log


def test_a_tunable_that_turns_nothing_is_refused(compiler):
    text = SOURCE.replace("[[launch]]", "DEPTH     = { values = [1, 2], default = 1 }\n[[launch]]")
    log = refused(compiler, text, told(tunables=("BLOCK", "NUM_WARPS", "DEPTH")))
    assert log.startswith(f"kernel.py:{line_of(text, 'DEPTH')}:") and "tunable DEPTH turns nothing" in log


def test_a_number_of_warps_that_cannot_be_is_refused(compiler):
    assert "NUM_WARPS is 3: it must be a power of 2" in refused(compiler, SOURCE, told({"constexprs": {"BLOCK": 128, "NUM_WARPS": 3}}))


def test_an_error_in_a_called_function_names_its_caller_too(compiler):
    text = SOURCE.replace("values * 2", "values * absent")
    assert f"kernel.py:{line_of(text, 'doubled(values) *')}: called from here" in refused(compiler, text)


def test_a_compile_without_end_is_stopped(compiler):
    text = inserted("    values =", "    for _ in tl.static_range(10000000):\n        eps += 1.0")
    reply = compiler.compile(text, told(), seconds=2)
    assert reply["timed_out"] and reply["signal"] == 9
    assert compiler.compile(SOURCE, told())["code"] == 0


def test_a_compile_that_nobody_waits_for_is_stopped(compiler):
    text = inserted("    values =", "    for _ in tl.static_range(10000000):\n        eps += 1.0")
    connection, directory = compiler.connect(text, told(), seconds=600)
    while not children_in(directory):
        time.sleep(0.01)
    connection.close()
    while children_in(directory):
        time.sleep(0.01)


def children_in(directory):
    """Processes whose working directory it is."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == directory.resolve():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_file_that_gets_past_the_reader_still_writes_nothing_elsewhere(tmp_path):
    """The reader of kernel files is one wall; this takes it down and tries the other."""
    escape = tmp_path / "escape.py"
    escape.write_text(
        "import os, pathlib, socket, sys\n"
        "from autokernel.triton_backend import confine\n"
        "inside, outside = sys.argv[1:]\n"
        "print(confine.close(inside, []))\n"
        "pathlib.Path(inside, 'allowed').write_text('x')\n"
        "for attempt in (lambda: pathlib.Path(outside, 'forbidden').write_text('x'), lambda: os.execv('/bin/true', ['true']), lambda: pathlib.Path(outside, 'secret').read_text(), lambda: socket.socket(socket.AF_UNIX), os.setsid):\n"
        "    try:\n"
        "        attempt()\n"
        "        print('not stopped')\n"
        "    except PermissionError:\n"
        "        print('stopped')\n"
    )
    if not _has_landlock():
        pytest.skip("this kernel has no Landlock of version 2")
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    result = subprocess.run([sys.executable, escape, inside, outside], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True)
    assert result.stdout.split("\n")[:6] == [str(["files", "calls"]), *["stopped"] * 5], result
    assert (inside / "allowed").exists()


def _has_landlock():
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 2


def test_the_greeting_says_what_confines_a_compile(compiler):
    assert compiler.greeting["sandbox"] == [*(["files"] if _has_landlock() else []), "calls", "limits"]


def test_only_the_engine_is_served(compiler):
    attempt = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(bytes(4)); print(s.recv(1))"
    result = subprocess.run([sys.executable, "-c", attempt, compiler.socket], capture_output=True, text=True)
    assert result.stdout in ("b''\n", ""), result
    assert compiler.compile(SOURCE, told())["code"] == 0


def test_the_log_is_what_the_compile_wrote_not_what_it_links_to(compiler, tmp_path):
    """A name cannot lead the supervisor, which is not confined, to another file."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    text = inserted("    values =", "    for _ in tl.static_range(10000000):\n        eps += 1.0")
    connection, directory = compiler.connect(text, told(), seconds=2)
    while not (directory / "log").exists():
        time.sleep(0.01)
    (directory / "log").unlink()
    (directory / "log").symlink_to(secret)
    with connection:
        (size,) = struct.unpack("<I", connection.recv(4, socket.MSG_WAITALL))
        assert "secret" not in connection.recv(size, socket.MSG_WAITALL).decode()
