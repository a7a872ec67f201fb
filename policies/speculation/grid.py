"""The choices, from the roles of the knobs: a length, and the draft that proposes its tokens."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core import InvalidInput, Knob, Role, Setting, Space, Value, setting_key

Draft = tuple[Value, ...]
"""The values of the draft's knobs; empty if there are none."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A length and its draft. Without drafting every draft is the same: the default one."""

    length: int
    draft: Draft


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the grid: a choice at a number of requests that decode together."""

    batch: int
    choice: Choice


def choices(space: Space) -> dict[Choice, Setting]:
    """Return the settings that may be chosen, shortest length first; other knobs keep their default.

    Raises:
        InvalidInput: the space has no knob, or several, for the length, or one with values other than
        integers >= 0.
    """
    length, drafts = _length(space), [k for k in space.knobs if k.role is Role.DRAFT]
    listed = {setting_key(s) for s in space.only}
    usual = tuple(knob.default for knob in drafts)
    by_choice: dict[Choice, Setting] = {}
    # The default draft first: it represents all drafts at length 0.
    combinations = sorted(itertools.product(*(k.values for k in drafts)), key=lambda d: d != usual)
    for value, draft in itertools.product(sorted(map(int, length.values)), combinations):
        setting = {**space.default, length.name: value, **named(space, draft)}
        if space.canonical(setting) != setting:
            continue
        if not listed or setting_key(setting) in listed:
            choice = Choice(value, draft if value else usual)
            by_choice.setdefault(choice, setting)
    return by_choice


def named(space: Space, draft: Draft) -> Setting:
    """Return the values of the draft's knobs by their names."""
    names = [k.name for k in space.knobs if k.role is Role.DRAFT]
    return dict(zip(names, draft, strict=True))


def chosen(settings: Mapping[Choice, Setting], setting: Setting) -> Choice | None:
    """Return the choice of a setting, None if it changes other knobs, too."""
    key = setting_key(setting)
    return next((c for c, s in settings.items() if setting_key(s) == key), None)


def _length(space: Space) -> Knob:
    """Return the knob of the length. Raises InvalidInput unless there is exactly one, of integers >= 0."""
    knobs = [k for k in space.knobs if k.role is Role.SPECULATION_LENGTH]
    if len(knobs) != 1:
        raise InvalidInput(
            f"speculation sets one knob of the role {Role.SPECULATION_LENGTH}, and the space has "
            f"{len(knobs)}",
            hint="choose another policy, or a workload that decodes speculatively",
        )
    values = knobs[0].values
    if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values):
        raise InvalidInput(
            f"{knobs[0].name} must be a length, not one of {values}",
            hint="give the knob integers >= 0",
        )
    return knobs[0]
