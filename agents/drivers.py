"""What root uses to write one vendor's hardware: the seam between the actuator and its drivers.

Whatever the actuator loads is audited with it: a driver imports the standard library, its vendor's
binding, this module and `tuner.errors`, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Value = bool | int | float | str


class KnobDriver(Protocol):
    """One device. Every method raises ActuationError, or DeviceLost where it no longer answers.

    `uuid` names the device for good, `driver` is the driver's version. `epoch` is another one once
    the driver was reloaded and has forgotten what was set; it is asked for anew at every use.
    """

    uuid: str
    board: str
    driver: str

    @property
    def knobs(self) -> Sequence[str]:
        """The knobs that devices of this kind may have; this one may refuse some."""
        ...

    @property
    def epoch(self) -> str:
        """Which load of the driver this is."""
        ...

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""
        ...

    def read(self) -> Mapping[str, Value | None]:
        """Return each knob's value in force; None where the hardware does not tell it."""
        ...

    def write(self, knob: str, value: Value) -> None:
        """Set a knob to a supported value, or to one that `read` told before."""
        ...

    def reset(self, knob: str) -> None:
        """Put a knob to the driver's own default: unlock clocks, default power limit."""
        ...
