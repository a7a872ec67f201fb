"""What a policy sees and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tuner.core.devices import Device
from tuner.core.knobs import Setting
from tuner.core.plans import Context, Plan
from tuner.core.studies import Study
from tuner.core.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """A finished study of the same workload on other devices."""

    study: Study
    trials: tuple[Trial, ...]
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """All that a decision may read; no clock, no device.

    The study, its trials (running ones too), its devices as registered, the situation, what like
    devices' finished studies showed, and the time.
    """

    study: Study
    trials: tuple[Trial, ...]
    now: datetime
    devices: tuple[Device, ...] = ()
    context: Context = field(default_factory=dict)
    siblings: tuple[Sibling, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a surrogate expects of a metric: mean and standard deviation, in the metric's unit.

    `sd` is the uncertainty of the underlying value, without the noise of one window.
    """

    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class Try:
    """Measure this setting next. `predicted` is what the policy expects, for guard and operator."""

    setting: Setting
    why: str
    predicted: Mapping[str, Prediction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to try until something changes: a running trial ends, an hour passes."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """Enough is known: hold this plan once it is confirmed."""

    plan: Plan
    why: str


Suggestion = Try | Wait | Done
