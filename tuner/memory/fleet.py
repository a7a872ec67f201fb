"""The memory of a fleet in its store: kept up to date, and read by studies."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from tuner.core import (
    LEAST_HOLDERS,
    NO_MEMORY,
    POSTERIOR_VERSION,
    Closeness,
    Device,
    MemoryWork,
    NotFound,
    Now,
    Past,
    Phase,
    Posterior,
    Setting,
    Sibling,
    SiblingMemory,
    Store,
    StoreError,
    Study,
    Transfer,
    Trial,
    TuningError,
    versions_of,
)
from tuner.memory.selection import MOST_LIKE, MOST_SIBLINGS, chosen, trust

log = logging.getLogger(__name__)


class WorkHere:
    """Computes in this process, which then loads PyTorch."""

    def posterior(
        self, past: Past, device: Device, siblings: Sequence[Sibling]
    ) -> Posterior | None:
        """Return a finished study's posterior with the worth of siblings."""
        from tuner.bo.posterior import posterior_of

        return posterior_of(past, device, siblings)

    def agreed(self, past: Past, like: Sequence[Posterior]) -> Future[tuple[Setting, int]]:
        """Return the plan that like studies agree on, and how many."""
        from tuner.bo.agreement import agreed_plan

        result: Future[tuple[Setting, int]] = Future()
        result.set_result(agreed_plan(like, past))
        return result


@dataclass
class FleetMemory:
    """Posteriors of the studies of a store. Safe from many threads; a replica decides as any other."""

    store: Store
    now: Now
    work: MemoryWork = field(default_factory=WorkHere)
    _agreeing: dict[tuple[str, int], Future[tuple[Setting, int]]] = field(default_factory=dict)
    """The plans that are computed, by study and its revision."""
    _none: set[tuple[str, int]] = field(default_factory=set)
    """Studies that leave no posterior, with their revisions."""

    def memory(self, study: Study) -> SiblingMemory:
        """Return the siblings that a study uses, without those of deleted studies."""
        used = study.transfer.siblings if study.terms.transfer else ()
        if not used:
            return NO_MEMORY
        posteriors = self.store.posteriors.get(used)
        left = [(ref, p) for ref, p in zip(used, posteriors, strict=True) if p is not None]
        given = study.transfer.trust
        used_by = [(ref.study, ref.digest, str(ref.closeness)) for ref, _ in left]
        text = repr((used_by, sorted((str(c), share) for c, share in given.items())))
        return SiblingMemory(
            hashlib.sha256(text.encode()).hexdigest()[:16],
            tuple(Sibling(p, ref.closeness) for ref, p in left),
            given,
        )

    def transfer(self, study: Study, trials: Sequence[Trial] = ()) -> Transfer | None:
        """Return the siblings that a study is to use from now on, none where its terms forbid it.

        `trials` have its baseline, which a plan to verify must fit. None while that is computed.
        """
        if not study.terms.transfer or study.terms.plan_by:
            return Transfer()
        device = self.store.devices.get(study.devices[0])
        trusted = trust(self.store.posteriors.worth())
        used = [closeness for closeness, share in trusted.items() if share > 0.0]
        near = self.store.posteriors.near(device, MOST_SIBLINGS, study.id, used)
        same = (Closeness.BOARD_AND_WORKLOAD,)
        like = self.store.posteriors.near(device, MOST_LIKE, without=study.id, which=same)
        mark = (versions_of(device), study.aim)
        alike = [p for _, p in like if (p.versions, p.aim) == mark and p.held]
        agreed = self._agreed(alike, study, trials)
        if agreed is None:
            return None
        return Transfer(chosen(near, study), trusted, *agreed)

    def _agreed(
        self, alike: Sequence[Posterior], study: Study, trials: Sequence[Trial]
    ) -> tuple[Setting, int] | None:
        """Return the plan that like studies agree on; an empty one to verify none, None if computed."""
        if len(alike) < LEAST_HOLDERS:
            return {}, 0
        key = study.id, study.revision
        if key not in self._agreeing:
            self._agreeing[key] = self.work.agreed(Past(study=study, trials=tuple(trials)), alike)
        if not self._agreeing[key].done():
            return None
        try:
            return self._agreeing.pop(key).result()
        except TuningError as error:
            log.warning("event=no_plan_compared study=%s: %s", study.id, error)
            return {}, 0

    def remember(self) -> Iterator[None]:
        """Build the posteriors that are missing or outdated; yield after each study."""
        stamps, stored = self.store.studies.stamps(), self.store.posteriors.revisions()
        phases = Phase.HOLDING.value, Phase.STOPPED.value
        for name in [n for phase in phases for n in self.store.studies.ids(phase=phase)]:
            at = stamps[name].revision if name in stamps else 0
            if stored.get(name) == (at, POSTERIOR_VERSION) or (name, at) in self._none:
                continue
            yield
            try:
                if not self.rebuild(name):
                    self._none.add((name, at))
            except StoreError:
                raise
            except Exception as error:  # one bad study must not end the memory of the others
                bug = not isinstance(error, TuningError)
                log.warning("event=not_remembered study=%s: %s", name, error, exc_info=bug)
                self._none.add((name, at))

    def rebuild(self, name: str) -> bool:
        """Build a study's posterior from its trials; return whether it leaves one.

        Raises:
            NotFound: there is no such study.
        """
        study = self.store.studies.get(name)
        past = Past(study=study, trials=tuple(self.store.trials.list(name)))
        try:
            device = self.store.devices.get(study.devices[0])
        except NotFound:  # it was forgotten, and with it what it was
            return False
        near = self.store.posteriors.near(device, MOST_SIBLINGS, without=name)
        siblings = tuple(Sibling(p, ref.closeness) for ref, p in near)
        posterior = self.work.posterior(past, device, siblings)
        if posterior is not None:
            self.store.posteriors.put(posterior, self.now())
        return posterior is not None


def in_words(transfer: Transfer, workload: str) -> str:
    """Return the siblings of a study of a workload as text: how many of each closeness, their weight."""
    counts = Counter(ref.closeness for ref in transfer.siblings)
    parts = (
        f"{count} of the {c} (weight {transfer.trust.get(c, 0.0):.2f})"
        for c, count in counts.items()
    )
    total = len(transfer.siblings)
    return f"used {total} {'study' if total == 1 else 'studies'} for {workload}: {', '.join(parts)}"
