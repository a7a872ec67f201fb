"""Sobol: the control. It spreads settings evenly, learns nothing, and keeps the best proven feasible one.

The gain of a policy is measured against this one with the same number of trials. The sequence is
`scipy.stats.qmc`'s (Sobol 1967, scrambled after Matoušek 1998); the mapping to settings is our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.core import (
    Done,
    Past,
    Plan,
    Setting,
    SettingKey,
    Space,
    Suggestion,
    Try,
    Wait,
    incumbent,
    setting_key,
)
from tuner.guard import silencing

BLOCK = 32
"""Points drawn at a time: a Sobol sequence is balanced over powers of two."""


class Sobol:
    """Follows a scrambled Sobol sequence over the space and skips the settings already tried."""

    explores_apart = True

    def suggest(self, past: Past) -> Suggestion:
        """Return the next untried setting of the sequence, or the best feasible one at the end."""
        study, trials, spent = past.study, past.trials, past.spent
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        tried = {setting_key(t.setting) for t in trials}
        silent = silencing(study, trials)
        if past.left > 0:
            for setting in spread(study.space, study.seed):
                if setting_key(setting) not in tried and not silent & setting.items():
                    return Try(setting, f"point {spent + 1} of a Sobol sequence")
        if past.running:
            return Wait("the last trial is still running")
        best = incumbent(study, past.evidence)
        held = best.setting if best is not None else study.baseline
        why = "every setting was tried" if past.left > 0 else "all trials are used"
        proven = "the best setting is" if best is not None else "no setting is"
        return Done(Plan.single(held), f"{why}; {proven} proven to meet the limits")


def spread(space: Space, seed: int) -> Iterator[Setting]:
    """Yield every setting of the space once, in the order of a Sobol sequence.

    One dimension per knob; a space that lists its combinations has one dimension along the list.
    """
    from scipy.stats import qmc  # imported with the first suggestion only

    sizes = [len(space.only)] if space.only else [len(k.values) for k in space.knobs]
    source = qmc.Sobol(len(sizes), scramble=True, rng=seed)
    met: set[SettingKey] = set()
    while len(met) < space.size:
        for point in source.random(BLOCK):
            at = [int(u * size) for u, size in zip(point, sizes, strict=True)]
            setting = _setting(space, at)
            if setting_key(setting) not in met:
                met.add(setting_key(setting))
                yield setting


def _setting(space: Space, at: Sequence[int]) -> Setting:
    """Return the setting at these indices of the values, or of the list of combinations."""
    if space.only:
        return space.only[at[0]]
    return space.canonical({k.name: k.values[i] for k, i in zip(space.knobs, at, strict=True)})
