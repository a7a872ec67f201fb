"""Posteriors of finished studies as they are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Protocol

from tuner.core.decisions import Past
from tuner.core.devices import Device
from tuner.core.knobs import Setting
from tuner.core.siblings import Closeness, Posterior, Sibling, SiblingRef, Worth

__all__ = ["MemoryWork", "Posteriors"]


class Posteriors(Protocol):
    """What finished studies left, a few versions of each. All of a study is deleted with it."""

    def put(self, posterior: Posterior, at: datetime) -> str:
        """Keep a study's posterior as its latest, and return its digest. Raises NotFound."""

    def revisions(self) -> Mapping[str, tuple[int, int]]:
        """Return the study's revision and the version of each latest posterior, by study."""

    def near(
        self,
        device: Device,
        most: int,
        without: str = "",
        which: Collection[Closeness] = tuple(Closeness),
    ) -> Sequence[tuple[SiblingRef, Posterior]]:
        """Return the latest posteriors of studies on like devices, closest first.

        `most` of each closeness in `which`. Of one closeness first those of the same versions, then
        those from more settings, then the newest. None of the study `without`.
        """

    def get(self, siblings: Sequence[SiblingRef]) -> Sequence[Posterior | None]:
        """Return the posteriors referred to, None for those of deleted studies."""

    def worth(self) -> Mapping[Closeness, Worth]:
        """Return the mean worth of each closeness over the latest posteriors."""


class MemoryWork(Protocol):
    """Computes what takes seconds or PyTorch: in this process, or in another one."""

    def posterior(
        self, past: Past, device: Device, siblings: Sequence[Sibling]
    ) -> Posterior | None:
        """Return a finished study's posterior with the worth of siblings; None if it leaves none.

        Waits for the result. Raises TuningError.
        """

    def agreed(self, past: Past, like: Sequence[Posterior]) -> Future[tuple[Setting, int]]:
        """Return the plan that like studies agree on, and how many; an empty one to verify none."""
