"""A study that the attacker's agent has run to a hold, by the protocol."""

from __future__ import annotations

import json
from typing import Any

from tests.attack.site import AGENT_TOKEN, Site
from tests.builders import applied, completed
from tests.frozen.content import described
from tuner.wire import ORDER, Assignment, HoldOrder, Poll, Registration, StudyDraft, TrialReport

MOST_ORDERS = 80
DEVICE = "mallorys@edge"


def held_study(site: Site) -> tuple[str, str, dict[str, Any]]:
    """Return the study, its device and the setting that it holds."""
    body = json.loads(Registration(device=described(DEVICE)).model_dump_json())
    status, said = site.ask("PUT", f"/v1/devices/{DEVICE}", AGENT_TOKEN, body)
    assert status == 200, said
    draft = StudyDraft(
        devices=(DEVICE,), policy="sobol", constraints=("latency_p99_ms <= 1.2x baseline",)
    )
    asked = json.loads(draft.model_dump_json()) | {"terms": {"trials": 2, "window_s": 1.0}}
    made = site.played.call("POST", "/studies", asked)["id"]
    applied_now = applied(DEVICE)
    for _ in range(MOST_ORDERS):
        poll = Poll(agent="mallory/1", applied=applied_now, wait_s=5.0)
        status, said = site.ask(
            "POST", f"/v1/devices/{DEVICE}/next", AGENT_TOKEN, raw=poll.model_dump_json().encode()
        )
        assert status == 200, said
        order = ORDER.validate_json(said)
        if isinstance(order, HoldOrder):
            return str(made), DEVICE, dict(order.plan.rows[0].setting)
        if isinstance(order, Assignment):
            same = dict(order.setting) == dict(order.baseline)
            report = TrialReport.of(
                order, device=DEVICE, outcome=completed(10.0 if same else 6.0, 100.0)
            )
            raw = report.model_dump_json().encode()
            assert site.ask("POST", "/v1/trials/report", AGENT_TOKEN, raw=raw)[0] == 200
    raise AssertionError("the study comes to no hold")
