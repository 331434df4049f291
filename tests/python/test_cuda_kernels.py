"""Every kernel.cu compiles with NVRTC to sm_90a: for each dtype, each option and the corners of its tunables. No GPU is needed."""
import ctypes
import itertools
import pathlib
import re

import pytest

tomllib = pytest.importorskip("tomllib")

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
FILES = sorted(KERNELS.glob("*/kernel.cu"))
TYPES = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}
INDEX_TYPES = {"int64": "int64_t", "int32": "int32_t", "bool": "bool"}


def _places():
    try:
        import nvidia
    except ImportError:
        roots = []
    else:
        roots = [pathlib.Path(p) for p in nvidia.__path__]
    wheels = [root / part for root in roots for part in ("cu13", "cuda_nvrtc", "cuda_runtime")]
    return [*wheels, pathlib.Path("/usr/local/cuda")]


class Nvrtc:
    """A library and the folder of headers that belong to it."""

    def __init__(self, library, headers):
        self._headers = headers
        for builtins in library.parent.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(builtins))
        self._library = ctypes.CDLL(str(library))

    def compile(self, text, macros):
        """The log of a compile that succeeded."""
        program = ctypes.c_void_p()
        # Not -D: NVRTC's own header has template parameters called T.
        text = "".join(f"#define {name} {value}\n" for name, value in macros.items()) + "#line 1\n" + text
        assert self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
        options = ["--gpu-architecture=sm_90a", "-std=c++20", "--fmad=true", "--ptxas-options=-v", f"-I{KERNELS}/include", f"-I{self._headers}"]
        raw = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = self._library.nvrtcCompileProgram(program, len(options), raw)
        size = ctypes.c_size_t()
        self._library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self._library.nvrtcGetProgramLog(program, log)
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        assert status == 0, f"{macros}\n{log.value.decode()}"
        return log.value.decode()


def _libraries():
    """[(library, headers)] of the NVRTC that PyTorch brings, then of a toolkit, each where it is there."""
    headers = [place / "include" for place in _places() if (place / "include/cuda_fp16.h").exists()]
    found = [next(iter(sorted(place.glob("lib*/libnvrtc.so*"))), None) for place in _places()]
    own = [place / "include" if (place / "include/cuda_fp16.h").exists() else next(iter(headers), None) for place in _places()]
    return [(library, include) for library, include in zip(found, own, strict=True) if library and include]


def _opened(library):
    return Nvrtc(*library) if library else pytest.skip("NVRTC or the CUDA headers are not installed")


@pytest.fixture(scope="module")
def nvrtc():
    return _opened(next(iter(_libraries()), None))


@pytest.fixture(scope="module", params=_libraries() or [None], ids=lambda library: library[0].resolve().name if library else "none")
def each_nvrtc(request):
    """Versions differ in what they take for code of the device."""
    return _opened(request.param)


def _block(text):
    return tomllib.loads(re.match(r"/\*autokernel\n(.*?)\*/", text, re.DOTALL).group(1))


def _tunables(block):
    return {name: value for name, value in block["tune"].items() if name != "require"}


def _macros(family, dtype, point, options, dims=()):
    """`dims`: of the binding for which the engine would compile."""
    types = {f"T_{t['name']}": INDEX_TYPES.get(t.get("dtype"), TYPES[dtype]) for t in family["tensor"]}
    known = {f"AK_DIM_{name}": value for name, value in dict(dims).items() if name != "layout"}
    return {**point, **family.get("options", {}), **options, **types, "T": TYPES[dtype], **known}


def _default(tunables):
    return {name: value["default"] for name, value in tunables.items()}


def _smallest(tunables):
    return {name: min(value["values"]) for name, value in tunables.items()}


def _largest(block, dtype, order=iter):
    """The defaults with one after the other as large as the requirements let it be."""
    tunables = _tunables(block)
    largest = _default(tunables)
    for name in order(list(tunables)):
        raised = ({**largest, name: each} for each in sorted(tunables[name]["values"], reverse=True))
        largest = next((point for point in raised if _allowed(block, point, dtype)), largest)
    return largest


def _corners(block, dtype):
    return [_smallest(_tunables(block)), _largest(block, dtype)]


def _allowed(block, point, dtype):
    return all(_holds(requirement, point, dtype) for requirement in block["tune"].get("require", []))


def _option_sets(family):
    """The options that some spelling sets, each set once."""
    sets = [{}, *(spelling.get("options", {}) for spelling in family["spelling"])]
    return [dict(items) for items in dict.fromkeys(tuple(sorted(options.items())) for options in sets)]


def _load(path):
    text = path.read_text()
    return text, _block(text), tomllib.loads((path.parent / "family.toml").read_text())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_compiles_and_does_not_spill_at_its_default(each_nvrtc, path, dtype):
    text, block, family = _load(path)
    point = _default(_tunables(block))
    log = each_nvrtc.compile(text, _macros(family, dtype, point, {}))
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert spills and all(set(numbers) == {"0"} for numbers in spills), log


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_compiles_for_the_bindings_of_its_stages(nvrtc, path):
    """Each binding, and each of its options, which differ for whatever a file compiles for known sizes alone."""
    text, block, family = _load(path)
    if not re.search(r"\bAK_DIM_", text):
        pytest.skip("its code is the same for all bindings")
    sweep, options = family["stages"]["sweep"], _option_sets(family)
    default = _default(_tunables(block))
    points = [default, _largest(block, "float32"), default, _largest(block, "float32", reversed)]
    cases = zip(*map(itertools.cycle, (TYPES, sweep, options, points)))
    for dtype, dims, chosen, point in itertools.islice(cases, max(len(sweep), len(options))):
        nvrtc.compile(text, _macros(family, dtype, point, chosen, dims))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_compiles_with_its_options(nvrtc, path):
    text, block, family = _load(path)
    smallest = _smallest(_tunables(block))
    for dtype, options in zip(itertools.cycle(TYPES), _option_sets(family)):
        nvrtc.compile(text, _macros(family, dtype, smallest, options))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_compiles_at_the_corners_of_its_tunables(nvrtc, path):
    text, block, family = _load(path)
    for dtype in ("float32", "float16"):
        for point in _corners(block, dtype):
            nvrtc.compile(text, _macros(family, dtype, point, {}))


def _holds(requirement, point, dtype):
    """Whether a requirement on tunables alone holds; one on anything else is taken to."""
    names = {**point, "size": 4 if dtype == "float32" else 2}
    expression = requirement.replace("sizeof(T)", "size").replace("&&", " and ").replace("||", " or ").replace("/", "//")
    try:
        return bool(eval(expression, {}, names))
    except NameError:
        return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_plans_name_kernels_of_the_source_with_as_many_arguments(path):
    text, block, _ = _load(path)
    kernels = {
        name: parameters.count(",") + 1
        for name, parameters in re.findall(r'extern "C" __global__ void[^;{]*?(\w+)\(([^(){}]*)\)\s*\{', text)
    }
    plans = [block, *block.get("variant", [])]
    launches = [launch for plan in plans for kind in ("launch", "prepare") for launch in plan.get(kind, [])]
    assert launches
    for launch in launches:
        assert kernels[launch["kernel"]] == len(launch["args"]), launch["kernel"]
