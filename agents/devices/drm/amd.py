"""The clock of an AMD GPU: a mask of the rows of its table, else the upper limit of a fine one.

Sources: the kernel's Documentation/gpu/amdgpu/thermal.rst (a mask counts only in the level `manual`, and
cannot be read back). A table of up to three rows has a lowest, a present and a highest clock: it is no
list (Navi 10 and later, MI300). navi10_ppt.c, smu_v13_0_6_ppt.c (takes limits in two levels only, and keeps
them staged after `auto`) and yellow_carp_ppt.c (shows a limit before its commit, which is a second write);
amdgpu-clocks 63 (a higher power limit resets committed clocks).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from agents.actuator import kernel_text
from agents.actuator.driver import Value
from agents.devices.drm.card import CLOCK, LIMIT, STEP_MHZ, Card
from tuner.errors import ActuationError, KnobRefused

MASK, LIMITS, MODE = "pp_dpm_sclk", "pp_od_clk_voltage", "power_dpm_force_performance_level"
SETTABLE = ("manual", "perf_determinism")
"""Levels in which a limit of the clock counts; a mask does in the first alone."""
ROW = re.compile(r"^\d+: (\d{1,6})M[Hh]z", re.M)
PAIR = re.compile(r"^OD_SCLK:\n0: +(\d{1,6})M[Hh]z\n1: +(\d{1,6})M[Hh]z", re.M)
RANGE = re.compile(r"\A(?!.*VDD).*^OD_RANGE:\nSCLK: +(\d{1,6})M[Hh]z +(\d{1,6})M[Hh]z", re.M | re.S)
"""The ends of an APU's clock: its table shows the limits. A card's range includes overclocking."""
LEAST_LEVELS = 4
SINGLE = f"{MASK} lists only the lowest, present and highest clock, {LIMITS} none"
FOREIGN = f"{MODE} is manual, and its mask cannot be read back; set it to auto"


@dataclass(eq=False)
class AmdCard(Card):
    """One GPU of the kernel driver amdgpu. Its level is an entry of the clock, written after it."""

    def __post_init__(self) -> None:
        there = {name: (self.folder / name).exists() for name in (MASK, LIMITS)}
        texts = [self._text(name) if there[name] else "" for name in there]
        self.fine = bool(PAIR.search(texts[1])) and len(ROW.findall(texts[0])) < LEAST_LEVELS
        self.foreign = not self.fine and kernel_text.words(self.folder / MODE) == {SETTABLE[0]}
        self.counts = SETTABLE if self.fine else SETTABLE[:1]
        self.ours = self.theirs = False
        self.staged = (CLOCK,) if self.fine else ()
        self.moves = {LIMIT: (CLOCK,)} if self.fine else {}

    @property
    def resets(self) -> dict[str, str]:
        """Return the texts that a GPU reset leaves without another trace, by entry."""
        mhz = self.ranges().get(CLOCK) if self.fine else None
        return {**super().resets, **({LIMITS: str(mhz[-1])} if mhz else {})}

    def plan(self, knob: str, value: Value | None) -> dict[str, Any]:
        """Return the text for each file of a knob; None is the driver's default."""
        name = LIMITS if self.fine else MASK
        if knob != CLOCK or name not in self._names(CLOCK):
            return super().plan(knob, value)
        if not value:
            return {name: None, MODE: "auto"}
        rows = [str(n) for n, mhz in enumerate(self._levels()) if mhz <= float(value)]
        if self.theirs:
            raise ActuationError(f"{self.uuid}: {FOREIGN}")
        level = self._text(MODE)
        text = f"{float(value):.0f}" if self.fine else " ".join(rows)
        return {name: text, MODE: level if level in self.counts else SETTABLE[0]}

    def entries(self, names: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
        """Return each file's knob and text; see Card. Without our entry, a mask in `manual` is not ours."""
        answers, silent = super().entries(names)
        manual = answers.get(MODE, ("", ""))[1] == SETTABLE[0]
        self.theirs = manual and not (self.fine or self.ours or {MODE, CLOCK} & {*names})
        return answers, silent

    def _clocks(self) -> list[int]:
        """Return the clock ceilings in MHz, ascending. Raises ActuationError."""
        if not self._names(CLOCK):
            return []
        levels = self._levels()
        if self.fine:
            floor = self._limit(0)
            return [
                n
                for n in kernel_text.span([0, levels[-1]], STEP_MHZ)
                if n > max(floor, levels[0] - 1)
            ]
        if self.foreign or len(levels) < LEAST_LEVELS:
            raise ActuationError(FOREIGN if self.foreign else SINGLE)
        return sorted({*levels})

    def _files(self) -> dict[str, str]:
        """Return each entry's knob, in the order to write them."""
        files = super()._files()
        return files | ({MODE: CLOCK} if CLOCK in files.values() else {})

    def _names(self, knob: str) -> list[str]:
        """Return the entries of a knob but the level."""
        return super()._names(knob) if knob != CLOCK or not self.fine else [LIMITS]

    def _levels(self) -> list[int]:
        """Return the clocks of the table in MHz, by row. Raises ActuationError, DeviceLost."""
        if self.fine and (ends := RANGE.search(self._text(LIMITS))):
            return [int(mhz) for mhz in ends.groups()]
        return [int(mhz) for mhz in ROW.findall(self._text(MASK))]

    def _limit(self, row: int = 1) -> int:
        """Return the upper limit of the clock in MHz, or the lower. Raises ActuationError, DeviceLost."""
        if not (pair := PAIR.search(self._text(LIMITS))):
            raise ActuationError(f"{self.uuid}: {LIMITS} no longer has limits of the clock")
        return int(pair[row + 1])

    def _shown(self, name: str) -> str | None:
        """Return an entry's text; None for a mask. Raises ActuationError, DeviceLost."""
        text = str(self._limit()) if name == LIMITS else self._text(name)
        return None if name == MASK else text

    def _set(self, name: str, text: str | None) -> None:
        """Set one file; None sets its default. Raises ActuationError, DeviceLost.

        The whole mask is written before the level leaves `manual`, and after another program's change of
        it: a narrower one would stay unseen. The level goes back last: else what is left looks like a GPU
        after a reset. Only a clock that needs another level changes it. A refused value leaves nothing
        behind.
        """
        if name not in (MASK, LIMITS, MODE):
            super()._set(name, text)
            return
        level = self._text(MODE)
        if name == MODE:
            if level == SETTABLE[0] and text != level and not self.fine:
                self._put_clock(MASK, None)
            self._put(MODE, text or "auto")
            self.ours = text == SETTABLE[0]
            return
        try:
            self._put_clock(name, text)
            return
        except KnobRefused:
            if level in self.counts:
                raise
        self._put(MODE, SETTABLE[0])
        self.ours = True
        try:
            self._put_clock(name, text)
        except KnobRefused:
            self._put(MODE, level)
            raise
        if text in (None, self.resets.get(name)):
            self._put(MODE, level)

    def _put_clock(self, name: str, text: str | None) -> None:
        """Write the mask, or stage and commit a limit; None is the default. A refused limit is unstaged."""
        levels = self._levels()
        if name == MASK:
            self._put(MASK, text or " ".join(map(str, range(len(levels)))))
            return
        before = self._limit()
        try:  # not `r`, which resets a floor and voltages, too
            for line in (f"s 1 {text or levels[-1]}", "c"):
                self._put(LIMITS, line)
        except KnobRefused:
            self._put(LIMITS, f"s 1 {before}")
            raise
