"""The fake NVML of the tests: compiled by gcc, with its state in a file, set by extra functions."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("fakenvml.c")
CUDA_SOURCE = Path(__file__).with_name("fakecuda.c")
LIBRARY = "libnvidia-ml.so.1"
A100 = "GPU-fa4e0000-0000-4000-8000-000000000000"
A40 = "GPU-fa4e0001-0000-4000-8000-000000000001"
START_S = 1000.0
TOOL = "fakenvml"


def compiler() -> str | None:
    """Return the C compiler, None if there is none."""
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path) -> Path:
    """Compile the library into a folder and return its path.

    It is found by its file's name. It has no soname, so that loading it by its path does not replace
    NVML for the rest of the process.
    """
    library = folder / LIBRARY
    _compile(library, "-shared", "-fPIC")
    return library


def build_tool(folder: Path) -> Path:
    """Compile the program that sets the state from a shell and return its path."""
    _compile(folder / TOOL, "-DFAKENVML_TOOL")
    return folder / TOOL


def build_cuda(library: Path) -> Path:
    """Compile the CUDA driver that loads GPU 0 of the fake beside it and return its path."""
    cuda = library.with_name("libcuda.so.1")
    _compile(cuda, "-shared", "-fPIC", str(library), source=CUDA_SOURCE)
    return cuda


def _compile(output: Path, *options: str, source: Path = SOURCE) -> None:
    command = [compiler() or "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(output)]
    subprocess.run([*command, str(source), *options, "-lm", "-lpthread"], check=True)


class FakeNvml:
    """One state of the fake. The library in this process uses the state created last."""

    def __init__(self, library: Path, state: Path, *, manual: bool, **begin: float) -> None:
        """Create a new state; with `manual` time advances only by `sleep`."""
        self.library = library
        self.state = state
        self.binding = ctypes.CDLL(str(library))
        self.binding.fakenvml_use(str(state).encode())
        self.binding.fakenvml_set.argtypes = (ctypes.c_uint, ctypes.c_char_p, ctypes.c_double)
        self._now_s = START_S
        if manual:
            self.set("manual_s", START_S)
            self.set("now_s", START_S)
        for name, value in begin.items():
            self.set(name, value)

    def set(self, name: str, value: float, gpu: int = 0) -> None:
        """Set a value of the state, or switch a fault."""
        assert self.binding.fakenvml_set(gpu, name.encode(), value) == 0, name

    def refuse(self, call: str, code: int, gpu: int = 0) -> None:
        """Make a call like `nvmlDeviceGetName` return an error code on one GPU; 0 ends that."""
        self.set(call, float(code), gpu)

    def get(self, name: str, gpu: int = 0) -> float:
        """Return a value of the state."""
        value = ctypes.c_double()
        assert self.binding.fakenvml_get(gpu, name.encode(), ctypes.byref(value)) == 0, name
        return value.value

    def environment(self) -> Mapping[str, str]:
        """Return the environment with which another process uses this library and this state."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKENVML_STATE": str(self.state),
        }

    # A clock of the fake's own time, for agents.

    def monotonic(self) -> float:
        """Return the fake's manual time in seconds."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Advance the fake's manual time."""
        self._now_s += max(0.0, seconds)
        self.set("manual_s", self._now_s)


if __name__ == "__main__":
    build(out := Path(sys.argv[1]))
    build_tool(out)
