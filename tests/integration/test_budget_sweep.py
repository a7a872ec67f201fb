"""A member without a front, measured by real tuner, agent and actuator, which are killed meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.bench.budgets import hosts
from tests.bench.budgets.hosts import FLOOR_W, MOST_W, Racks
from tests.bench.budgets.measured import give_curves
from tests.nvml.fixtures import library
from tests.processes import until

__all__ = ["library"]

WATTS = 600.0
KNOWN, NEW = "nvidia-0@host0", "nvidia-0@host1"
CURVE = tuple((watts, (watts / MOST_W) ** 0.8) for watts in (100.0, 200.0, 300.0, 400.0))
QUICK = [
    sys.executable,
    "-c",
    "import sys; from functools import partial; from tuner.service.budgets import measuring; "
    "measuring.Terms = partial(measuring.Terms, window_s=1.0); "
    "from tuner.cli.app import main; sys.exit(main())",
]
"""A tuner that measures fronts in windows of one second instead of ten."""
LONGEST_S = 240.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


BY_CLOCK = (
    '[device.grant]\n"gpu.clock_mhz" = { min = 210, max = 1410 }\n'
    '[device.budget]\nfloor = { "gpu.clock_mhz" = 600 }\n'
)


@pytest.fixture
def racks(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Racks]:
    monkeypatch.setattr(hosts, "measured_curves", list)
    made = Racks(tmp_path, library, 2, getattr(request, "param", {}))
    made.stage.tuner = QUICK
    try:
        made.start()
        give_curves(made.stage.db, [KNOWN], [CURVE])
        yield made
    finally:
        made.close()


def group(racks: Racks) -> dict[str, dict[str, Any]]:
    """Return the members by device; empty while the tuner is down."""
    with suppress(httpx2.HTTPError, AssertionError):
        view: Any = racks.ask("GET", "/v1/budgets/rack")
        return {m["device"]: m for m in view["members"]}
    return {}


def sweeps(racks: Racks) -> list[dict[str, Any]]:
    studies: Any = racks.ask("GET", "/v1/studies")
    return [s for s in studies if s["policy"] == "power-sweep"]


def windows(racks: Racks, study: str) -> list[dict[str, Any]]:
    with suppress(httpx2.HTTPError, AssertionError):
        trials: Any = racks.ask("GET", f"/v1/studies/{study}/trials")
        return [t for t in trials if t["state"] != "running"]
    return []


def declare(racks: Racks) -> None:
    body = {"select": {"id": [KNOWN, NEW]}, "watts": WATTS}

    def declared() -> bool:
        with suppress(httpx2.HTTPError, AssertionError):
            racks.ask("PUT", "/v1/budgets/rack", body)
            return len(group(racks)) == 2
        return False

    until(declared, "not every device offers a cap", LONGEST_S)
    until(lambda: sum(racks.caps().values()) <= WATTS, "the members do not join", LONGEST_S)


@pytest.mark.promise("the agent of a member of a power budget dies")
def test_a_member_is_measured_within_the_budget_after_any_kill(racks: Racks) -> None:
    declare(racks)
    with racks.watched():
        until(lambda: bool(group(racks).get(NEW, {}).get("measured_by")), "no study", LONGEST_S)
        study = group(racks)[NEW]["measured_by"]
        for what, after in (("agent1", 1), ("tuner", 3), ("actuator1", 4)):
            until(lambda: len(windows(racks, study)) >= after, f"{what}: too few", LONGEST_S)  # noqa: B023
            time.sleep(0.5)  # well in the next window
            racks.kill(what)
            racks.spawn(what)
        until(lambda: bool(group(racks).get(NEW, {}).get("front")), "no front", LONGEST_S)

        def divided() -> bool:
            caps = [m["cap_w"] for m in group(racks).values()]
            return sum(caps) > WATTS - 2.0 and sum(racks.caps().values()) > WATTS - 60.0

        until(divided, lambda: f"its watts are not in use: {racks.caps()}", LONGEST_S)
    above = [(at, watts) for at, watts in racks.samples if watts > WATTS]
    assert racks.samples and not above
    (swept,) = sweeps(racks)
    assert (swept["devices"], swept["phase"]) == ([NEW], "stopped")
    ended = [t for t in windows(racks, study) if t["state"] != "aborted"]
    assert len(ended) <= 8
    assert all(FLOOR_W <= t["setting"]["gpu.power_limit_w"] <= MOST_W for t in ended)
    report: Any = racks.ask("GET", f"/v1/studies/{study}/report")
    assert report["bill"]["explored_j"] > 0.0
    assert report["bill"]["trials"] == len(ended)
    racks.ask("DELETE", "/v1/budgets/rack?who=ann")
    original = {"0": float(MOST_W), "1": float(MOST_W)}
    until(lambda: racks.caps() == original, lambda: f"throttled: {racks.caps()}", LONGEST_S)


@pytest.mark.parametrize("racks", [{"1": BY_CLOCK}], indirect=True)
def test_a_member_by_clock_is_measured_and_goes_to_its_floor_when_it_draws_more(
    racks: Racks,
) -> None:
    declare(racks)

    def member() -> dict[str, Any]:
        return group(racks).get(NEW, {})

    until(lambda: bool(member().get("front")), "no front", LONGEST_S)
    assert member()["by_clock"]
    (swept,) = sweeps(racks)
    tried = {t["setting"]["gpu.clock_mhz"] for t in windows(racks, swept["id"])}
    assert len(tried) >= 4
    until(lambda: 0.0 < member().get("floor_w", 0.0) < 300.0, lambda: str(member()), LONGEST_S)
    until(lambda: racks.caps()["0"] > WATTS - 400.0, lambda: f"{racks.caps()}", LONGEST_S)
    event = {"watts": 330.0, "expires_at": "2999-01-01T00:00:00Z"}
    racks.ask("POST", "/v1/events/grid", event)

    def lowered() -> bool:
        counted = member().get("cap_w", 1e9) + racks.caps()["0"]
        return 0.0 < racks.shown("1", "lock_max") < 1410.0 and counted <= 330.0

    until(lowered, lambda: f"{member()} {racks.caps()}", LONGEST_S)
    racks.shown("1", "load_ratio", becomes=2.0)

    def at_floor() -> bool:
        events: Any = racks.ask("GET", "/v1/events")
        return any("drew" in e["text"] and NEW in e["text"] for e in events)

    until(at_floor, lambda: f"not seen: {member()}", LONGEST_S)
    until(lambda: racks.shown("1", "lock_max") == 600.0, "not at its floor", LONGEST_S)
    view: Any = racks.ask("GET", "/v1/budgets/rack")
    assert view["may_draw_w"] <= 330.0 + view["missing_w"] + 1.0
    racks.ask("DELETE", "/v1/budgets/rack?who=ann")
    until(lambda: racks.shown("1", "lock_max") == 0.0, "throttled", LONGEST_S)
