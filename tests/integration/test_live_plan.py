"""A live server under an open load that goes 0.1 → 0.8 → 0.1 of what it can bear, three times over.

Prints what each way of running it showed: `pytest -m long -s tests/integration/test_live_plan.py`.
What is asserted does not depend on how busy the machine is; the figures do.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from agents.devices.catalogue import open_device
from agents.follow import QUANTITY, Follower
from agents.holds import Holder
from agents.host import Host, HostClock
from agents.journal import Journal
from agents.load import CUT_OFF, UNSENT, HttpCaller, LoadRun, LoadShape
from agents.pair import Pair
from agents.workloads import open_workload
from tests.integration.test_reference_server import Running
from tests.unit.agents.test_holds import order
from tuner.core import Plan, Row, Setting, quantile_estimate

CORES = len(os.sched_getaffinity(0))
SHARES = (0.1, 0.8, 0.1)
ROUNDS = 3
PHASE_S = 12.0
GRACE_S = 10.0
"""How long a phase waits for its last answers; what is not answered by then has failed."""
CALLERS = 400
"""As many requests may be under way: the queue of any setting that bears the load is shorter."""
FAT: Setting = {"instances": 1, "threads": CORES, "batch_size": 1}
ONE: Setting = {"instances": 1, "threads": 1, "batch_size": 1}

pytestmark = [
    pytest.mark.skipif(CORES < 2, reason="needs two cores"),
    pytest.mark.long,
    pytest.mark.timeout(1500),
]


@dataclass(frozen=True)
class Phase:
    """A share of the load: latencies by when they were due, on the wall, and what failed."""

    share: float
    due_at: tuple[float, ...]
    latencies_s: tuple[float, ...]
    failures: dict[str, int]


class Shown:
    """What one way of running the server showed; `switches` are spans of time that do not count."""

    def __init__(self, phases: Sequence[Phase], switches: Sequence[tuple[float, float]]) -> None:
        self.phases = phases
        self.switches = switches

    def __add__(self, other: Shown) -> Shown:
        return Shown([*self.phases, *other.phases], [*self.switches, *other.switches])

    @property
    def failures(self) -> Counter[str]:
        """What the server did not answer well: what a busy machine left unsent is none of it."""
        found: Counter[str] = Counter()
        for phase in self.phases:
            found.update(phase.failures)
        for ours in (UNSENT, CUT_OFF):
            del found[ours]
        return found

    @property
    def unsent(self) -> int:
        return sum(p.failures.get(UNSENT, 0) + p.failures.get(CUT_OFF, 0) for p in self.phases)

    def latencies_s(self, share: float, *, switching: bool) -> list[float]:
        return [
            latency
            for phase in self.phases
            if phase.share == share
            for due, latency in zip(phase.due_at, phase.latencies_s, strict=True)
            if switching is any(a <= due <= b for a, b in self.switches)
        ]

    def p99_ms(self, share: float, *, switching: bool = False) -> float:
        found = self.latencies_s(share, switching=switching)
        return 1000.0 * quantile_estimate(found, 0.99).mean if found else math.nan

    def mean_ms(self) -> float:
        found = [s for phase in self.phases for s in phase.latencies_s]
        return 1000.0 * sum(found) / len(found)


class Live:
    """The server, the agent's half that follows a plan, and the load."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=120.0, trust_env=False)
        self.clock = HostClock()
        self.pair = Pair(
            open_device("cpu", seed=0, state_dir=folder, root=Path("/")),
            open_workload(url, seed=0, state_dir=folder, clock=self.clock),
        )
        host = Host.here()
        self.holder = Holder(
            "cpu",
            self.pair,
            folder=folder / "holds",
            journal=Journal(folder / "journal"),
            attached={},
            host=host,
            clock=self.clock,
            now=lambda: datetime.now(UTC),
        )
        self.follower = Follower("cpu", self.pair, self.holder, self.clock)

    def put(self, setting: Setting) -> None:
        self.client.put("/knobs", json=dict(setting)).raise_for_status()

    def run(self, shape: LoadShape, seconds: float) -> tuple[float, LoadRun]:
        port = int(self.url.rpartition(":")[2])
        began = time.monotonic()
        caller = lambda: HttpCaller("127.0.0.1", port, "/infer", timeout_s=60.0)  # noqa: E731
        return began, LoadRun(caller, shape, clock=self.clock, max_s=seconds)

    def items_per_s(self, setting: Setting, callers: int) -> float:
        """Return the items per second of a closed loop."""
        self.put(setting)
        _, run = self.run(LoadShape(callers), 60.0)
        time.sleep(4.0)
        tally = run.stop(GRACE_S)
        return len(tally.latencies_s) / max(tally.completed_at_s)

    def shown(self, capacity: float, shares: Sequence[float] = SHARES) -> Shown:
        """Go once through the shares of the load."""
        phases: list[Phase] = []
        watch = Switches(self.client)
        for share in shares:
            began, run = self.run(LoadShape(CALLERS, rate_per_s=share * capacity), 60.0)
            time.sleep(PHASE_S)
            tally = run.stop(GRACE_S)
            due = (c - s for c, s in zip(tally.completed_at_s, tally.latencies_s, strict=True))
            at = tuple(began + moment for moment in due)
            phases.append(Phase(share, at, tally.latencies_s, dict(tally.failures)))
        return Shown(phases, watch.close())

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow the plan that is held within the block."""
        stop = threading.Event()
        thread = threading.Thread(target=self.follower.run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def close(self) -> None:
        self.pair.close()
        self.client.close()


class Switches:
    """Notes when the server switched: its totals tell each switch and how long it took."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self.spans: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        before = self._client.get("/stats").json()["switches"]
        while not self._stop.wait(0.2):
            told = self._client.get("/stats").json()
            if told["switches"] != before:
                before, now = told["switches"], time.monotonic()
                length = told["switch"]["starting_s"] + told["switch"]["draining_s"]
                self.spans.append((now - length - 0.3, now))

    def close(self) -> list[tuple[float, float]]:
        self._stop.set()
        self._thread.join()
        return self.spans


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    running = Running("--width", "32")
    live = Live(tmp_path, running.url)
    yield live
    live.close()
    running.close()


def test_a_plan_follows_the_load_and_no_request_fails(live: Live) -> None:
    candidates: list[Setting] = [
        {"instances": CORES, "threads": 1, "batch_size": size} for size in (1, 2, 4, 8)
    ]
    rates = [live.items_per_s(setting, 64) for setting in candidates]
    # Capacities within a tenth count as the same; then the smaller batch is the better one.
    near = [k for k, rate in enumerate(rates) if rate >= 0.9 * max(rates)]
    capacity, best = rates[near[0]], candidates[near[0]]
    alone = {
        name: live.items_per_s(s, 1) for name, s in (("fat", FAT), ("one", ONE), ("best", best))
    }
    quick = FAT if alone["fat"] > alone["one"] else ONE
    low_gain = 1.0 - alone["best"] / max(alone["fat"], alone["one"])
    bears = live.items_per_s(quick, 64) / capacity
    rows = (
        Row(1.5, quick, min(1.0, max(0.05, low_gain))),
        Row(math.inf, best, min(1.0, max(0.05, 1.0 - bears))),
    )
    live.holder.take(order(plan=Plan(rows, QUANTITY)))
    print(
        f"\ncapacity {capacity:.0f}/s at {best} of {rates}; alone {alone}; {quick} bears {bears:.2f}"
    )
    print(rows)

    fixed, followed = Shown((), ()), Shown((), ())
    with live.following():
        # What a change takes is learnt from the first one; it does not count.
        live.shown(capacity, SHARES[:1] * 2)
        for _ in range(ROUNDS):
            with live.holder.set_aside():
                live.put(best)
                fixed += live.shown(capacity)
            live.holder.enforce()
            followed += live.shown(capacity)
    told = live.client.get("/stats").json()
    live.put(FAT)
    fat = live.shown(capacity)

    limit_ms = 3.0 * fixed.p99_ms(0.1)
    for name, shown in (("best fixed", fixed), ("fat", fat), ("followed", followed)):
        print(
            f"{name:<10} failed {shown.failures.total()}; unsent {shown.unsent}; "
            f"p99 at 0.1: {shown.p99_ms(0.1):.1f} ms, at 0.8: {shown.p99_ms(0.8):.1f} ms; "
            f"in {len(shown.switches)} switches: "
            f"{shown.p99_ms(0.1, switching=True):.1f} and {shown.p99_ms(0.8, switching=True):.1f} "
            f"ms; mean {shown.mean_ms():.1f} ms; limit {limit_ms:.1f} ms"
        )
    print("switches", [round(b - a - 0.3, 3) for a, b in followed.switches])
    print(f"the last switch: {told['switch']}")
    assert followed.failures == {} and told["failed"] == 0
    assert told["switch"]["failed"] == 0
    assert len(followed.switches) >= 2
