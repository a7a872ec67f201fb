"""Results of the checks at a GPU's first use, kept on disk and valid while the driver is the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Observations of one GPU under one driver.

    `settle_s` is the longest time that a clock took to follow a change under load, None before the first
    change. `reach_mhz` is the highest clock that the GPU reached by itself under full load, with nothing
    throttling it. `refused` maps each knob that the GPU refused to set to its message. `loaded_ratio` is
    the growth of the energy counter under load, divided by the integral of power; None before the check.
    `counts_module` is set if that power is the whole module's. `rest_share` is the greatest relative
    difference between the two at rest.
    """

    uuid: str
    driver: str
    settle_s: float | None = None
    loaded_ratio: float | None = None
    counts_module: bool = False
    rest_share: float | None = None
    reach_mhz: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


class Memory:
    """The findings of one GPU; without a folder they last as long as the process.

    A file with invalid values, or of another GPU or driver, is ignored.
    """

    def __init__(self, folder: Path | None, uuid: str, driver: str) -> None:
        self._path = folder / f"nvidia-{uuid}.json" if folder else None
        self.findings = Findings(uuid=uuid, driver=driver)
        try:
            stored = Findings(**json.loads(self._path.read_text("utf-8"))) if self._path else None
        except (OSError, ValueError, TypeError):
            return
        names = ("settle_s", "loaded_ratio", "rest_share", "reach_mhz")
        numbers = [getattr(stored, name) for name in names] if stored else []
        fits = all(n is None or (isinstance(n, float) and 0.0 <= n < 1e6) for n in numbers)
        fits = fits and stored is not None and isinstance(stored.refused, dict)
        if stored is not None and fits and (stored.uuid, stored.driver) == (uuid, driver):
            self.findings = stored

    def saw_settling(self, seconds: float) -> None:
        """Store the time in which a clock followed, if it is the longest. Raises StoreError."""
        if seconds > (self.findings.settle_s or 0.0):
            self._keep(replace(self.findings, settle_s=seconds))

    def saw_reach(self, mhz: float) -> None:
        """Store the clock that the board reached by itself, if it is the highest. Raises StoreError."""
        if mhz > (self.findings.reach_mhz or 0.0):
            self._keep(replace(self.findings, reach_mhz=float(mhz)))

    def saw_refusal(self, knob: str, why: str) -> None:
        """Store that the GPU refuses a knob. Raises StoreError."""
        self._keep(replace(self.findings, refused={**self.findings.refused, knob: why}))

    def saw_counter(self, ratio: float, *, counts_module: bool) -> None:
        """Store the result of the energy counter's check. Raises StoreError."""
        self._keep(replace(self.findings, loaded_ratio=ratio, counts_module=counts_module))

    def saw_rest(self, share: float) -> None:
        """Store how far counter and power differ at rest, if by more than before. Raises StoreError."""
        if share > (self.findings.rest_share or 0.0):
            self._keep(replace(self.findings, rest_share=share))

    def forget_counter(self) -> None:
        """Discard the result of the energy counter's check. Raises StoreError."""
        self._keep(replace(self.findings, loaded_ratio=None, counts_module=False))

    def _keep(self, findings: Findings) -> None:
        """Replace the findings, in the file too if there is one."""
        self.findings = findings
        if self._path is not None:
            files.write(self._path, json.dumps(asdict(findings)))
