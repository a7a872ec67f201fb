"""A simulated fleet at work: hosts enrolled, devices registered, some of them tuned, all measured."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from agents.tuner_link.client import Backoff, refusal_of
from tests.bench.fleet.agent import Traffic, VirtualAgent
from tests.bench.fleet.connection import AgentConnection, HttpAnswer, TunerAddress
from tests.bench.fleet.device import DeviceModel
from tuner.core import Conflict, LinkError, Now, TunerReplica, TuningError, digest_of
from tuner.wire import Change, Enrolment, ReplicaView, StudyDraft

PER_HOST = 8
"""The number of devices per host, which share its token."""
AT_ONCE = 32
"""The number of hosts that enrol and register concurrently."""
HEALTH_EVERY_S = 0.1
ORDER_EVERY_S = 0.2
ORDER_WAIT_S = 70.0
"""An order that takes longer was lost, and found only at the end of a long poll."""
BEGIN_PER_S = 25.0
"""The number of agents that begin per second: those of a real fleet do not start in one moment."""
ROUND_S, MOST_ROUNDS = 60.0, 5
"""A fleet has settled after a round of this many seconds without a failed request; it is measured after
this many rounds in any case."""
OF_FLEET = "fleet-"
_REPLICAS = TypeAdapter(list[ReplicaView])
TOLD_S = 25.0
"""A tuner without a report for this many seconds is not counted; tuners report every 10 s."""


@dataclass(frozen=True, kw_only=True)
class SimulationPlan:
    """The plan of a simulation.

    Of `agents` devices `busy` are in a study with windows of `window_s` under `policy`; the others wait.
    `orders` further studies are created on waiting devices, to measure the delay of each order.
    """

    agents: int
    busy: int
    orders: int
    seconds: float
    spec: str
    policy: str
    window_s: float
    seed: int

    @property
    def spread_s(self) -> float:
        """The time over which the agents begin, in seconds."""
        return self.agents / BEGIN_PER_S


@dataclass(frozen=True, kw_only=True)
class SimulationFigures:
    """The results: times in seconds, `tuner_core` as a share of one core, memory in bytes.

    The use of the tuners' processes is from their own reports, sent every 10 s; None without any.
    `held` devices held a setting at the end and `trying` were in a trial.
    """

    agents: int
    waiting: int
    trying: int
    held: int
    seconds: float
    requests_per_s: float
    failed_per_s: float
    trials_per_s: float
    windows_per_s: float
    health_p50_s: float
    health_p99_s: float
    order_p50_s: float | None
    order_p99_s: float | None
    orders: int
    orders_lost: int
    tuner_core: float | None
    tuner_bytes: float | None
    tuner_bytes_before: float | None
    receipts: dict[str, int] = field(default_factory=dict)

    @property
    def bytes_per_agent(self) -> float | None:
        """The tuner's memory per agent, None if the tuner does not report it."""
        if self.tuner_bytes is None or self.tuner_bytes_before is None:
            return None
        return (self.tuner_bytes - self.tuner_bytes_before) / max(1, self.agents)


class SimulatedFleet:
    """Devices `fleet-0`, `fleet-1`, … at one tuner, or at a balancer of several."""

    def __init__(
        self,
        address: TunerAddress,
        admin: str,
        plan: SimulationPlan,
        now: Now,
        say: Callable[[str], None],
    ) -> None:
        self.traffic = Traffic()
        self.agents: list[VirtualAgent] = []
        self._address, self._admin, self._plan, self._say = address, admin, plan, say
        self._now = now
        self._model = DeviceModel(plan.spec)
        self._rng = random.Random(plan.seed)
        self._start = secrets.token_hex(4)
        self._studies: list[str] = []

    async def simulate(self) -> SimulationFigures:
        """Start the fleet, measure it, and stop the studies that it created.

        Raises:
            Conflict: the tuner has other devices.
            LinkError, Unauthorised: the tuner does not answer, or refuses the token.
        """
        before = await self._used()
        await self.register()
        async with self.at_work():
            await asyncio.sleep(self._plan.spread_s)
            await self.occupy()
            await self._settled()
            self._say(f"measuring for {self._plan.seconds:g} s")
            figures = await self._measured(before)
            await self.give_back()
        return figures

    async def register(self) -> None:
        """Enrol the hosts and register their devices. Raises Conflict, or the tuner's refusal."""
        rows = json.loads((await self._operator("GET", "/v1/devices")).body)
        others = [d for row in rows if not (d := row["device"]["id"]).startswith(OF_FLEET)]
        if others:
            raise Conflict(
                f"this tuner has devices that are no simulation, {others[0]} among them",
                hint="start a tuner with a database of its own for it",
            )
        hosts = iter(range(0, self._plan.agents, PER_HOST))

        async def introduce() -> None:
            operator = AgentConnection(self._address, self._admin)
            for first in hosts:
                await self._introduce(operator, first)
            operator.close()

        self._say(f"registering {self._plan.agents} devices")
        await asyncio.gather(*(introduce() for _ in range(AT_ONCE)))

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Run all agents within the context; they begin one after the other."""

        async def begin(number: int, agent: VirtualAgent) -> None:
            await asyncio.sleep(number * self._plan.spread_s / self._plan.agents)
            await agent.run()

        tasks = [asyncio.create_task(begin(n, agent)) for n, agent in enumerate(self.agents)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def occupy(self) -> None:
        """Create the studies that keep devices busy. Raises the tuner's refusal."""
        for device in chosen(self._plan.agents, self._plan.busy, 0):
            with suppress(Conflict):  # the answer was lost, but the study exists
                await self._study(device)

    async def _settled(self) -> None:
        for _ in range(MOST_ROUNDS):
            failed = self.traffic.failed
            await asyncio.sleep(min(ROUND_S, self._plan.spread_s))
            if self.traffic.failed == failed:
                return

    async def give_back(self) -> None:
        """Stop the created studies; the devices stay registered."""
        change = Change(who="fleet simulate", why="the simulation is over").model_dump_json()
        for study in self._studies:
            with suppress(TuningError):
                await self._operator("POST", f"/v1/studies/{study}/stop", change)

    async def health(self, seconds: float) -> list[float]:
        """Return the seconds of the tuner's health checks, requested ten times a second."""
        asking, until, took = AgentConnection(self._address, ""), time.monotonic() + seconds, []
        while (began := time.monotonic()) < until:
            await asking.ask("GET", "/v1/health")
            took.append(time.monotonic() - began)
            await asyncio.sleep(HEALTH_EVERY_S)
        asking.close()
        return took

    async def order(self) -> list[float | None]:
        """Create studies on waiting devices; return the seconds of each order, None for a lost one.

        They count from the request for the study, so its creation is included.
        """
        made: dict[str, float] = {}
        for device in chosen(self._plan.agents, self._plan.orders, 1):
            self.traffic.ordered_at.pop(device, None)
            made[device] = time.monotonic()
            try:
                await self._study(device)
            except Conflict:  # it has a study already: not a waiting one
                made.pop(device)
            await asyncio.sleep(ORDER_EVERY_S)
        until = time.monotonic() + ORDER_WAIT_S
        came = self.traffic.ordered_at
        while time.monotonic() < until and any(came.get(d, 0.0) < at for d, at in made.items()):
            await asyncio.sleep(0.1)
        return [came[d] - at if came.get(d, 0.0) >= at else None for d, at in made.items()]

    async def _introduce(self, operator: AgentConnection, first: int) -> None:
        host, token = f"{OF_FLEET}host-{first // PER_HOST}", secrets.token_urlsafe(32)
        enrolment = Enrolment(agent=host, digest=digest_of(token)).model_dump_json()
        await self._insist(operator, "POST", "/v1/enrol", enrolment)
        for number in range(first, min(first + PER_HOST, self._plan.agents)):
            agent = VirtualAgent(
                device=f"{OF_FLEET}{number}",
                host=host,
                start=self._start,
                model=self._model,
                connection=AgentConnection(self._address, token),
                traffic=self.traffic,
                now=self._now,
                rng=random.Random(f"{self._plan.seed}/{number}"),
            )
            await agent.register()
            self.agents.append(agent)

    async def _study(self, device: str) -> None:
        draft = StudyDraft.model_validate(
            {
                "devices": (device,),
                "policy": self._plan.policy,
                "constraints": ("latency_p99_ms <= 1.5x baseline",),
                "seed": self._plan.seed,
                "terms": {
                    "trials": 100_000,
                    "window_s": self._plan.window_s,
                    "max_window_s": 10.0 * self._plan.window_s,
                },
                "who": "fleet simulate",
            }
        )
        answer = await self._operator("POST", "/v1/studies", draft.model_dump_json())
        self._studies.append(json.loads(answer.body)["id"])

    async def _measured(self, before: Mapping[str, TunerReplica]) -> SimulationFigures:
        asked, failed = self.traffic.asked, self.traffic.failed
        receipts, began = self.traffic.receipts.copy(), time.monotonic()
        first = await self._used()
        ordering = asyncio.create_task(self.order())
        health = sorted(await self.health(self._plan.seconds))
        seconds, last = time.monotonic() - began, await self._used()
        trying, held, waiting = self.traffic.trying, self.traffic.holding, self.traffic.waiting
        requests = self.traffic.asked - asked, self.traffic.failed - failed
        new = self.traffic.receipts - receipts
        late = await ordering
        known = sorted(one for one in late if one is not None)
        return SimulationFigures(
            agents=len(self.agents),
            waiting=waiting,
            trying=trying,
            held=held,
            seconds=seconds,
            requests_per_s=requests[0] / seconds,
            failed_per_s=requests[1] / seconds,
            trials_per_s=new["trials closed"] / seconds,
            windows_per_s=new["holds kept"] / seconds,
            health_p50_s=quantile(health, 0.5),
            health_p99_s=quantile(health, 0.99),
            order_p50_s=quantile(known, 0.5) if known else None,
            order_p99_s=quantile(known, 0.99) if known else None,
            orders=len(late),
            orders_lost=len(late) - len(known),
            tuner_core=_core(first, last),
            tuner_bytes=sum(r.memory_bytes for r in last.values()) or None,
            tuner_bytes_before=sum(r.memory_bytes for r in before.values()) or None,
            receipts=dict(self.traffic.receipts),
        )

    async def _used(self) -> dict[str, TunerReplica]:
        """Return the latest reports of the running tuners, by their ids."""
        replicas = _REPLICAS.validate_json((await self._operator("GET", "/v1/replicas")).body)
        return {one.replica.id: one.replica for one in replicas if one.told_s < TOLD_S}

    async def _operator(self, method: str, path: str, body: str = "") -> HttpAnswer:
        asking = AgentConnection(self._address, self._admin)
        try:
            return await self._insist(asking, method, path, body)
        finally:
            asking.close()

    async def _insist(
        self, asking: AgentConnection, method: str, path: str, body: str = ""
    ) -> HttpAnswer:
        """Repeat a request until the tuner answers; it may ask an operator of many devices to wait."""
        backoff = Backoff(self._rng)
        for _ in range(20):
            try:
                answer = await asking.ask(method, path, body, wait_s=60.0)
                if answer.status < 300:
                    return answer
                raise refusal_of(answer.status, answer.body, answer.retry_after)
            except LinkError as error:
                last = error
                await asyncio.sleep(max(error.again_s, backoff.failed()))
        raise last


def _core(first: Mapping[str, TunerReplica], last: Mapping[str, TunerReplica]) -> float | None:
    """Return the cores that the tuners used between two reports; None if unknown."""
    used = [
        (last[name].cpu_s - one.cpu_s) / (last[name].seen_at - one.seen_at).total_seconds()
        for name, one in first.items()
        if name in last and last[name].seen_at > one.seen_at
    ]
    return sum(used) if used else None


def chosen(agents: int, count: int, skip: int) -> Sequence[str]:
    """Return this many devices spread over a fleet; another `skip` gives others."""
    step = max(1, agents // max(1, count))
    return [f"{OF_FLEET}{n}" for n in range(skip % step, agents, step)][:count]


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
