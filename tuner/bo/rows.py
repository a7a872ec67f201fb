"""Build a plan from the expected cost of each setting at each load, with as few rows as pay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tuner.core import LOAD_REACH, Plan, Row, Setting, SettingKey, Space, setting_key

LEAST_PAY = 0.005
"""The least saving of a further row, as a share of all energy: rows that differ by less are
merged (our choice)."""


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """The expected costs at a load: `costs` of the settings that may be held there, the baseline's as 1.

    `weight` is the baseline's consumption there, in any unit: its time times its rate times its
    cost.
    """

    load: float
    weight: float
    costs: Mapping[SettingKey, float]

    def cost(self, setting: SettingKey, baseline: SettingKey) -> float:
        """Return the cost of a setting here; infinite if it may not be held."""
        return 1.0 if setting == baseline else self.costs.get(setting, math.inf)


def plan_of(levels: Sequence[LoadLevel], by: str, space: Space) -> Plan:
    """Return the plan of least expected cost, including the cost of changing rows.

    Every row except the baseline's is held up to half-way between its highest load and the next,
    but no further beyond it than `LOAD_REACH`. Above is the baseline, also between rows that do not
    meet. The plan is expected to cost no more than any single setting that is held at its allowed loads.
    """
    levels, home = sorted(levels, key=lambda level: level.load), setting_key(space.default)
    chosen = _cheapest(levels, home, space)
    rows: list[Row] = []
    for setting, part in groupby(zip(chosen, levels, strict=True), key=lambda pair: pair[0]):
        own = [level for _, level in part]
        saved = max(1.0 - level.cost(setting, home) for level in own)
        top = own[-1].load
        following = next((x.load for x in levels if x.load > top), math.inf)
        below = min(top * LOAD_REACH, math.sqrt(top * following))
        rows.append(Row(below, dict(setting), min(1.0, max(LEAST_PAY, saved)), top))
    while rows and setting_key(rows[-1].setting) == home:
        rows.pop()
    if not rows:
        return Plan.single(space.default)
    return Plan((*rows, Row(math.inf, space.default)), by, eager=True)


def held_up_to(setting: Setting, load: float, by: str, space: Space) -> Plan:
    """Return the plan that holds one setting up to a load, and the baseline above."""
    return plan_of([LoadLevel(load, 1.0, {setting_key(setting): 0.0})], by, space)


def _cheapest(levels: Sequence[LoadLevel], home: SettingKey, space: Space) -> list[SettingKey]:
    """Return the setting of each level on the cheapest path through all levels."""
    total = math.fsum(level.weight for level in levels) or 1.0
    seconds = {knob.name: knob.cost.seconds for knob in space.knobs}
    ways: dict[SettingKey, tuple[float, list[SettingKey]]] = {}
    for level in levels:
        extended = {}
        for setting in (home, *(s for s in level.costs if s != home)):
            own = level.weight * level.cost(setting, home)
            before = [
                (cost + total * _change_cost(seconds, last, setting), way)
                for last, (cost, way) in ways.items()
            ]
            cost, way = min(before, key=lambda b: b[0], default=(0.0, []))
            extended[setting] = cost + own, [*way, setting]
        ways = extended
    return min(ways.values(), key=lambda option: option[0])[1] if ways else []


def _change_cost(seconds: Mapping[str, float], before: SettingKey, after: SettingKey) -> float:
    """Return the saving that a change must bring: more, the longer the changed knobs take."""
    if before == after:
        return 0.0
    changed = dict(set(after) - set(before))
    return LEAST_PAY * (1.0 + max((seconds[name] for name in changed), default=0.0))
