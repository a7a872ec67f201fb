"""Messages to operators: devices, tokens and tuners."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from tuner.compat import StrEnum
from tuner.core import (
    AccessRole,
    Applied,
    Device,
    Estimate,
    Level,
    Limit,
    Phase,
    Setting,
    TunerReplica,
)
from tuner.wire.message import OperatorView, Shown

__all__ = [
    "DeviceView",
    "FleetChange",
    "FleetDiff",
    "FleetRow",
    "FleetText",
    "FleetView",
    "Health",
    "NewToken",
    "ReplicaView",
    "Savings",
    "StopView",
    "StoppedDevice",
    "TokenView",
]


class TokenView(OperatorView):
    """A token as the admin sees it; `state` is `valid`, `used`, `expired` or `revoked`."""

    name: str
    role: AccessRole
    state: str
    created_at: datetime
    expires_at: datetime | None = None


class NewToken(TokenView):
    """A token that was just made: the only time it is shown."""

    token: str


class DeviceView(OperatorView):
    """A device as operators see it: what it is, what can be set and measured, what is applied.

    `online` is false once its agent has reported nothing for longer than a lease: what is `applied` is
    then only what was last heard. `unable` says why it takes no orders (empty: it does). `context` is
    the load that its agent reported at `context_at`, since this tuner was started.
    """

    device: Device
    applied: Applied | None = None
    study: str = ""
    last_seen: datetime
    online: bool
    unable: str = ""
    context: dict[str, float] = Field(default={})
    context_at: datetime | None = None


class Health(StrEnum):
    """The status of a device, in a word."""

    SAFE = "safe"
    """At its original setting, and nothing is tried."""
    TRYING = "trying"
    HOLDING = "holding"
    PROPOSED = "proposed"
    """A setting waits for an operator's yes."""
    PAUSED = "paused"
    STOPPED = "stopped"
    """All devices are."""
    LIMIT_NOT_MET = "limit not met"
    OFFLINE = "offline"


class Savings(OperatorView):
    """What holding has saved, in joules with their standard error, and by the operator's series.

    `priced_by` names the series that `cost` and `co2e_g` rest on. `uncounted` studies hold a plan on
    several devices together: what those save is in no sum.
    """

    joules: float
    stderr_j: float
    kwh: float
    cost: float | None = None
    currency: str = ""
    co2e_g: float | None = None
    priced_by: tuple[str, ...] = ()
    uncounted: int = 0


class FleetRow(OperatorView):
    """A device among all: its status, its applied setting against its default, its study's saving.

    `saving` is the share by which the objective is better; None, as `saved_j`, where unknown (yet),
    and where what saves is not applied now.
    `error` says why the study cannot be read or worked out (empty: it can). `latency` and `power` are the
    metrics to watch here (empty: not measured), `limit` is the limit on that latency.
    """

    device: str
    board: str
    workload: str
    host: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    health: Health
    unable: str = ""
    shared: str = ""
    study: str = ""
    phase: Phase | None = None
    setting: Setting | None = None
    default: Setting
    level: Level | None = None
    last_seen: datetime
    energy_origin: str = ""
    error: Shown = ""
    saving: Estimate | None = None
    saved_j: float | None = None
    saved_stderr_j: float | None = None
    latency: str = ""
    power: str = ""
    limit: Limit | None = None


class FleetView(OperatorView):
    """All devices, how many stand how, and what was saved; of `pending` studies that is not known yet."""

    rows: tuple[FleetRow, ...]
    health: dict[str, int]
    stopped: bool
    studies: int
    pending: int = 0
    saved: Savings | None = None


class FleetChange(OperatorView):
    """One change that a fleet file makes: of a study as it was at `revision`, or of a new one.

    With `budget` it is of the group of that name that shares watts, and `stop` releases its devices.
    """

    action: Literal["create", "change", "stop"]
    group: str
    devices: tuple[str, ...]
    study: str
    revision: int
    details: tuple[str, ...]
    budget: str = ""


class FleetDiff(OperatorView):
    """What a fleet file changes, or has changed, in order; `same` studies are as it declares.

    `digest` is the file's, `fingerprint` that of the changes. No device is in the `empty` groups.
    `same_budgets` groups that share watts are as it declares.
    """

    changes: tuple[FleetChange, ...]
    same: int
    same_budgets: int = 0
    empty: tuple[str, ...] = ()
    digest: str
    fingerprint: str


class FleetText(OperatorView):
    """The fleet file of the studies and budgets that there are."""

    text: str


class StoppedDevice(OperatorView):
    """A device while all are stopped: back at its original setting, not yet, or not to be reached."""

    device: str
    state: Literal["original", "not yet", "offline"]
    last_seen: datetime


class ReplicaView(OperatorView):
    """A tuner of a database, and the time since its last report, in seconds."""

    replica: TunerReplica
    told_s: float


class StopView(OperatorView):
    """Whether every device is stopped: since when, by whom, why, and how far that has come."""

    in_force: bool
    at: datetime | None = None
    who: str = ""
    why: str = ""
    devices: tuple[StoppedDevice, ...] = ()
