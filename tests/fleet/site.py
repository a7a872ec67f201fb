"""Several tuners on one PostgreSQL behind a balancer, with working agents, and failures of both."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import text

from db import open_store
from tests import postgres
from tests.bench.fleet.agent import Traffic
from tests.bench.fleet.connection import TunerAddress
from tests.bench.fleet.fleet import SimulatedFleet, SimulationPlan
from tests.contracts.stored import trial_states
from tests.integration.stage import JOULETUNE, Stage, Wire
from tests.processes import until
from tuner.core import Phase
from tuner.main import utc_now
from tuner.wire import StudyDraft

ADMIN = "x" * 43
START_S = 120.0


@dataclass
class Tuner(Stage):
    """One of several tuners, with its own wire to the database."""

    url: str = ""

    @property
    def db(self) -> str:
        return self.url


@dataclass
class Site:
    """Tuners, their wires to PostgreSQL, and the balancer for agents and operators."""

    server: Path
    url: str
    tuners: list[Tuner]
    wires: list[Wire]
    balancer: Wire

    def restart_database(self) -> None:
        postgres.restart(self.server)

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Send a request through the balancer, and repeat it if a tuner has just ended."""
        answers: list[httpx2.Response] = []

        def answered() -> bool:
            with suppress(httpx2.TransportError):
                answer = httpx2.request(
                    method,
                    f"http://127.0.0.1:{self.balancer.port}/v1{path}",
                    json=body,
                    headers={"Authorization": f"Bearer {ADMIN}"},
                    timeout=60.0,
                )
                answers.append(answer)
                return answer.status_code < 500
            return False

        until(answered, lambda: f"{method} {path}: {answers[-1:]}", START_S)
        assert answers[-1].status_code < 400, answers[-1].text
        return answers[-1].json()


@contextmanager
def site(folder: Path, tuners: int, program: Sequence[str] = JOULETUNE) -> Iterator[Site]:
    """Run a database and tuners on it; the first tuner creates the tables. All end with the context."""
    # Not pytest's temporary folder, which the server's user cannot open.
    with (
        tempfile.TemporaryDirectory() as open_to_all,
        postgres.server(_opened(open_to_all)) as server,
    ):
        url = postgres.new_database(server, "fleet")
        port = int(url.rpartition(":")[2].partition("/")[0])
        wires = [Wire(port) for _ in range(tuners)]
        played = []
        for number, wire in enumerate(wires):
            own = folder / f"tuner-{number}"
            own.mkdir()
            (own / "token").touch(0o600)
            (own / "token").write_text(ADMIN)
            through = url.replace(f":{port}/", f":{wire.port}/")
            played.append(Tuner(own, url=through, tuner=[*program]))
        balancer = Wire(*(tuner.tuner_port for tuner in played))
        try:
            for tuner in played:
                tuner.start_tuner()
            yield Site(_opened(open_to_all), url, played, wires, balancer)
        finally:
            for tuner in played:
                for name in list(tuner.processes):
                    tuner.kill(name)
            for wire in (balancer, *wires):
                wire.close()


def _opened(folder: str) -> Path:
    Path(folder).chmod(0o755)
    return Path(folder) / "server"


class Workforce:
    """Simulated agents that work in a separate thread within the context."""

    def __init__(self, port: int, agents: int) -> None:
        plan = SimulationPlan(
            agents=agents, busy=0, orders=0, seconds=0.0, spec="orin", policy="sobol", window_s=1.0,
            seed=0,
        )  # fmt: skip
        address = TunerAddress("127.0.0.1", port)
        self.fleet = SimulatedFleet(address, ADMIN, plan, utc_now, lambda _: None)
        self._ended = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), daemon=True)

    @property
    def traffic(self) -> Traffic:
        return self.fleet.traffic

    def __enter__(self) -> Workforce:
        self._thread.start()
        assert self._begun.wait(START_S), "the agents could not be registered"
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30.0)

    async def _work(self) -> None:
        await self.fleet.register()
        self._begun.set()
        async with self.fleet.at_work():
            while not self._ended.is_set():
                await asyncio.sleep(0.1)


@dataclass
class Ordeal:
    """The failures of tuners: one is killed every `every_s`, and each in turn is cut off for `cut_s`."""

    seconds: float
    every_s: float
    cut_s: float
    restarts: int
    done: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _killed: int = -1
    _cut_off: int = -1

    def inflict(self, site: Site) -> None:
        """Kill a tuner that is not cut off, and sometimes crash the database, until the end."""
        over = threading.Event()
        cutting = threading.Thread(target=self._cut, args=(site, over), daemon=True)
        cutting.start()
        began, turn = time.monotonic(), 0
        while (passed := time.monotonic() - began) < self.seconds or self.done[
            "database restarts"
        ] < self.restarts:
            with self._lock:
                turn += 1 + ((turn + 1) % len(site.tuners) == self._cut_off)
                self._killed = turn % len(site.tuners)
            killed = site.tuners[self._killed]
            killed.kill("tuner")
            self.done["tuners killed"] += 1
            if passed >= self.seconds * (self.done["database restarts"] + 0.5) / max(
                1, self.restarts
            ):
                site.restart_database()
                self.done["database restarts"] += 1
            until(lambda: _started(killed), lambda: killed.log("tuner"), START_S)  # noqa: B023
            self._killed = -1
            time.sleep(max(0.0, began + passed + self.every_s - time.monotonic()))
        over.set()
        cutting.join()

    def _cut(self, site: Site, over: threading.Event) -> None:
        """Cut one wire after the other, except that of a starting tuner, which would not start."""
        turn = 0
        while not over.is_set():
            with self._lock:
                turn += turn % len(site.wires) == self._killed
                self._cut_off = turn % len(site.wires)
            wire = site.wires[self._cut_off]
            wire.cut()
            self.done["tuners cut off"] += 1
            over.wait(self.cut_s)
            wire.mend()
            turn += 1


def _started(tuner: Tuner) -> bool:
    """Start a tuner and return whether it answers; without the crashed database it may not."""
    if "tuner" in tuner.processes:
        tuner.kill("tuner")
    try:
        tuner.start_tuner()
    except AssertionError:
        return False
    return True


def draft(devices: list[str], trials: int, window_s: float) -> dict[str, object]:
    """Return a study for some devices."""
    asked = StudyDraft.model_validate(
        {
            "devices": devices,
            "policy": "sobol",
            "constraints": ["latency_p99_ms <= 2x baseline"],
            "terms": {"trials": trials, "window_s": window_s, "max_window_s": window_s},
        }
    )
    return asked.model_dump(mode="json")


def assert_whole(url: str, studies: list[str], trials: int) -> int:
    """Check in the database that no trial is lost, doubled or left running; return their number."""
    store = open_store(url, create=False)
    counted = 0
    for name in studies:
        study, kept_trials = store.studies.get(name), store.trials.list(name)
        counted += len(kept_trials)
        assert study.phase is Phase.HOLDING, f"{name} is stuck in {study.phase}"
        assert [t.number for t in kept_trials] == list(range(1, len(kept_trials) + 1))
        assert all(t.state.final for t in kept_trials), f"{name} still runs a trial"
        windows = Counter(t.phase for t in kept_trials if t.state.evidence)
        assert windows[Phase.BASELINE] == 2, f"{name}: {windows}"
        assert windows[Phase.TUNING] == trials, f"{name}: {windows}"
        for trial in kept_trials:
            reports = Counter(
                r.device for r in store.trials.reports(name, trial.number) if not r.late
            )
            assert trial.state.evidence, f"{name}, trial {trial.number}: {trial.reason}"
            assert reports == dict.fromkeys(trial.on(study.devices), 1), (
                f"{name}, {trial.number}: {reports}"
            )
            ends = [s for s, _, _ in trial_states(store, name, trial.number) if s.final]
            assert len(ends) == 1
    store.close()
    with postgres.connection(url) as connection:
        kept = connection.execute(text("SELECT count(*) FROM trials")).scalar()
    assert kept == counted
    return counted
