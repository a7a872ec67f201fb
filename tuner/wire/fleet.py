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
    PeriodSaving,
    Phase,
    Setting,
    TunerReplica,
)
from tuner.wire.message import OperatorView, Shown


class TokenView(OperatorView):
    """A token as the admin sees it; `state` is `valid`, `used`, `expired` or `revoked`."""

    name: str
    role: AccessRole
    state: str
    created_at: datetime
    expires_at: datetime | None = None


class NewToken(TokenView):
    """A new token with its secret, which is shown only here."""

    token: str


class DeviceView(OperatorView):
    """A device as operators see it: its description, its knobs and metrics, and its applied setting.

    `online` is false once its agent has reported nothing for longer than a lease; `applied` is then the
    last reported setting. `unable` is the reason why the device accepts no orders; empty if it accepts
    them. `released`: an operator has released it. `context` is the load that its agent reported at
    `context_at`, since this tuner started. `error` is why it or its study cannot be read.
    """

    device: Device
    applied: Applied | None = None
    study: str = ""
    last_seen: datetime
    online: bool
    unable: str = ""
    error: str = ""
    released: bool = False
    context: dict[str, float] = Field(default={})
    context_at: datetime | None = None


class ObservedView(OperatorView):
    """The windows of an observed device since a time, of the latest ones: each metric pooled over them.

    `joules` is the energy in the windows, of all that ran on the device; None if it was not measured.
    Without a window since then, `last` is the start of the last one before, None if there was none.
    """

    device: str
    since: datetime
    windows: int
    seconds: float = 0.0
    completed: int = 0
    first: datetime | None = None
    last: datetime | None = None
    joules: float | None = None
    metrics: dict[str, Estimate] = Field(default_factory=dict)


class Health(StrEnum):
    """The status of a device, in one or a few words."""

    SAFE = "safe"
    """At its original setting, with no trial running."""
    TRYING = "trying"
    HOLDING = "holding"
    PROPOSED = "proposed"
    """A proposed setting waits for an operator's approval."""
    PAUSED = "paused"
    STOPPED = "stopped"
    """The stop of all devices, or of this one, is in force."""
    LIMIT_NOT_MET = "limit not met"
    OBSERVED = "observed"
    """Only measured: it has no actuator."""
    NOT_MEASURED = "not measured"
    """Only observed, but its meter fails or hangs; `unable` has the reason, and since when."""
    OFFLINE = "offline"
    UNREADABLE = "unreadable"
    """The device, its study or the study's report cannot be read or computed; `error` has the reason."""


class Savings(OperatorView):
    """The energy saved by holding in a period, with its cost and CO2e; all of it has one `origin`.

    `priced_by` names the operator's series behind cost and CO2e.
    """

    period: PeriodSaving
    origin: str
    currency: str = ""
    priced_by: tuple[str, ...] = ()


class FleetRow(OperatorView):
    """One device of the fleet: its status, its applied setting beside its default, and its study's saving.

    `saving` is the share by which the objective is better than at the baseline. It is None while unknown,
    and while the setting that saves is not applied; `saved_j` is None while unknown. `error` is the
    reason why the study cannot be read or computed; empty if it can. `latency` and `power` are the
    metrics shown for this device, empty if not measured; `limit` is the limit on that latency. An
    `observed` device is only measured.
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
    observed: bool = False


class FleetView(OperatorView):
    """All devices, the number of devices by status, and the savings of all studies.

    `savings` are for each origin and period; there are none until the `pending` studies are evaluated.
    The sums lack `failed` studies, whose evaluation failed, and `uncounted` ones, which hold on several
    devices together and are not billed.
    """

    rows: tuple[FleetRow, ...]
    health: dict[str, int]
    stopped: bool
    studies: int
    pending: int = 0
    failed: int = 0
    uncounted: int = 0
    savings: tuple[Savings, ...] = ()


class FleetChange(OperatorView):
    """One change that a fleet file makes: to a study at `revision`, or a new study.

    With `budget` it changes the group of that name that shares watts; `stop` then releases its devices.
    """

    action: Literal["create", "change", "stop"]
    group: str
    devices: tuple[str, ...]
    study: str
    revision: int
    details: tuple[str, ...]
    budget: str = ""


class FleetDiff(OperatorView):
    """The changes that a fleet file makes or has made, in order.

    `same` is the number of studies that already match the file, `same_budgets` that of groups that share
    watts. `digest` is the file's, `fingerprint` that of the changes. The groups in `empty` match no
    device. The devices in `observed` have no study.
    """

    changes: tuple[FleetChange, ...]
    same: int
    same_budgets: int = 0
    empty: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    digest: str
    fingerprint: str


class FleetText(OperatorView):
    """The active studies and the budgets as the text of a fleet file."""

    text: str


class StoppedDevice(OperatorView):
    """A stopped device: `original` (it is back), `not yet`, or `offline`."""

    device: str
    state: Literal["original", "not yet", "offline"]
    last_seen: datetime


class ReplicaView(OperatorView):
    """A tuner of a database; `told_s` is the time since its last report, in seconds."""

    replica: TunerReplica
    told_s: float


class StopView(OperatorView):
    """Whether a stop of all devices, or of one, is in force: since when, by whom, why; each device.

    `everywhere` is whether it concerns all devices.
    """

    in_force: bool
    everywhere: bool = False
    at: datetime | None = None
    who: str = ""
    why: str = ""
    devices: tuple[StoppedDevice, ...] = ()
