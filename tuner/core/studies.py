"""Studies: one workload on a non-empty set of similar devices, and the phases of its tuning.

Exploring may be limited by maintenance windows, freezes and budgets; holding is never limited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Annotated, Any

from tuner.compat import StrEnum
from tuner.core.described import Described, DescribedField, described_fields
from tuner.core.devices import Applied
from tuner.core.errors import IllegalTransition
from tuner.core.goals import Constraint, Objective
from tuner.core.knobs import Setting, Space, setting_key
from tuner.core.plans import Plan, Signal
from tuner.core.quantities import LONGEST_S, Count, Quantities, Share, Span
from tuner.core.series import ALL_DAY, parse_hours
from tuner.core.trials import ACTIVE, EDGES, HELD, PLANNED, Phase
from tuner.errors import InvalidInput

_LONGEST_WINDOW_H = 7 * 24.0
_MOST_CONTROL = 0.2
"""The greatest share of control windows: our choice. More would cost too much of the hold's saving."""
MOST_WINDOWS = 6.0
"""A window is extended up to this many times its length if no greatest length is given."""


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A time in which trials may run: it opens by `cron`, five fields, and lasts `hours`.

    Raises:
        InvalidInput: the length is not above 0 h and at most a week.
    """

    cron: str
    hours: float

    def __post_init__(self) -> None:
        if not 0.0 < self.hours <= _LONGEST_WINDOW_H:
            raise InvalidInput(
                f"hours cannot be {self.hours:g}",
                hint=f"give more than 0, and at most {_LONGEST_WINDOW_H:g} (a week)",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """The limits on a study's exploring; by default it is not limited.

    Trials run only in `windows` (empty: at any time), whose cron is in `time_zone`. `frozen` is the reason
    of a freeze, during which a hold continues but no trial begins; empty: not frozen. Tuning trials use at
    most `max_time_share` of the time since the study was created, and at most `max_energy_share` of the
    energy that the baseline would have used in that time. A plan whose confirmed gain is below
    `min_saving`, a share of the baseline's objective, is not held.

    Raises:
        InvalidInput: a share is not above 0 and at most 1, or `min_saving` is not from 0 to below 1.
    """

    windows: tuple[MaintenanceWindow, ...] = ()
    time_zone: str = "UTC"
    frozen: str = ""
    max_time_share: Annotated[Share, Described("Most of the time for trials.", "SHARE")] = 1.0
    max_energy_share: Annotated[
        Share, Described("Most energy of trials, of the baseline's.", "SHARE")
    ] = 1.0
    min_saving: Annotated[Share, Described("Least saving of a held plan.", "SHARE")] = 0.0

    def __post_init__(self) -> None:
        for name in ("max_time_share", "max_energy_share"):
            share = getattr(self, name)
            if not 0.0 < share <= 1.0:  # refuses NaN, too
                raise InvalidInput(
                    f"{name} cannot be {share:g}", hint="give more than 0, and at most 1 (no limit)"
                )
        if not (math.isfinite(self.min_saving) and 0.0 <= self.min_saving < 1.0):
            raise InvalidInput(
                f"min_saving cannot be {self.min_saving:g}",
                hint="give a share from 0 (any gain) to below 1; 0.02 is 2 %",
            )


class Safety(StrEnum):
    """The risk that a search takes to break a limit in a trial.

    STRICT tries only settings that very likely keep every limit, and saves less. BALANCED also tries a
    setting near a limit if its predicted saving is large. ADVISE searches like BALANCED, but holds no
    setting before an operator approves it. OFF applies the limits to holds, not to trials.
    """

    STRICT = "strict"
    BALANCED = "balanced"
    ADVISE = "advise"
    OFF = "off"


class Mode(StrEnum):
    """The course of a study.

    SEARCH finds a setting, confirms it and holds it. CONTINUOUS runs one trial after another until the
    policy is done: nothing is confirmed, and neither the number of trials nor another load ends it.
    """

    SEARCH = "search"
    CONTINUOUS = "continuous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The budget and the options of a study. Times are in seconds.

    `trials` is the greatest number of suggestions; baseline and confirming windows do not count. It does
    not end a continuous study. A window lasts `window_s`; it is extended, up to `max_window_s`, while a
    tail latency has no upper bound. 0 sets `max_window_s` to six times `window_s`. A hold ends after
    `valid_for_s` without contact to the tuner.

    `canary` is the device that holds a plan first, until `canary_windows` windows confirm it there; if
    empty, all devices hold it from the start. `control_share` is the share of held windows that measure the
    baseline again, within the hours `control_hours` (`HH-HH`, in the tuner's time). `energy_share` is the
    share of a device's joules that the bill assigns to the study; None if the operator gave none. `plan_by`
    is the signal of the load up to whose highest measured level the setting is held, and the baseline above
    it; if empty, the setting is held at every load. With
    `transfer` the study first confirms a setting that at least three similar studies hold.

    Raises:
        InvalidInput: a count or a time is not positive and finite; `max_window_s` is below `window_s`; a
            continuous study has the safety ADVISE, a canary or `plan_by`; `control_share` is not from 0 to
            0.2; the hours cannot be read; `energy_share` is not above 0 and at most 1.
    """

    trials: Annotated[Count, Described("Maximum number of trials.")] = 20
    window_s: Annotated[Span, Described("Length of a measurement window.", "SECONDS")] = 10.0
    max_window_s: Annotated[
        Span,
        Described("Longest window; 0 is 6 windows, and 60 where a load is followed.", "SECONDS"),
    ] = 0.0
    valid_for_s: Annotated[Span, Described("Length of a hold without tuner.", "SECONDS")] = (
        604_800.0
    )
    allow_estimated: Annotated[bool, Described("Accept estimated metrics.")] = False
    allow_restart: Annotated[bool, Described("Change knobs that restart the workload.")] = True
    safety: Annotated[
        Safety, Described("Margin to the limits; advise: balanced, holds only after approval.")
    ] = Safety.BALANCED
    mode: Annotated[Mode, Described("Search and hold, or change continuously.")] = Mode.SEARCH
    canary: Annotated[str, Described("Confirm a plan on this device first.", "ID")] = ""
    canary_windows: Annotated[Count, Described("Windows that confirm a plan on the canary.")] = 5
    control_share: Annotated[
        Share, Described("Share of a hold that measures the baseline; 0.02 is one in 50.", "SHARE")
    ] = 0.0
    control_hours: Annotated[str, Described("Hours of these windows.", "HH-HH")] = ALL_DAY
    energy_share: Annotated[
        Share | None, Described("The workload's share of a shared device's energy.", "SHARE")
    ] = None
    plan_by: Annotated[
        str, Described("Follow this load: hold the default above what was confirmed.", "SIGNAL")
    ] = ""
    transfer: Annotated[bool, Described("Try first what similar devices hold.")] = True

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise InvalidInput(f"trials cannot be {self.trials}", hint="give 1 or more")
        if self.canary_windows < 1:
            raise InvalidInput(
                f"canary_windows cannot be {self.canary_windows}", hint="give 1 or more"
            )
        if self.max_window_s == 0.0:
            object.__setattr__(self, "max_window_s", min(MOST_WINDOWS * self.window_s, LONGEST_S))
        for name in ("window_s", "max_window_s", "valid_for_s"):
            length_s = getattr(self, name)
            if not 0.0 < length_s <= LONGEST_S:  # refuses NaN, too
                raise InvalidInput(
                    f"{name} cannot be {length_s:g} s",
                    hint=f"give more than 0 s, and at most {LONGEST_S:.0f} s (ten years)",
                )
        if self.max_window_s < self.window_s:
            raise InvalidInput(
                f"the longest window ({self.max_window_s} s) is shorter than the window "
                f"({self.window_s} s)",
                hint=f"give {self.window_s:g} s or more, or 0 for six windows",
            )
        if self.mode is Mode.CONTINUOUS:
            for given, phrase in (
                (self.safety is Safety.ADVISE, "be advisory: it applies every step"),
                (self.canary, "have a canary: it applies every step on all devices"),
                (self.plan_by, f"follow {self.plan_by}: it confirms no setting"),
            ):
                if given:
                    raise InvalidInput(
                        f"a continuous study cannot {phrase}",
                        hint="leave it out, or choose the mode `search`",
                    )
        if not 0.0 <= self.control_share <= _MOST_CONTROL:
            raise InvalidInput(
                f"control_share cannot be {self.control_share:g}",
                hint=f"give 0 (none) to {_MOST_CONTROL:g} of the held windows; 0.02 is one in 50",
            )
        parse_hours(self.control_hours, "control_hours")
        if self.energy_share is not None and not 0.0 < self.energy_share <= 1.0:
            raise InvalidInput(
                f"energy_share cannot be {self.energy_share:g}",
                hint="give more than 0 and at most 1 (all energy of the device)",
            )


@dataclass(frozen=True, kw_only=True)
class Requested:
    """The fields that drafts, views, fleet files and studies have alike. A change needs another study.

    It has no slots, because messages inherit it, too. The described fields of `Written`, `Terms` and
    `Exploration` are also options of `study create` and fields of the form for a new study.
    """

    name: Annotated[str, Described("Name in lists; default: workload and devices.", "NAME")] = ""
    policy: Annotated[str, Described("The search policy.", "NAME")] = "polythrottle"
    seed: Annotated[int, Described("Same seed, same suggestions.")] = 0
    terms: Terms = Terms()


@dataclass(frozen=True, kw_only=True)
class Written(Requested):
    """The request for a study as operators write it; a fleet file has the same fields.

    An empty objective and `constraints` of None are chosen by the device's metrics; an empty list sets no
    limit.
    """

    objective: Annotated[
        str, Described('Metric, or "minimize METRIC"; default: energy, else CPU time.', "METRIC")
    ] = ""
    second_objective: Annotated[
        str, Described("With the policy pareto: the trade-off of both objectives.", "METRIC")
    ] = ""
    constraints: tuple[str, ...] | None = None


PARTS: Mapping[str, type[Terms] | type[Exploration]] = {
    "terms": Terms,
    "exploration": Exploration,
}
"""The parts of a request that have described fields of their own."""


def request_fields() -> Sequence[DescribedField]:
    """Return the described fields of a request and its parts; no two have the same name."""
    return described_fields(Written, *PARTS.values())


def requested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's fields from values by described field; a missing one has its default.

    Raises:
        InvalidInput: a part refuses its values.
    """
    parts = {part: kind(**_of(kind, values)) for part, kind in PARTS.items()}
    return _of(Written, values) | parts


def _of(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a dataclass's described fields; the text of an enumeration becomes its value."""
    return {
        field.name: field.kind(value) if field.values else value
        for field in described_fields(kind)
        if (value := values.get(field.name, field.default)) != field.default
    }


@dataclass(frozen=True, slots=True)
class Transfer:
    """A setting to confirm before a search, and the number of studies that hold it; empty if none."""

    plan: Setting = field(default_factory=dict, hash=False)
    holders: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Requested):
    """One workload on some similar devices, with its space, its aim and its progress.

    `since_trial` is the first trial that still counts: after a change of driver or workload the study
    starts again, but keeps its earlier trials. `phase_since` is the first trial of the present phase.
    `paused_from` is the phase in which a resumed study continues. `plan` is the held plan, also after the
    study was stopped; while CONFIRMING and PROPOSED it is the plan to be held. `reason` is why the study is
    in its phase, `paused_reason` why it was in the phase that `paused_from` names; other changes keep both.
    `quantities` are those that its devices declare for their metrics, `signals` those that a plan can
    follow on all of its devices. `group` is the group of the fleet file that declares the study; empty if
    it is in no fleet file. `transfer` is the first candidate, taken from similar studies.
    """

    id: str
    devices: tuple[str, ...]
    workload: str
    space: Space
    objective: Objective
    second_objective: Objective | None = None
    quantities: Quantities = field(default_factory=dict, hash=False)
    signals: tuple[Signal, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    exploration: Exploration = Exploration()
    group: str = ""
    transfer: Transfer = Transfer()
    phase: Phase = Phase.BASELINE
    paused_from: Phase | None = None
    reason: str = ""
    paused_reason: str = ""
    plan: Plan | None = None
    revision: int = 1
    since_trial: int = 1
    phase_since: int = 1
    created_at: datetime

    def __post_init__(self) -> None:
        if not self.devices or len(set(self.devices)) != len(self.devices):
            raise InvalidInput("a study needs a non-empty set of devices")
        canary = self.terms.canary
        if canary and (canary not in self.devices or len(self.devices) < 2):
            raise InvalidInput(
                f"canary cannot be {canary!r} in a study of {', '.join(self.devices)}",
                hint="name one of at least two devices of the study",
            )
        if self.phase in PLANNED and self.plan is None:
            raise IllegalTransition(f"study {self.id} cannot be {self.phase} without a plan")
        if (self.phase is Phase.PAUSED) != (self.paused_from is not None):
            raise IllegalTransition(f"study {self.id}: only a paused study has a phase to resume")

    @property
    def baseline(self) -> Setting:
        """The setting with which all others are compared: every knob at its default."""
        return self.space.default

    def rests(self, setting: Setting) -> bool:
        """Return whether a setting is the baseline."""
        return setting_key(setting) == setting_key(self.baseline)

    @property
    def aim(self) -> str:
        """The objective and the constraints of the held plan, as text."""
        return "; ".join([str(self.objective), *sorted(map(str, self.constraints))])

    @property
    def written(self) -> dict[str, Any]:
        """The fields of `Written`, as an operator may have given them."""
        same = {field.name: getattr(self, field.name) for field in fields(Requested)}
        return same | {
            "objective": str(self.objective),
            "second_objective": str(self.second_objective or ""),
            "constraints": tuple(map(str, self.constraints)),
        }

    @property
    def askable(self) -> frozenset[str]:
        """The signals of which a trial may request a value."""
        return frozenset(s.name for s in self.signals if s.askable)

    @property
    def held(self) -> Plan | None:
        """The plan in force, or the one in force when the study was paused or stopped."""
        holding = self.phase in HELD | {Phase.STOPPED} or self.paused_from in HELD
        return self.plan if holding else None

    @property
    def proposed(self) -> Plan | None:
        """The plan that waits for an operator's approval, also while the study is paused."""
        waiting = Phase.PROPOSED in (self.phase, self.paused_from)
        return self.plan if waiting else None

    @property
    def confirmed(self) -> Setting | None:
        """The setting that its windows confirmed; None if the study stays at the baseline.

        It need not be applied now: a paused or stopped study keeps it.
        """
        plan = self.held or self.proposed
        chief = None if plan is None else plan.chief(self.baseline)
        return None if chief is None or self.rests(chief) else chief

    @property
    def searching(self) -> bool:
        """Whether the study still looks for a setting, or will when it is resumed."""
        return (self.paused_from or self.phase) in (Phase.BASELINE, Phase.TUNING)

    @property
    def active(self) -> bool:
        """Whether the study owns its devices."""
        return self.phase in ACTIVE

    def moved(self, phase: Phase, plan: Plan | None = None) -> Study:
        """Return the study in another phase. The phases in `PLANNED` need a plan.

        Raises:
            IllegalTransition: `EDGES` does not have this transition, or the plan is missing.
        """
        if phase not in EDGES[self.phase]:
            if self.phase is Phase.STOPPED:
                raise self._ended()
            raise IllegalTransition(f"study {self.id} cannot go from {self.phase} to {phase}")
        planned = phase in PLANNED
        if planned and plan is None:
            raise IllegalTransition(f"study {self.id} cannot be {phase} without a plan")
        pausing, stopping = phase is Phase.PAUSED, phase is Phase.STOPPED
        kept_plan = self.plan if pausing or (stopping and self.held is not None) else None
        return replace(
            self,
            phase=phase,
            plan=plan if planned else kept_plan,
            paused_from=self.phase if pausing else None,
            reason="",
            paused_reason=self.reason if pausing else "",
        )

    def resumed(self) -> Study:
        """Return a paused study in the phase, and with the reason, that it had before the pause.

        Raises:
            IllegalTransition: the study is not paused.
        """
        if self.phase is Phase.STOPPED:
            raise self._ended()
        if self.phase is not Phase.PAUSED or self.paused_from is None:
            raise IllegalTransition(f"study {self.id} is {self.phase}, not paused")
        return replace(self.moved(self.paused_from, self.plan), reason=self.paused_reason)

    def _ended(self) -> IllegalTransition:
        """Return the error for a change of a stopped study."""
        return IllegalTransition(
            f"study {self.id} is stopped permanently", hint="create a new study"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One version of a study, with its author, its reason and its time. All revisions are kept."""

    study: Study
    who: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The state that decides a device's next assignment, as of one moment.

    `applied` is the last recorded setting of the device. `study` is the active study that has the device,
    `since` the time of its revision, `trials` the number of its trials, and `running` whether one of these
    has not ended. `stopped` is whether every device has to be at its original setting. `unreadable` is why
    the device's study cannot be read; `study` is None then.
    """

    applied: Applied | None = None
    study: Study | None = None
    since: datetime | None = None
    trials: int = 0
    running: bool = False
    stopped: bool = False
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class StudyStamp:
    """The progress of a study: a view of the study stays valid while its stamp is the same."""

    created_at: datetime
    revision: int
    trials: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableStudy:
    """A stored study whose document cannot be read: its remaining data, and the reason."""

    id: str
    devices: tuple[str, ...]
    workload: str
    phase: Phase
    revision: int
    created_at: datetime
    error: str

    @property
    def active(self) -> bool:
        """Whether the study owns its devices."""
        return self.phase in ACTIVE
