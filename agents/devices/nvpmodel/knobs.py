"""The power mode that root sets on a Jetson board, through NVIDIA's nvpmodel.

Sources: NVIDIA's Jetson Linux guide on nvpmodel and its configuration. A mode that powers other parts of
the GPU off than the present one needs a reboot: it is not offered, and nvpmodel's question whether to
reboot is answered with no. Separate from the clocks (`jetson`), because a mode sets all of them: the files
that the configuration names are restored after the mode, with the CPUs that were online.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.actuator.driver import Value
from agents.actuator.kernel_text import Away, content, put
from agents.actuator.programs import output
from tuner.errors import ActuationError

MODE = "board.power_mode"
PROGRAM, CONFIGURATION = "usr/sbin/nvpmodel", "etc/nvpmodel.conf"
DEADLINE_S = 4.0
BLOCK = re.compile(r"< *POWER_MODEL +ID=(\d+) +NAME=(\S+) *>([^<]*)")
DEFAULT = re.compile(r"< *PM_CONFIG +DEFAULT=(\d+) *>")
GATED = re.compile(r"^\s*(\w+ \w*PG_MASK\w* +\w+)", re.MULTILINE)
"""A mode's masks of the parts that it powers off until the next boot."""
MOVED = re.compile(r"^\s*(?:CORE_\d+|M(?:AX|IN)_FREQ\w*) +/(sys/\S+)", re.MULTILINE)
"""A file that a mode sets: the online state of a CPU, or a limit of a clock."""
FILES, CEILINGS = "board.files", "board.ceilings"
"""Knob names for those files; the files of `CEILINGS` show the limit in force."""


class PowerModes:
    """A board's power modes; a KnobDriver. Every method raises ActuationError.

    A mode is in `lasting`, because NVIDIA's guide says: "the mode persists across power cycles".
    """

    uuid, knobs, epoch = "nvpmodel", (MODE,), "files"
    lasting, ceilings = (MODE,), (CEILINGS,)
    moves: Mapping[str, Sequence[str]] = {MODE: (FILES, CEILINGS)}

    def __init__(self, root: Path) -> None:
        """Read the configuration of the board whose files are at `root`."""
        self._program = root / PROGRAM
        text = content(root / CONFIGURATION)
        self._modes = {name: (number, body) for number, name, body in BLOCK.findall(text)}
        self._moved = [str(root / path) for path in dict.fromkeys(MOVED.findall(text))]
        self._default = next(iter(DEFAULT.findall(text)), "")
        self.board = str(content(root / "proc/device-tree/model"))

    @property
    def defaults(self) -> Mapping[str, Value]:
        """The mode in which the board starts by default."""
        names = {number: name for name, (number, _) in self._modes.items()}
        return {MODE: names[self._default]} if self._default in names else {}

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the modes that need no reboot; none if the present mode is not in the configuration."""
        gated = {name: {*GATED.findall(body)} for name, (_, body) in self._modes.items()}
        now = gated.get(str(self.read()[MODE]))
        return {MODE: tuple(sorted(n for n in gated if now is not None and gated[n] == now))}

    def read(self) -> Mapping[str, Value | None]:
        """Return the present mode."""
        shown = re.search(r"NV Power Mode: *(\S+)", self._run("-q"))
        if not shown:
            raise ActuationError(f"{self._program} -q reports no mode")
        return {MODE: shown[1]}

    def entries(self, names: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the mode and each file that a mode sets; for unreadable files the reasons."""
        answers, silent = {MODE: (MODE, self.read()[MODE], None)}, dict[str, str]()
        for name in dict.fromkeys(n for n in (*self._moved, *names) if n != MODE):
            kind = CEILINGS if "max_freq" in name else FILES
            try:
                answers[name] = (kind, content(Path(name)), None)
            except Away:
                continue
            except ActuationError as error:
                silent[name] = str(error)
        return answers, silent

    def write(self, knob: str, value: Value | None) -> None:
        """Set a mode, None for the default one, or write a file that a mode has changed.

        Raises:
            ActuationError: the file rejects it, or the mode needs a reboot.
        """
        if knob != MODE:
            put(Path(knob), str(value))
            return
        if value is None:
            value = self.defaults.get(MODE, "")
        if value not in self._modes:
            raise ActuationError(f"there is no power mode {value!r}", hint=", ".join(self._modes))
        answer = self._run("-m", self._modes[str(value)][0])
        if self.read()[knob] != value:
            raise ActuationError(f"the mode {value} was not set: {answer.strip()[-200:]}")

    def _run(self, *arguments: str) -> str:
        """Run nvpmodel, answer its question with no, and return its output."""
        about = f"nvpmodel {' '.join(arguments)}"
        return output(about, self._program, *arguments, seconds=DEADLINE_S, stdin="NO\n")


def discover(path: str = "/") -> Sequence[PowerModes]:
    """Return the board at `path`, an empty list without nvpmodel. Raises ActuationError."""
    root = Path(path)
    return [PowerModes(root)] if (root / PROGRAM).exists() else []
