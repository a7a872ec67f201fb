"""The control every other policy must beat: quasi-random settings, then the best feasible one.

Source: Sobol (1967) sequences with Owen's scrambling, as in `scipy.stats.qmc`; the mapping from the
unit interval to the rows of the grid is ours, so that tables with holes are sampled evenly, too.
"""

from __future__ import annotations

from tuner.core import (
    Done,
    Past,
    Phase,
    Plan,
    Setting,
    Space,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Wait,
    counted,
    incumbent,
    setting_key,
    weigh,
)


class Sobol:
    """Tries settings spread evenly over the space, whatever earlier trials showed."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the next setting of the sequence, or the best feasible one at the end."""
        study = past.study
        trials = counted(study, past.trials)
        spent = [t for t in trials if t.phase is Phase.TUNING and t.state is not TrialState.ABORTED]
        if len(spent) < study.terms.trials:
            fresh = _fresh(study.space, study.seed, trials)
            if fresh is not None:
                return Try(fresh, f"point {len(spent) + 1} of the quasi-random sequence")
        if any(t.state is TrialState.RUNNING for t in trials):
            return Wait("the last trial is still running")
        best = incumbent(study, weigh(study, trials))
        if best is None:
            return Done(Plan.single(study.baseline), "nothing measured keeps the limits")
        return Done(Plan.single(best.setting), "the best feasible setting measured")


def _fresh(space: Space, seed: int, trials: tuple[Trial, ...]) -> Setting | None:
    """Return the first setting of the sequence that no trial has had, None where all have."""
    tried = {setting_key(t.setting) for t in trials}
    for setting in _sequence(space, seed, len(tried) + 1):
        if setting_key(setting) not in tried:
            return setting
    return next((s for s in space.grid() if setting_key(s) not in tried), None)


def _sequence(space: Space, seed: int, count: int) -> list[Setting]:
    """Return distinct settings, at least `count` where the space has so many and the draws hit them."""
    from scipy.stats import qmc

    if space.only:
        draws = qmc.Sobol(1, seed=seed).random_base2(_power(8 * count))
        picked = [space.only[int(u[0] * len(space.only))] for u in draws]
    else:
        draws = qmc.Sobol(len(space.knobs), seed=seed).random_base2(_power(8 * count))
        picked = [
            {
                knob.name: knob.values[int(u * len(knob.values))]
                for knob, u in zip(space.knobs, draw, strict=True)
            }
            for draw in draws
        ]
    return list({setting_key(s): s for s in picked}.values())


def _power(count: int) -> int:
    """Return the exponent of the next power of two: Sobol points are balanced only in such numbers."""
    return max(1, (count - 1).bit_length())
