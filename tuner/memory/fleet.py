"""The memory of a fleet in its store: kept up to date, and read by studies."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tuner.core import (
    LEAST_HOLDERS,
    NO_MEMORY,
    POSTERIOR_VERSION,
    Closeness,
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
    versions_of,
)
from tuner.memory.selection import MOST_LIKE, MOST_SIBLINGS, aim_of, chosen, trust

log = logging.getLogger(__name__)


@dataclass
class FleetMemory:
    """Posteriors of the studies of a store. Safe from many threads; a replica decides as any other."""

    store: Store
    now: Now
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

    def transfer(self, study: Study, trials: Sequence[Trial] = ()) -> Transfer:
        """Return the siblings that a study is to use from now on, none where its terms forbid it.

        `trials` have its baseline, which a plan to verify must fit.
        """
        if not study.terms.transfer or study.terms.plan_by:
            return Transfer()
        device = self.store.devices.get(study.devices[0])
        near = self.store.posteriors.near(device, MOST_SIBLINGS, without=study.id)
        same = (Closeness.BOARD_AND_WORKLOAD,)
        like = self.store.posteriors.near(device, MOST_LIKE, without=study.id, which=same)
        mark = (versions_of(device), aim_of(study))
        alike = [p for _, p in like if (p.versions, p.aim) == mark and p.held]
        plan, holders = self._agreed(alike, study, trials)
        return Transfer(chosen(near, study), trust(self.store.posteriors.worth()), plan, holders)

    def _agreed(
        self, alike: Sequence[Posterior], study: Study, trials: Sequence[Trial]
    ) -> tuple[Setting, int]:
        """Return the plan that like studies agree on, an empty one to verify none."""
        if len(alike) < LEAST_HOLDERS:
            return {}, 0
        from tuner.bo.agreement import agreed_plan  # PyTorch: only where it has something to do

        return agreed_plan(alike, Past(study=study, trials=tuple(trials)))

    def remember(self) -> Iterator[None]:
        """Build the posteriors that are missing or outdated; yield after each study."""
        stamps, stored = self.store.studies.stamps(), self.store.posteriors.revisions()
        finished = (
            *self.store.studies.ids(phase=Phase.HOLDING.value),
            *self.store.studies.ids(phase=Phase.STOPPED.value),
        )
        for name in finished:
            at = stamps[name].revision if name in stamps else 0
            if stored.get(name) == (at, POSTERIOR_VERSION) or (name, at) in self._none:
                continue
            yield
            try:
                if not self.rebuild(name):
                    self._none.add((name, at))
            except StoreError:
                raise
            except Exception:  # one bad study must not end the memory of the others
                log.exception("event=not_remembered study=%s", name)
                self._none.add((name, at))

    def rebuild(self, name: str) -> bool:
        """Build a study's posterior from its trials; return whether it leaves one.

        Raises:
            NotFound: there is no such study.
        """
        from tuner.memory.summary import posterior_of, worth  # torch comes with the first study

        study = self.store.studies.get(name)
        past = Past(study=study, trials=tuple(self.store.trials.list(name)))
        try:
            device = self.store.devices.get(study.devices[0])
        except NotFound:  # it was forgotten, and with it what it was
            return False
        posterior = posterior_of(past, device)
        if posterior is None:
            return False
        near = self.store.posteriors.near(device, MOST_SIBLINGS, without=name)
        siblings = tuple(Sibling(p, ref.closeness) for ref, p in near)
        self.store.posteriors.put(replace(posterior, worth=worth(past, siblings)), self.now())
        return True


def in_words(transfer: Transfer, workload: str) -> str:
    """Return the siblings of a study of a workload as text: how many of each closeness, their weight."""
    counts = Counter(ref.closeness for ref in transfer.siblings)
    parts = (
        f"{counts[c]} of the {c} (weight {transfer.trust.get(c, 0.0):.2f})"
        for c in Closeness
        if counts[c]
    )
    total = len(transfer.siblings)
    return f"used {total} {'study' if total == 1 else 'studies'} for {workload}: {', '.join(parts)}"
