"""Groups that share watts: invented members, endless events, and a tuner whose clock is set back."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.attack.site import AGENT_TOKEN, Scenario, Site
from tests.builders import device
from tests.integration.stage import JOULETUNE, stage
from tuner.core import CapKnob
from tuner.wire import BudgetOrder, BudgetReport, Registration

LIMIT = "gpu.power_limit_w"
LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")


@dataclass
class Member:
    """A device that reports and obeys by the protocol; `cap_w` is its present cap."""

    site: Site
    name: str
    floor_w: float = 100.0
    default_w: float = 350.0
    group: str = ""
    revision: int = 0
    steps: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        made = Registration(device=device(self.name)).model_dump_json().encode()
        status, said = self.site.ask("PUT", f"/v1/devices/{self.name}", AGENT_TOKEN, raw=made)
        assert status == 200, said
        self.exchange()

    @property
    def cap_w(self) -> float:
        now_s = time.monotonic()
        least = self.floor_w if self.group else self.default_w
        return next((w for at, w in reversed(self.steps) if at <= now_s), least)

    def exchange(self) -> None:
        knobs = (CapKnob(LIMIT, self.floor_w, self.floor_w, self.default_w),)
        report = BudgetReport(agent="m/1", knobs=knobs, group=self.group, revision=self.revision)
        path, raw = f"/v1/devices/{self.name}/budget", report.model_dump_json().encode()
        status, said = self.site.ask("POST", path, AGENT_TOKEN, raw=raw)
        if status == 200 and (order := BudgetOrder.model_validate_json(said)).kind == "caps":
            now_s = time.monotonic()
            self.group, self.revision = order.group, order.revision
            self.steps = [(now_s + s.in_s, s.at_most[LIMIT]) for s in order.steps]


def drawn_w(members: Sequence[Member]) -> float:
    return sum(member.cap_w for member in members)


def pass_s(
    members: Sequence[Member], seconds: float, each: Callable[[], None] = lambda: None
) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for member in members:
            member.exchange()
        each()
        time.sleep(0.3)


def set_watts(site: Site, watts: float) -> None:
    body = {"select": {"id": ["gpu*"]}, "watts": watts, "measure": False}
    status, said = site.ask("PUT", "/v1/budgets/rack", site.operator, body)
    assert status == 200, said


def endless_events(site: Site, told: Scenario) -> None:
    """Send 300 events for a group with a grid token, up to the year 9999; then revoke the token."""
    members = [Member(site, f"gpu{n}") for n in range(2)]
    set_watts(site, 600.0)
    pass_s(members, 4.0)
    grid = str(site.played.call("POST", "/tokens", {"name": "utility", "role": "grid"})["token"])
    later = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    size = site.database_bytes
    codes = {
        name: site.ask("POST", "/v1/events/grid", grid, {"watts": 0.0, "expires_at": at, **more})[0]
        for name, at, more in (
            ("300 times", later, {"groups": ["rack"] * 300}),
            ("until 9999", "9999-12-31T00:00:00Z", {}),
            ("right", later, {"id": "peak"}),
        )
    }
    told.counts |= {"answers": codes, "grown_bytes": site.database_bytes - size}
    told.expect(codes["300 times"] == 422, f"300 names were answered {codes['300 times']}")
    told.expect(codes["until 9999"] == 422, f"the year 9999 was answered {codes['until 9999']}")
    told.expect(codes["right"] == 200, f"an event was answered {codes['right']}")
    told.expect(told.counts["grown_bytes"] < 1_000_000, "the database grew")
    site.played.call("POST", "/events/grid", {"watts": 0.0, "expires_at": later, "id": "own"})
    ended = site.ask("DELETE", "/v1/events/grid/own", site.operator)[0]
    revoked = site.ask("DELETE", "/v1/tokens/utility", site.admin)[0]
    left = [e["id"] for e in site.json("/v1/budgets/rack").get("events", [])]
    told.counts |= {"ended": ended, "revoked": revoked, "left": left}
    told.expect(ended == 200, f"nobody can end an event: {ended}")
    told.expect(left == [], f"events outlive their token: {left}")
    pass_s(members, 6.0)
    told.counts["drawn_w"] = drawn_w(members)
    told.expect(drawn_w(members) > 590.0, "the watts do not come back")


def invented_members(site: Site, told: Scenario) -> None:
    """Register three invented devices with high floors; report power above a clock ceiling sixty times."""
    members = [Member(site, f"gpu{n}") for n in range(2)]
    set_watts(site, 600.0)
    pass_s(members, 5.0)
    before = drawn_w(members)
    invented = [Member(site, f"gpu{n}", floor_w=349.0) for n in (7, 8, 9)]
    pass_s([*members, *invented], 8.0)
    told.counts |= {"before_w": before, "after_w": drawn_w(members)}
    told.expect(before == 600.0, f"the honest ones had {before} W")
    told.expect(drawn_w(members) >= 0.9 * before, f"they have {drawn_w(members)} W")
    path, knob = (
        "/v1/devices/gpu5/budget",
        {"name": "gpu.clock_mhz", "floor": 600.0, "default": 1000.0},
    )
    for n in range(60):
        report = {
            "agent": "m/1", "knobs": [{**knob, "default_w": 300.0}], "group": "rack", "revision": 10**6,
            "above_w": 200.0 + n, "above_at": {"gpu.clock_mhz": 600.0 + n, f"invented{n}": 1.0},
        }  # fmt: skip
        if not n:
            made = Registration(device=device("gpu5")).model_dump_json().encode()
            site.ask("PUT", "/v1/devices/gpu5", AGENT_TOKEN, raw=made)
            site.ask(
                "POST", path, AGENT_TOKEN, {**report, "group": "", "revision": 0, "above_w": 0.0}
            )
            admitted = {"devices": ["gpu5"]}
            site.ask("POST", "/v1/budgets/rack/admit", site.operator, admitted)
            pass_s(members, 3.0)
        site.ask("POST", path, AGENT_TOKEN, report | {"revision": 10**6 + n})
    with closing(sqlite3.connect(site.played.folder / "jouletune.sqlite")) as file:
        (size,) = file.execute(
            "SELECT max(length(document)) FROM budget_members WHERE device_id = 'gpu5'"
        ).fetchone()
    told.counts["record_bytes"] = size
    told.expect(size is not None and size < 8_000, f"the record of one device has {size} bytes")


@contextmanager
def with_a_clock() -> Iterator[tuple[Site, Callable[[float], None]] | None]:
    """Start a tuner and return a function that sets its wall clock; None without libfaketime."""
    found = next((path for place in LIBRARIES for path in Path("/").glob(place[1:])), None)
    if found is None or shutil.which("env") is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as played:
        offset = Path(folder) / "offset"

        def put(seconds: float) -> None:
            new = offset.with_suffix(".new")
            new.write_text(f"{seconds:+.0f}\n")
            new.replace(offset)

        put(0.0)
        fake = {"LD_PRELOAD": found, "FAKETIME_DONT_FAKE_MONOTONIC": 1, "FAKETIME_NO_CACHE": 1}
        variables = [f"{k}={v}" for k, v in {**fake, "FAKETIME_TIMESTAMP_FILE": offset}.items()]
        played.tuner = ["env", *variables, *JOULETUNE]
        played.start_tuner()
        yield Site(played), put


def clock_set_back(_site: Site, told: Scenario) -> None:
    """Set the tuner's clock back by an hour; a budget set afterwards must be kept."""
    with with_a_clock() as opened:
        if opened is None:
            told.counts["not_run"] = "libfaketime is missing: apt-get install faketime"
            return
        site, put = opened
        members = [Member(site, f"gpu{n}") for n in range(2)]
        set_watts(site, 600.0)
        pass_s(members, 5.0)
        put(-3600.0)
        pass_s(members, 5.0)
        set_watts(site, 400.0)
        pass_s(members, 10.0)
        told.counts |= {"drawn_w": drawn_w(members), "events": _clock_events(site)}
        told.expect(drawn_w(members) <= 400.0, f"{drawn_w(members):.0f} W of 400 W are drawn")
        told.expect(_clock_events(site) == 1, f"{_clock_events(site)} events name the step")


def _clock_events(site: Site) -> int:
    events = json.loads(site.ask("GET", "/v1/events?last=1000", site.admin)[1])
    return sum(event["kind"] == "clock" for event in events)
