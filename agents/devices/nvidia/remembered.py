"""Results of the checks at a GPU's first use, kept on disk: it holds as long as the driver does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one GPU was seen to do under one driver.

    `settle_s` is the longest that a clock took to follow a change under load, None until one was
    seen. `reach_mhz` is the highest clock that it went to by itself, under full load and with nothing
    slowing it. `refused` has the knobs that it refused when they were set, and in what words.
    `loaded_ratio` is the energy counter over the integral of power under load, None until it was
    checked; `counts_module` is whether that is the power of the whole module.
    """

    uuid: str
    driver: str
    settle_s: float | None = None
    loaded_ratio: float | None = None
    counts_module: bool = False
    reach_mhz: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


class Memory:
    """The findings of one GPU; without a folder they last as long as the process.

    A file that does not fit, of another GPU or another driver, counts for nothing.
    """

    def __init__(self, folder: Path | None, uuid: str, driver: str) -> None:
        self._path = folder / f"nvidia-{uuid}.json" if folder else None
        self.findings = Findings(uuid=uuid, driver=driver)
        try:
            stored = Findings(**json.loads(self._path.read_text("utf-8"))) if self._path else None
        except (OSError, ValueError, TypeError):
            return
        numbers = [] if stored is None else [stored.settle_s, stored.loaded_ratio, stored.reach_mhz]
        fits = all(n is None or (isinstance(n, float) and 0.0 <= n < 1e6) for n in numbers)
        fits = fits and stored is not None and isinstance(stored.refused, dict)
        if stored is not None and fits and (stored.uuid, stored.driver) == (uuid, driver):
            self.findings = stored

    def saw_settling(self, seconds: float) -> None:
        """Note how long a clock took to follow. Raises StoreError."""
        if seconds > (self.findings.settle_s or 0.0):
            self._keep(replace(self.findings, settle_s=seconds))

    def saw_reach(self, mhz: float) -> None:
        """Note how high the clock went by itself. Raises StoreError."""
        if mhz > (self.findings.reach_mhz or 0.0):
            self._keep(replace(self.findings, reach_mhz=float(mhz)))

    def saw_refusal(self, knob: str, why: str) -> None:
        """Note that the GPU does not take a knob. Raises StoreError."""
        self._keep(replace(self.findings, refused={**self.findings.refused, knob: why}))

    def saw_counter(self, ratio: float, *, counts_module: bool) -> None:
        """Note what the check of the energy counter showed. Raises StoreError."""
        self._keep(replace(self.findings, loaded_ratio=ratio, counts_module=counts_module))

    def forget_counter(self) -> None:
        """Note that the energy counter is to be checked again. Raises StoreError."""
        self._keep(replace(self.findings, loaded_ratio=None, counts_module=False))

    def _keep(self, findings: Findings) -> None:
        self.findings = findings
        if self._path is not None:
            files.write(self._path, json.dumps(asdict(findings)))
