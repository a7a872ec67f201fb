"""A simulated agent sends the same messages as a real one, after any answer."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from tests.bench.fleet.agent import Traffic, VirtualAgent
from tests.bench.fleet.connection import AgentConnection, HttpAnswer, TunerAddress
from tests.bench.fleet.device import DeviceModel
from tests.builders import START, setting
from tests.errors import raised
from tuner.core import ConfigError, InvalidInput, LinkError, Phase, Plan
from tuner.wire import Assignment, HoldOrder, Idle, Message, Problem, Receipt, Registered, Release


@dataclass
class Script:
    """Answers in place of a tuner, and records the requests."""

    orders: list[Message]
    refuse: dict[str, HttpAnswer] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: str = "", wait_s: float = 0.0) -> HttpAnswer:
        self.asked.append((path, body))
        known = self.refuse.pop(path, None)
        if known is not None:
            return known
        if path.endswith("/next"):
            return HttpAnswer(200, self.orders.pop(0).model_dump_json().encode())
        if path.endswith("/report"):
            return HttpAnswer(200, Receipt(result="closed").model_dump_json().encode())
        return HttpAnswer(200, Registered(lease_s=0.06).model_dump_json().encode())

    def close(self) -> None: ...

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


MODEL = DeviceModel("tx2")


def agent(script: Script) -> VirtualAgent:
    return VirtualAgent(
        device="fleet-0", host="fleet-host-0", start="word", model=MODEL, connection=script,  # type: ignore[arg-type]
        traffic=Traffic(), now=lambda: START, rng=random.Random(0),
    )  # fmt: skip


def assignment() -> Assignment:
    return Assignment(
        study="s1", revision=1, trial=3, attempt=1, token=1, nonce="n", lease_s=0.06,
        phase=Phase.TUNING, setting=MODEL.default, baseline=MODEL.default, metrics=("energy_j",),
        window_s=0.1, max_window_s=0.1,
    )  # fmt: skip


def order(**changes: object) -> HoldOrder:
    fields: dict[str, object] = {
        "study": "s1", "revision": 4, "plan": Plan.single(MODEL.default), "baseline": MODEL.default,
        "limits": ((),), "metrics": ("energy_j",), "valid_for_s": 60.0, "observe_s": 1e-6,
        "window_s": 0.01, **changes,
    }  # fmt: skip
    return HoldOrder.model_validate(fields)


def steps(script: Script, count: int) -> VirtualAgent:
    made = agent(script)

    async def go() -> None:
        for _ in range(count):
            await made.step()

    asyncio.run(go())
    return made


def test_a_trial_is_renewed_while_it_runs_and_reported_at_its_end() -> None:
    script = Script([assignment()])
    made = steps(script, 1)
    assert script.paths[:2] == ["/v1/devices/fleet-0", "/v1/devices/fleet-0/next"]
    assert script.paths.count("/v1/trials/renew") >= 2
    assert script.paths[-1] == "/v1/trials/report"
    assert '"energy_j"' in script.asked[-1][1] and '"nonce":"n"' in script.asked[-1][1]
    assert made.traffic.trials == {("fleet-0", "s1", 3): 1}
    assert made.traffic.receipts == {"trials closed": 1}


def test_a_lost_lease_ends_the_trial_and_that_is_reported() -> None:
    gone = Problem(code="stale_token", message="somebody newer", hint="").model_dump_json().encode()
    script = Script([assignment()], {"/v1/trials/renew": HttpAnswer(409, gone)})
    steps(script, 1)
    assert '"state":"aborted"' in script.asked[-1][1]


def test_a_report_that_did_not_arrive_is_sent_again_before_the_next_poll() -> None:
    busy = {"/v1/trials/report": HttpAnswer(503, b"overloaded")}
    script = Script([assignment(), Release()], busy)
    made = agent(script)

    async def go() -> None:
        with pytest.raises(LinkError):
            await made.step()
        await made.step()

    asyncio.run(go())
    assert script.paths[-3:] == [
        "/v1/trials/report",
        "/v1/trials/report",
        "/v1/devices/fleet-0/next",
    ]
    assert script.asked[-2][1] == script.asked[-3][1], "the same report, word for word"


def test_a_hold_is_observed_continually_and_reported_rarely() -> None:
    script = Script([order(report_s=3600.0), Idle(), Idle(), Release()])
    made = steps(script, 4)
    assert script.paths.count("/v1/holds/report") == 1
    assert made.traffic.holding == 0
    assert '"level":"hold"' in script.asked[-1][1], "what it said before it was released"


def test_a_window_shows_the_simulators_steady_state() -> None:
    window = MODEL.window(MODEL.default, START, 10.0, random.Random(0))
    again = MODEL.window(MODEL.default, START, 10.0, random.Random(1))
    assert window.estimates["energy_j"].mean != again.estimates["energy_j"].mean
    assert window.estimates["energy_j"].mean == pytest.approx(
        again.estimates["energy_j"].mean, rel=0.1
    )
    with pytest.raises(InvalidInput):
        MODEL.window(setting(1), START, 10.0, random.Random(0))
    with pytest.raises(InvalidInput):
        DeviceModel("nothing")


@pytest.mark.parametrize("url", ["tuner", "ftp://tuner", "http://", "http://tuner:many"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with raised(ConfigError, "tuner"):
        TunerAddress.of(url)


def test_a_tuner_that_does_not_answer_is_a_link_error() -> None:
    connection = AgentConnection(TunerAddress.of("http://127.0.0.1:1"), "token")
    with raised(LinkError, "127.0.0.1:1"):
        asyncio.run(connection.ask("GET", "/v1/health"))
