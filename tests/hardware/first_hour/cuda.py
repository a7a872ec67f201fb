"""The CUDA driver by ctypes: a context, two kernels, and products of both without torch or a toolkit."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_uint64, c_void_p
from typing import Any

from tests.hardware.first_hour.kernels import COMPUTE, MEMORY, PTX

DRIVER = "libcuda.so.1"
THREADS, BLOCKS = 256, 2048
ROUNDS = 20_000
"""4 ms or so of an A100: 5·10⁵ threads, 16 operations a round."""
WORDS = 64 * 2**20
"""256 MiB are copied: larger than every L2."""
NO_COMPILER = 221
WORDS_OF = {
    NO_COMPILER: "libnvidia-ptxjitcompiler is missing: in a container, add `compute` to"
    " NVIDIA_DRIVER_CAPABILITIES; on a host, install the driver's compute package",
    100: "the driver shows no GPU: see CUDA_VISIBLE_DEVICES",
    222: "this driver is too old for PTX 6.0",
}


class NoCuda(Exception):
    """The GPU cannot be loaded, and why."""


class Cuda:
    """The first GPU that CUDA_VISIBLE_DEVICES shows, with a context and both kernels in it."""

    def __init__(self) -> None:
        """Open it.

        Raises:
            NoCuda: there is no driver, no GPU, or no compiler of kernels.
        """
        try:
            self._lib = ctypes.CDLL(DRIVER)
        except OSError as error:
            raise NoCuda(f"no CUDA driver: {error}") from None
        device, context, module = c_int(), c_void_p(), c_void_p()
        self._call("cuInit", c_uint(0))
        self._call("cuDeviceGet", byref(device), c_int(0))
        name = ctypes.create_string_buffer(96)
        self._call("cuDeviceGetName", name, c_int(96), device)
        self.name = name.value.decode(errors="replace")
        self._call("cuCtxCreate_v2", byref(context), c_uint(4), device)  # 4: wait without spinning
        self._context = context
        text = c_char_p(PTX.encode())
        self._call("cuModuleLoadDataEx", byref(module), text, c_uint(0), c_void_p(), c_void_p())
        self._buffer = c_uint64()
        self._call("cuMemAlloc_v2", byref(self._buffer), ctypes.c_size_t(8 * WORDS))
        self._kernels = {name: self._kernel(module, name) for name in (COMPUTE, MEMORY)}

    def run(self, kernel: str, blocks: int = BLOCKS) -> None:
        """Run a kernel to its end; call `enter` first in each thread. Raises NoCuda."""
        most = c_uint(ROUNDS if kernel == COMPUTE else WORDS)
        given = [ctypes.cast(byref(value), c_void_p) for value in (self._buffer, most)]
        arguments = (c_void_p * len(given))(*given)
        shape = [c_uint(n) for n in (blocks, 1, 1, THREADS, 1, 1, 0)]
        self._call(
            "cuLaunchKernel", self._kernels[kernel], *shape, c_void_p(), arguments, c_void_p()
        )
        self._call("cuCtxSynchronize")

    def enter(self) -> None:
        """Make the context this thread's. Raises NoCuda."""
        self._call("cuCtxSetCurrent", self._context)

    def _kernel(self, module: c_void_p, name: str) -> c_void_p:
        function = c_void_p()
        self._call("cuModuleGetFunction", byref(function), module, c_char_p(name.encode()))
        return function

    def _call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - ctypes' own kinds
        """Call the driver. Raises NoCuda."""
        if (code := getattr(self._lib, name)(*arguments)) != 0:
            text = c_char_p()
            self._lib.cuGetErrorString.argtypes = (c_int, POINTER(c_char_p))
            self._lib.cuGetErrorString(code, byref(text))
            why = WORDS_OF.get(code) or (text.value or b"").decode(errors="replace")
            raise NoCuda(f"{name}: {why} (code {code})")
