"""GPUs with one NVML call that returns any error, or that is missing in the library.

The calls are those that the fake library exports, the errors those that the binding knows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pynvml

from agents.actuator.driver import _described
from agents.devices.nvidia import device, diagnosis
from agents.devices.nvidia import nvml as connection
from agents.devices.nvidia.knobs import discover
from tests.fuzz.crashes import Crashes
from tests.nvml.fake import A100, SOURCE, FakeNvml
from tuner.errors import TuningError

MISSING = -1
"""In place of a code: the library lacks the function, like that of an old driver."""
LATEST = 12
"""The wrong answer is one of the first this many of the call."""
CALLS = sorted({*re.findall(r"^int (nvml\w+)\(", SOURCE.read_text(), re.MULTILINE)})
CODES = sorted(
    {int(getattr(pynvml, n)) for n in dir(pynvml) if re.fullmatch("NVML_ERROR_[A-Z_]+", n)}
)


class Answers:
    """The fake library, with one call that returns a code from its Nth time on."""

    def __init__(self, library: Any, call: str, code: int, after: int) -> None:  # noqa: ANN401 - ctypes
        self._library, self._call, self._code, self._left = library, call, code, after

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a function of the library
        if name != self._call:
            return getattr(self._library, name)
        if self._code == MISSING:
            raise AttributeError(name)
        return self._answer

    def _answer(self, *arguments: object) -> int:
        if self._left <= 0:
            return self._code
        self._left -= 1
        return int(getattr(self._library, self._call)(*arguments))


class Gpus:
    """A fake with two GPUs, and the cases over it."""

    def __init__(self, library: Path, folder: Path, crashes: Crashes) -> None:
        self._nvml = FakeNvml(library, folder / "nvml.state", manual=True, root_only=0.0)
        self._folder, self._crashes = folder, crashes

    def cases(self, rng: random.Random) -> Iterator[Callable[[], None]]:
        """Yield each call with each code at its first use; then random ones at later uses."""
        pairs = list(product(CALLS, (*CODES, MISSING)))
        rng.shuffle(pairs)
        for call, code in pairs:
            yield partial(self._case, call, code, 0)
        while True:
            yield partial(
                self._case, rng.choice(CALLS), rng.choice((*CODES, MISSING)), rng.randint(1, LATEST)
            )

    def _case(self, call: str, code: int, after: int) -> None:
        answer = "is not there" if code == MISSING else f"answers {code}"
        name = f"{call} {answer} after {after} calls"
        with self._crashes.case(name):
            self._use(Answers(self._nvml.binding, call, code, after))
            for who, job in (
                ("agent", self._agent),
                ("actuator", self._actuator),
                ("doctor", self._doctor),
            ):
                with self._crashes.contained(f"{who}: {name}"):
                    job()
        self._use(self._nvml.binding)
        for driver in discover():
            for knob in driver.ranges():
                driver.write(knob, None)

    def _use(self, library: object) -> None:
        with suppress(TuningError, pynvml.NVMLError):
            connection._disconnect()
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()

    def _agent(self) -> None:
        side = device.attach(
            A100,
            socket=self._folder / "nobody.sock",
            state_dir=self._folder,
            clock=self._nvml,
            every=lambda *_: lambda: None,
        )
        try:
            window = side.meter.start()
            try:
                self._nvml.sleep(0.5)
                window.read()
            finally:
                with suppress(TuningError):
                    window.stop()
        finally:
            side.close()

    def _actuator(self) -> None:
        for driver in discover():
            about = _described(driver)
            for knob, values in about.get("ranges", {}).items():
                for value in (values[0], None):
                    with suppress(TuningError):
                        driver.write(knob, value)
                with suppress(TuningError):
                    driver.read()

    def _doctor(self) -> None:
        list(diagnosis.examine(self._folder, self._folder / "nobody.sock", self._nvml))
