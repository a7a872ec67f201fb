"""How much risk a search takes: three dials for each level of safety. `tuner.guard` says what is safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core import Safety


@dataclass(frozen=True, slots=True)
class Caution:
    """What things cost, as shares of what the baseline costs.

    `violation` is for a window that breaks a limit by a tenth, half of it for one that barely does;
    `wrong` for proposing a setting that breaks one; `trial` for a window.
    """

    violation: float
    wrong: float
    trial: float


import os
_BALANCED = Caution(violation=float(os.environ.get('VIO','0.1')), wrong=float(os.environ.get('WRO','1.0')), trial=float(os.environ.get('TRI','0.001')))

CAUTION: Mapping[Safety, Caution] = {
    Safety.STRICT: Caution(violation=1.0, wrong=1.0, trial=0.001),
    Safety.BALANCED: _BALANCED,
    Safety.ADVISE: _BALANCED,
    Safety.OFF: Caution(violation=0.0, wrong=1.0, trial=0.001),
}
