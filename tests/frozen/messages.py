"""One message of each kind between agent and tuner, and the agent's files on its disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

from agents.actuator.journal import SET, JournalEntry, Record, RestoreJournal
from agents.holding.holder import Holder
from agents.host.machine import Host
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Report
from tests.builders import applied, completed, setting, window
from tests.fakes import Rig
from tests.frozen.content import AGENT, HELD, LIMIT, LOADED, MISSED, NONCE, PLAN, STEPPED, described
from tuner.core import Phase, digest_of
from tuner.wire import (
    Assignment,
    Enrolled,
    Enrolment,
    HoldOrder,
    HoldReport,
    Idle,
    Message,
    Poll,
    Problem,
    Receipt,
    Registered,
    Registration,
    Release,
    Renewal,
    Reverted,
    StepReport,
    TrialReport,
)

NEW_AGENT = "agent@new"
RIG = "fake@host"
"""The device whose agent's files are frozen."""

ORDER = HoldOrder(
    study=HELD,
    revision=7,
    plan=PLAN,
    baseline=setting(1000),
    limits=((LIMIT,), (LIMIT,), ()),
    metrics=("energy_j", "latency_p99_ms"),
    valid_for_s=604800.0,
    observe_s=60.0,
    window_s=10.0,
)

RENEWAL = Renewal(device="sim2@edge", token=2, nonce=NONCE)
"""Names the lease that the frozen databases have in force."""

MESSAGES: Mapping[str, Message] = {
    "enrolment": Enrolment(agent=NEW_AGENT, digest=digest_of("its own token")),
    "enrolled": Enrolled(agent=NEW_AGENT),
    "registration": Registration(device=described("sim@edge")),
    "registered": Registered(lease_s=30.0),
    "poll": Poll(
        agent=f"{AGENT}/start-1",
        applied=applied("sim@edge"),
        holding=HELD,
        revision=7,
        context={"arrival_rate_per_s": 50.0},
        wait_s=0.0,
        unable="the disk is full",
    ),
    "assignment": Assignment(
        study=STEPPED,
        revision=2,
        trial=2,
        attempt=1,
        token=2,
        nonce=NONCE,
        lease_s=30.0,
        phase=Phase.TUNING,
        setting=setting(800),
        baseline=setting(1000),
        metrics=("energy_j", "latency_p99_ms"),
        limits=(LIMIT,),
        window_s=10.0,
        max_window_s=30.0,
        context=LOADED,
        expected={"arrival_rate_per_s": 50.0},
        why="one step down",
    ),
    "hold-order": ORDER,
    "idle": Idle(why="every device is stopped"),
    "release": Release(why="the study was stopped"),
    "renewal": RENEWAL,
    "trial-report": TrialReport(
        device="sim2@edge",
        study=STEPPED,
        trial=2,
        attempt=1,
        token=RENEWAL.token,
        nonce=NONCE,
        outcome=MISSED,
    ),
    "step-report": StepReport(
        device="sim2@edge",
        study=STEPPED,
        key="0123456789abcdef",
        setting=setting(800),
        outcome=completed(6.0, 110.0),
    ),
    "hold-report": HoldReport(
        device="sim@edge",
        study=HELD,
        revision=7,
        setting=setting(600),
        measurement=window(6.0, 108.0, context=LOADED),
    ),
    "hold-ended": HoldReport(
        device="sim@edge", study=HELD, revision=7, setting=setting(600), ended="the driver changed"
    ),
    "reverted": Reverted(device="sim@edge", why="agent revert at 2026-01-01 12:52:00 on edge"),
    "receipt": Receipt(result="kept"),
    "problem": Problem(code="stale_token", message="token 1 is not in force", hint="ask again"),
}

SPOOLED: tuple[Report, ...] = (
    TrialReport(
        device=RIG,
        study=STEPPED,
        trial=2,
        attempt=1,
        token=2,
        nonce=NONCE,
        outcome=completed(6.0, 110.0),
    ),
    HoldReport(
        device=RIG,
        study=HELD,
        revision=7,
        setting=setting(600),
        measurement=window(6.0, 108.0, context=LOADED),
    ),
    HoldReport(device=RIG, study=HELD, revision=7, setting=setting(600), ended="a limit broke"),
    Reverted(device=RIG, why="agent revert on host"),
    StepReport(
        device=RIG,
        study=STEPPED,
        key="fedcba9876543210",
        setting=setting(600),
        outcome=completed(6.0, 110.0),
    ),
)

FOUND = setting(800, 2)
"""The device's original setting."""
ROOTS = Record(
    "0000:01:00.0",
    "boot-1",
    "load-1",
    {"gpu.clock_mhz": JournalEntry("gpu.clock_mhz", 1410, 900, SET)},
    setting={"gpu.clock_mhz": 900},
    originals={"gpu.clock_mhz": 1410},
)
"""The root process's record of a GPU."""
STOPPER = "ann"


def rig(folder: Path) -> Rig:
    """Return a device and its agent's folders."""
    made = Rig(folder)
    made.device.now["gpu.clock_mhz"] = FOUND["gpu.clock_mhz"]
    made.work.now["batch_size"] = FOUND["batch_size"]
    return made


def holder(of: Rig) -> Holder:
    """Return the holder as after a fresh start of the agent."""
    return Holder(
        RIG,
        of.target,
        folder=of.folder / "holds",
        journal=of.journal,
        attached={"spec": "fake", "workload": "served", "seed": "0"},
        host=Host("host", of.boot, 2),
        clock=of.time,
        now=of.time.now,
    )


def write_files(folder: Path) -> None:
    """Write the files of an agent in a hold, with unsent reports, and of its root process."""
    made = rig(folder)
    holder(made).take(ORDER)
    for report in SPOOLED:
        made.spool.put(report)
    (folder / "token").write_text("enrolment-token")
    with patch("secrets.token_urlsafe", lambda _: "its own token"):
        credentials = Credentials(folder, folder / "token", NEW_AGENT)
        credentials.enrol(lambda *_: None, "")
    (folder / "token").unlink()
    roots = RestoreJournal(folder / "actuator")
    roots.save(ROOTS)
    roots.stay(STOPPER)
