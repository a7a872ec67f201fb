"""The policy: profile one instance, check the best packings side by side, plan by batch demand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from policies.packrat.interference import MODEL_SD
from policies.packrat.live import Outlook, allowed, demands_within, under_way
from policies.packrat.packing import Group
from policies.packrat.profiling import MARGIN, open_points
from tuner.core import (
    Candidate,
    Done,
    Evidence,
    Past,
    Plan,
    Prediction,
    Row,
    Setting,
    Study,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Verdict,
    Wait,
    incumbent,
    setting_key,
    windows,
)
from tuner.guard import silencing

DEMAND = "requests_in_system"
"""The load signal of the plan: the number of requests in the system at once."""
MOST_SETTINGS = 4
"""The most settings of a plan beside the baseline: each needs at least four confirming windows."""
PROVEN = 2.0
"""The number of standard errors by which a setting must beat the baseline before it is proposed."""
RETRIES = 2
"""The most attempts of a setting without a result."""


class Packrat:
    """Chooses instances, threads and batch size by batch demand, with equal instances only.

    After Packrat (arXiv 2311.18174): profile, packing and power-of-two demands. Our additions: points that
    cannot matter are skipped, interference is learned, a row of the plan is proposed only if its windows
    beat the baseline's, and neighbouring rows that differ little are merged. Results of finished studies of
    similar devices are not used.
    """

    def suggest(self, past: Past) -> Suggestion:
        """Return the next setting to try, or the plan.

        Raises:
            InvalidInput: the space has none of the knobs instances, threads and batch_size.
        """
        study, evidence, left = past.study, past.evidence, past.left
        settings = allowed(study)
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        if past.running:
            return Wait("the last trial is still running")
        silent = silencing(study, past.trials)
        shut = {
            group
            for group, at in settings.items()
            if _given_up(at, past.trials) or silent & at.items()
        }
        most = under_way(study, evidence)
        if most is None:
            return _one_by_one(study, evidence, settings, shut, left)
        demands = demands_within(most)
        packings = tuple(g for g in settings if g.instances * g.batch in demands)
        outlook = Outlook.of(study, evidence, settings)
        search = _Search(study, settings, packings, demands, outlook, shut)
        return (
            search.point(left)
            or search.check(left)
            or search.rest(left)
            or search.done(evidence, most)
        )


def _given_up(setting: Setting, trials: Sequence[Trial]) -> bool:
    """Return whether a setting failed, or had no result in `RETRIES` attempts."""
    own = windows(trials, setting)
    failed = any(t.state is TrialState.FAILED for t in own)
    return failed or (len(own) >= RETRIES and not any(t.state.evidence for t in own))


def _one_by_one(
    study: Study,
    evidence: Evidence,
    settings: Mapping[Group, Setting],
    shut: Iterable[Group],
    left: int,
) -> Suggestion:
    """Compare settings by the objective alone: this load does not show the time of a batch.

    Settings with the most cores come first, then small batches, then few instances.
    """
    order = sorted(settings, key=lambda g: (-g.instances * g.threads, g.batch, g.instances))
    untried = [g for g in order if g not in shut and evidence.of(settings[g]) is None]
    if untried and left > 0:
        return Try(
            settings[untried[0]],
            f"one of {len(untried)} settings to compare: at an "
            "offered rate, a window does not measure the time of a batch",
        )
    best = incumbent(study, evidence)
    conclusion = (
        "no setting is proven feasible" if best is None else "the best setting proven feasible"
    )
    return Done(
        Plan.single(study.baseline if best is None else best.setting),
        f"{'all trials are used' if untried else 'every setting was tried'}; {conclusion}. "
        "For a plan by demand, use a closed-loop load",
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """The search of a study: its settings by packing, its demands, and the packings that are ruled out."""

    study: Study
    settings: Mapping[Group, Setting]
    packings: tuple[Group, ...]
    demands: Sequence[int]
    outlook: Outlook
    shut: Iterable[Group]

    def point(self, left: int) -> Try | None:
        """Return the next point of the profile; None if no point matters, or its trials are spent."""
        if left <= max(len(self.demands), self.study.terms.trials // 3):
            return None
        return self.profiled()

    def profiled(self) -> Try | None:
        """Return the next point of the profile that may still matter; None if no point does."""
        cells = [c for c in self.open() if Group(1, *c) in self.settings]
        if not cells:
            return None
        threads, items = cells[0]
        return Try(
            self.settings[Group(1, threads, items)],
            f"profile: one instance alone, threads={threads} batch_size={items}; "
            f"{len(self.outlook.points)} of {len(self.grid())} "
            f"points are measured, {len(cells)} may still matter",
        )

    def grid(self) -> set[tuple[int, int]]:
        """Return the cells of all packings."""
        return {(g.threads, g.batch) for g in self.packings}

    def open(self) -> list[tuple[int, int]]:
        """Return the cells that may still matter: for other objectives than times, all unmeasured cells."""
        groups = {*self.shut, *self.outlook.measured}
        closed = {(g.threads, g.batch) for g in groups if g.instances == 1}
        if self.outlook.timed:
            return open_points(self.packings, self.outlook.points, closed)
        return sorted(self.grid() - closed)

    def check(self, left: int) -> Try | None:
        """Return the unmeasured packing with the largest predicted gain; None if none exceeds `MARGIN`."""
        gains: list[tuple[float, int, Group]] = []
        for demand in self.demands if left > 0 else ():
            usable = list(self.usable(demand))
            best = min((s for g in usable if (s := self.outlook.shown(g)) is not None),
                       default=math.inf)  # fmt: skip
            for group in usable:
                value = self.outlook.expected(group)
                if value is None or group in self.outlook.measured:
                    continue
                gain = math.inf if math.isinf(best) else (best - value) / abs(best)
                if gain > MARGIN:
                    gains.append((gain, demand, group))
        if not gains:
            return None
        gain, demand, group = max(gains, key=lambda g: (g[0], g[1], -g[2].instances))
        return Try(self.settings[group], self.reason(gain, demand, group), self.predicted(group))

    def rest(self, left: int) -> Try | None:
        """Return a further setting to try when no packing promises a gain; None if none is left.

        First come the points of the profile beyond its share of trials. Then come packings of an instance
        that had no result alone: other programs may have used the cores that it left idle, and a packing
        fills these cores itself.
        """
        if left <= 0:
            return None
        if (point := self.profiled()) is not None:
            return point
        unknown = [
            (demand, group)
            for demand in self.demands
            for group in self.usable(demand)
            if group not in self.outlook.measured
            and Group(1, group.threads, group.batch) in self.shut
        ]
        if not unknown:
            return None
        demand, group = max(
            unknown, key=lambda u: (u[0], u[1].instances * u[1].threads, u[1].batch)
        )
        return Try(
            self.settings[group],
            f"check {group.instances} instances in parallel for a demand of "
            f"{demand}: a single instance gave no result, so there is no prediction",
        )

    def usable(self, demand: int) -> Iterator[Group]:
        """Yield the packings of a demand, without those that failed or broke a limit."""
        for group in self.packings:
            if group.instances * group.batch != demand or group in self.shut:
                continue
            candidate = self.outlook.measured.get(group)
            if candidate is None or candidate.verdict is not Verdict.INFEASIBLE:
                yield group

    def reason(self, gain: float, demand: int, group: Group) -> str:
        """Return the reason for a check of a packing, with its predicted gain."""
        action = f"check {group.instances} instances in parallel for a demand of {demand}"
        than = f"{100 * gain:.0f} % better than the best so far"
        if math.isinf(gain):
            than = "no other was measured yet"
        value = self.outlook.expected(group)
        if not self.outlook.timed or value is None:
            return (
                f"{action}: predicted from a single instance, {self.study.objective.metric}: {than}"
            )
        slower = self.outlook.interference.slowdown(group.threads, group.instances * group.threads)
        return (
            f"{action}: predicted time of a batch {1000 * value:.3g} ms, {than} "
            f"(each instance {100 * (slower - 1):.0f} % slower than alone)"
        )

    def predicted(self, group: Group) -> dict[str, Prediction]:
        """Return the predicted throughput of a packing; empty if the objective is not a time."""
        value = self.outlook.expected(group)
        point = self.outlook.points.get((group.threads, group.batch))
        if not self.outlook.timed or value is None or point is None:
            return {}
        rate = group.instances * group.batch / value
        doubt = math.hypot(MODEL_SD, point.stderr_s / point.latency_s)
        return {"throughput_per_s": Prediction(rate, rate * doubt)}

    def done(self, evidence: Evidence, most: float) -> Done:
        """Return the plan: for each demand the best packing that is proven to beat the baseline.

        If the baseline breaks a limit, no row may use it; then the plan has one setting for every demand.
        """
        fit = incumbent(self.study, evidence)
        if evidence.broken is not None and fit is not None:
            outcome = (
                f"the best setting that meets {evidence.broken.in_short}, which the baseline breaks"
            )
            return Done(Plan.single(fit.setting), f"{outcome}: {self.account(most)}")
        chosen = {d: g for d in self.demands if (g := self.best(evidence, d)) is not None}
        picked = self.few(set(chosen.values()))
        spans: list[tuple[Group, list[int]]] = []
        for demand in self.demands:
            group = self.row(picked, demand)
            if not spans or spans[-1][0] != group:
                spans.append((group, []))
            spans[-1][1].append(demand)
        rows = [
            # Midway between two powers of two, so that hysteresis keeps each in its row.
            Row(1.5 * demands[-1], self.settings[group], self.gain(spans, k), float(demands[-1]))
            for k, (group, demands) in enumerate(spans)
        ]
        rows[-1] = replace(rows[-1], below=math.inf)
        plan = Plan(tuple(rows), DEMAND) if len(rows) > 1 else Plan.single(rows[0].setting)
        why = self.account(most)
        if not picked:
            why = f"no setting is proven better than the baseline: {why}"
        return Done(plan, why)

    def best(self, evidence: Evidence, demand: int) -> Group | None:
        """Return the proven packing with the best value for a demand; None if no packing is proven."""
        proven = [
            g
            for g in self.usable(demand)
            if (c := self.outlook.measured.get(g)) is not None and self.wins(evidence, c)
        ]
        return min(proven, key=lambda g: (self.outlook.at(g, demand), g.instances), default=None)

    def wins(self, evidence: Evidence, candidate: Candidate) -> bool:
        """Return whether a setting is deployable and its objective clearly beats the baseline's."""
        objective = self.study.objective
        base, own = objective.score(evidence.baseline), objective.score(candidate.estimates)
        feasible = candidate.verdict is Verdict.FEASIBLE and candidate.deployable
        if not feasible or base is None or own is None:
            return False
        gain = objective.sign * (base.mean - own.mean)
        return gain > max(PROVEN * math.hypot(base.stderr, own.stderr), MARGIN * abs(base.mean))

    def few(self, picked: set[Group]) -> set[Group]:
        """Return at most `MOST_SETTINGS` packings, without those whose removal costs at most `MARGIN`."""
        chosen = picked
        while chosen:
            losses = {g: self.loss(picked, chosen - {g}) for g in chosen}
            least = min(chosen, key=lambda g: (losses[g], g.instances, g.threads, g.batch))
            if losses[least] > MARGIN and len(chosen) <= MOST_SETTINGS:
                break
            chosen = chosen - {least}
        return chosen

    def loss(self, of: set[Group], without: set[Group]) -> float:
        """Return the greatest loss of a demand, as a share, with the packings `without` instead of `of`."""
        shares = []
        for demand in self.demands:
            before, after = self.least(of, demand), self.least(without, demand)
            if math.isfinite(before):
                shares.append((after - before) / abs(before))
        return max(shares, default=0.0)

    def least(self, groups: set[Group], demand: int) -> float:
        """Return the best value for a demand among these packings and the baseline."""
        return min(self.outlook.at(g, demand) for g in (*groups, self.baseline))

    @property
    def baseline(self) -> Group:
        """The baseline as a packing."""
        key = setting_key(self.study.baseline)
        return next(g for g, s in self.settings.items() if setting_key(s) == key)

    def row(self, picked: set[Group], demand: int) -> Group:
        """Return the packing for a demand: the baseline, unless a picked one has a better value."""
        order = sorted(picked, key=lambda g: (g.instances, g.threads, g.batch))
        return min((self.baseline, *order), key=lambda g: self.outlook.at(g, demand))

    def gain(self, spans: Sequence[tuple[Group, list[int]]], k: int) -> float:
        """Return the share that a row saves on its demands against a neighbouring row.

        It is at least `MARGIN`, below which differences do not count: a smaller batch also fills sooner, a
        saving that full batches do not show.
        """
        own, demands = spans[k]
        shares = []
        for group, _ in [*spans[max(0, k - 1) : k], *spans[k + 1 : k + 2]]:
            for demand in demands:
                stays, moves = self.outlook.at(group, demand), self.outlook.at(own, demand)
                shares.append((stays - moves) / abs(stays) if math.isfinite(stays) else 1.0)
        return min(1.0, max(MARGIN, *shares)) if shares else 1.0

    def account(self, most: float) -> str:
        """Return a sentence on the evidence for the plan."""
        grid, measured, unknown = len(self.grid()), len(self.outlook.points), len(self.open())
        checked = sum(g.instances > 1 for g in self.outlook.measured)
        missed = f", {unknown} were not measured" if unknown else ""
        text = (
            f"planned for {self.demands[-1]} concurrent requests ({most:.0f} in progress now); measured "
            f"{measured} of {grid} profile points ({grid - measured - unknown} cannot change the plan"
            f"{missed}) and {checked} packing{'' if checked == 1 else 's'} in parallel"
        )
        learnt = self.outlook.interference
        if learnt.windows:
            text += f"; with all cores busy an instance is {100 * learnt.share:.0f} % slower"
        if learnt.error_median is not None:
            text += f", predicted to {100 * learnt.error_median:.0f} % on held-out packings"
        return text
