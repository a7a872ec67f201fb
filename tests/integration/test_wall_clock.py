"""For a minute the tuner's wall clock is off by an hour: budgets, drift and timeouts still work."""

from __future__ import annotations

import copy
import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.attack.budgets import Member, drawn_w, pass_s, set_watts, with_a_clock
from tests.attack.held import held_study
from tests.attack.site import AGENT_TOKEN, Site
from tests.builders import applied
from tests.frozen.messages import MESSAGES
from tuner.wire import Poll

JUMPS_S, EVERY_S, LATE_S = 60.0, 5.0, 2.0
SILENT_S = 3.0 + 10.0
"""The lease of this tuner, plus its period of checks for silent devices, in s."""
DRIFT_S = 60.0
"""The period of checks for drift of held studies, in s."""


def drifted(site: Site, study: str, held: str, setting: dict[str, object]) -> None:
    """Report windows of a hold with 1.5 times the energy and power of the frozen report."""
    window = MESSAGES["hold-report"].model_dump(mode="json")["measurement"]
    now = datetime.now(UTC)
    revision = site.json(f"/v1/studies/{study}")["revision"]
    for n in range(12):
        measured = copy.deepcopy(window)
        for name, estimate in measured["estimates"].items():
            if name.startswith(("energy", "power")):
                for part in ("mean", "low", "high"):
                    estimate[part] *= 1.5 + 0.001 * n
        started = now + timedelta(hours=2, seconds=70 * n)
        measured |= {"started_at": started.isoformat(), "context": {}}
        body = {
            "device": held,
            "study": study,
            "revision": revision,
            "setting": setting,
            "measurement": measured,
        }
        status, said = site.ask("POST", "/v1/holds/report", AGENT_TOKEN, body)
        assert status == 200, said


@pytest.mark.slow
@pytest.mark.promise("the tuner's clock steps, or its host is suspended")
def test_a_clock_that_jumps_by_an_hour_every_five_seconds_delays_nothing() -> None:
    with with_a_clock() as opened:
        if opened is None:
            pytest.skip("libfaketime is missing: apt-get install faketime")
        site, put = opened
        members = [Member(site, f"gpu{n}") for n in range(2)]
        set_watts(site, 600.0)
        study, held, setting = held_study(site)
        pass_s(members, 5.0)
        quiet = Member(site, "quiet")
        poll = Poll(agent="q/1", applied=applied("quiet"), wait_s=0.0)
        path = "/v1/devices/quiet/next"
        assert site.ask("POST", path, AGENT_TOKEN, raw=poll.model_dump_json().encode())[0] == 200
        began = time.monotonic()
        due = {"offline": SILENT_S, "drift": DRIFT_S}
        seen: dict[str, float] = {}
        jumps, most_w, lowered_s = 0, 0.0, 0.0
        drifted(site, study, held, setting)

        def look() -> None:
            nonlocal jumps, most_w, lowered_s
            at = time.monotonic() - began
            if at >= EVERY_S * (jumps + 1):
                jumps += 1
                put(3600.0 if jumps % 2 else -3600.0)
            if at > 30.0 and not lowered_s:
                lowered_s = at
                set_watts(site, 400.0)
            if not lowered_s or at > lowered_s + 3.0 + LATE_S:
                most_w = max(most_w, drawn_w(members) / (400.0 if lowered_s else 600.0))
            for event in json.loads(site.ask("GET", "/v1/events?last=1000", site.admin)[1]):
                if event["kind"] in due and event.get("device") in (None, "", quiet.name):
                    seen.setdefault(event["kind"], at)

        pass_s(members, JUMPS_S + DRIFT_S / 10.0, look)
        assert most_w <= 1.0, "nothing is above the budget"
        assert {kind for kind in due if seen.get(kind, 1e9) <= due[kind] + LATE_S} == set(due), seen
