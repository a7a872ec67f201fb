"""Fakes of an agent's surroundings: sides that a test controls, a tuner behind a mock transport."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from agents.agent.loop import DeviceAgent
from agents.agent.surroundings import Surroundings
from agents.holding.journal import Journal
from agents.host.machine import Host
from agents.target.measure import Measurer
from agents.target.side import LiveSignal, Side
from agents.target.target import Target
from agents.target.window import Usage
from agents.tuner_link.client import TunerClient
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Spool
from tests.builders import Time
from tuner.core import (
    ActuationError,
    Actuator,
    Estimate,
    Knob,
    Meter,
    Metric,
    Origin,
    Part,
    Reading,
    Scope,
    Setting,
    Space,
    TuningError,
    Value,
)
from tuner.wire import (
    Assignment,
    BudgetOrder,
    Enrolled,
    HoldOrder,
    Idle,
    Problem,
    Receipt,
    Registered,
    Release,
)

CLOCK = Knob("gpu.clock_mhz", (400, 600, 800, 1000), 1000)
BATCH = Knob("batch_size", (1, 2, 4), 1, Part.WORKLOAD)

Shows = Callable[[float, float], Mapping[str, float | Estimate]]
"""The metrics of a window by its start and the present time: numbers are totals, the others estimates."""


@dataclass
class FakeActuator:
    """Applies a setting unless `refuse` returns an error; `lies` are false values that it reads back.

    `job` is the batch job that the device is leased to.
    """

    label: str
    space: Space
    log: list[tuple[str, dict[str, Value]]]
    now: dict[str, Value] = field(default_factory=dict)
    refuse: Callable[[Setting], TuningError | None] = lambda _: None
    half_done: bool = False
    job: str = ""
    lies: dict[str, Value] = field(default_factory=dict)
    unreadable: TuningError | None = None
    closed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = {**self.space.default, **self.now}

    def read(self) -> Setting:
        if self.unreadable is not None:
            raise self.unreadable
        return {**self.now, **self.lies}

    def close(self) -> None:
        self.closed.append(self.label)

    def apply(self, setting: Setting) -> None:
        self.log.append((self.label, dict(setting)))
        error = self.refuse(setting)
        if error is None or self.half_done:
            self.now.update(setting)
        if error is not None:
            raise error


@dataclass
class Restarted:
    """An actuator of a workload that reports its restarts."""

    of: FakeActuator
    incarnation: Callable[[], str]

    def read(self) -> Setting:
        return self.of.read()

    def apply(self, setting: Setting) -> None:
        self.of.apply(setting)

    def close(self) -> None:
        self.of.close()


@dataclass
class FakeMeter:
    """Windows over a scripted world; counts those that are still open."""

    time: Time
    shows: Shows
    fails: TuningError | None = None
    open: int = 0
    opened: int = 0

    def start(self) -> FakeWindow:
        if self.fails is not None:
            raise self.fails
        self.open += 1
        self.opened += 1
        return FakeWindow(self, self.time.monotonic())


@dataclass
class FakeWindow:
    meter: FakeMeter
    began: float
    stopped: Reading | None = None

    def read(self) -> Reading:
        if self.meter.fails is not None:
            raise self.meter.fails
        shown = self.meter.shows(self.began, self.meter.time.monotonic())
        return Reading(
            {k: e for k, e in shown.items() if not isinstance(e, Estimate)},
            {k: e for k, e in shown.items() if isinstance(e, Estimate)},
        )

    def stop(self) -> Reading:
        if self.stopped is None:
            self.meter.open -= 1
            self.stopped = self.read()
        return self.stopped


def tail(mean: float, n: int) -> Estimate:
    """Return a p99 as from `n` requests: without an upper bound if they are few."""
    high = 1.05 * mean if n >= 299 else float("inf")
    return Estimate(mean, 0.02 * mean, max(1, n), 0.95 * mean, high, scope=Scope.SERVICE)


def steady(
    watts: float = 100.0, per_s: float = 50.0, p99_ms: float = 20.0, cpu_share: float = 1.0
) -> Shows:
    """Return a world with constant rates."""

    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        seconds = now - began
        items = float(int(per_s * seconds + 1e-9))
        estimates: dict[str, float | Estimate] = {
            "energy_j": watts * seconds,
            "items": items,
            "cpu_s": cpu_share * seconds,
        }
        if items:
            estimates["latency_p99_ms"] = tail(p99_ms, int(items))
        return estimates

    return shows


def side_of(name: str, actuator: Actuator, space: Space, meter: Meter, *metrics: str) -> Side:
    """Return a fake device with these metrics, which are simulated."""
    return Side(
        name=name,
        kind=name,
        board=name.upper(),
        version="1",
        space=space,
        metrics=tuple(Metric(metric, Origin.SIMULATED) for metric in metrics),
        actuator=actuator,
        meter=meter,
    )


@dataclass
class Rig:
    """A device and a workload in one scripted world, and everything around them."""

    folder: Path
    time: Time = field(default_factory=Time)
    shows: Shows = field(default_factory=steady)
    boot: str = "boot-1"
    driver: str = "driver 1"
    listed: tuple[str, ...] = ("energy_j", "power_w", "latency_p99_ms", "throughput_per_s")
    workload: bool = True
    own_cpu_s: Callable[[], float] = lambda: 0.0
    signals: tuple[LiveSignal, ...] = ()
    incarnation: Callable[[], str] | None = None
    log: list[tuple[str, dict[str, Value]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device_space = Space((CLOCK,) if self.workload else (CLOCK, BATCH))
        self.workload_space = Space((BATCH,))
        self.device = FakeActuator("device", self.device_space, self.log)
        self.work = FakeActuator("workload", self.workload_space, self.log)
        self.meter = FakeMeter(self.time, lambda began, now: self.shows(began, now))
        self.work_meter = FakeMeter(self.time, lambda began, now: {})
        self.closed: list[str] = []
        self.device.closed = self.work.closed = self.closed
        self.tuner = StubTuner(self.time)
        self.stop = threading.Event()
        self.spool = Spool(self.folder / "spool")
        self.journal = Journal(self.folder / "journal")

    @property
    def target(self) -> Target:
        device = Side(
            name="fake",
            kind="fake",
            board="Fake 1",
            version=self.driver,
            space=self.device_space,
            metrics=tuple(Metric(name, Origin.SIMULATED) for name in self.listed),
            actuator=self.device,
            meter=self.meter,
            settle_s=2.0,
            cannot={"fan_rpm": "it has no fan", "energy_j": "no counter"},
        )
        workload = Side(
            name="served",
            kind="served",
            board="",
            version="model 1",
            space=self.workload_space,
            metrics=(Metric("cpu_time_ms", scope=Scope.PROCESS),),
            actuator=self.work
            if self.incarnation is None
            else Restarted(self.work, self.incarnation),
            meter=self.work_meter,
            source="our load generator",
            signals=self.signals,
        )
        return Target((device,), workload if self.workload else None)

    @property
    def bench(self) -> Measurer:
        return Measurer(
            target=self.target,
            host_clock=self.time,
            now=self.time.now,
            usage=Usage(2, self.own_cpu_s),
            seed="0",
        )

    @property
    def link(self) -> TunerClient:
        """A link of an agent that has enrolled, and may enrol again."""
        for name, token in (("token", "admin"), ("agent-token", "agent@host secret")):
            if not (self.folder / name).exists():
                (self.folder / name).write_text(f"{token}\n")
        return TunerClient(self.tuner.client(), self.credentials, self.spool)

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.folder, self.folder / "token", "agent@host")

    def agent(self) -> DeviceAgent:
        """Return the agent as after a fresh start of its process."""
        around = Surroundings(
            link=self.link,
            journal=self.journal,
            host=Host("host", self.boot, 2),
            clock=self.time,
            now=self.time.now,
            stop=self.stop,
            start="start-1",
        )
        device = self.target.describe("fake@host", "agent@host", {}, self.time.now())
        return DeviceAgent(
            device, self.bench, self.folder / "holds", around, {"spec": "fake"}, random.Random(0)
        )

    @property
    def setting(self) -> Setting:
        """The setting in force."""
        return {**self.device.now, **(self.work.now if self.workload else {})}


@dataclass
class StubTuner:
    """A tuner that gives scripted orders and records messages; `broken` may fail a request."""

    time: Time
    orders: list[Assignment | HoldOrder | Idle | Release] = field(default_factory=list)
    budgets: list[BudgetOrder] = field(default_factory=list)
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    broken: Callable[[httpx2.Request], httpx2.Response | None] = lambda _: None
    receipt: str = "closed"

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url="http://tuner", transport=httpx2.MockTransport(self.answer))

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        wrong = self.broken(request)
        if wrong is not None:
            return wrong
        path, message = request.url.path, json.loads(request.content)
        if path == "/v1/enrol":
            return _json(Enrolled(agent=message["agent"]).model_dump_json())
        self.heard.append((path, message))
        if path.endswith("/next"):
            return self._next(message)
        if path.endswith("/budget"):
            return _json((self.budgets.pop(0) if self.budgets else BudgetOrder()).model_dump_json())
        if path.endswith(("/report", "/reverts")):
            return _json(Receipt(result=self.receipt).model_dump_json())  # type: ignore[arg-type]
        return _json(Registered(lease_s=30.0).model_dump_json())

    def told(self, end: str) -> list[dict[str, Any]]:
        """Return the messages to the paths with this end."""
        return [message for path, message in self.heard if path.endswith(end)]

    def _next(self, message: dict[str, Any]) -> httpx2.Response:
        if not self.orders:
            self.await_orders(message["wait_s"])
        order = self.orders.pop(0) if self.orders else Idle(why="nothing to do")
        return _json(order.model_dump_json())

    def await_orders(self, wait_s: float) -> None:
        """Delay a long poll that finds no order."""
        self.time.sleep(wait_s)


def refusal(status: int, code: str, message: str = "no") -> httpx2.Response:
    """Return the tuner's refusal of a request."""
    return _json(Problem(code=code, message=message, hint="do otherwise").model_dump_json(), status)


def refused(text: str = "the driver says no") -> ActuationError:
    """Return the error of a device that cannot be set."""
    return ActuationError(text)


def failing(number: int) -> Callable[..., Any]:
    """Return a system call that always fails with an error number."""

    def call(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


def _json(text: str, status: int = 200) -> httpx2.Response:
    return httpx2.Response(status, content=text, headers={"Content-Type": "application/json"})
