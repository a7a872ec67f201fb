"""The loop of a simulated agent: it polls, tries, holds and reports as a real one does.

It differs as stated in the command's `--help`: nothing is set, and a window is only a wait.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

from pydantic import TypeAdapter

from agents.tuner_link.client import Answer, Backoff, refusal_of
from tests.bench.fleet.connection import AgentConnection
from tests.bench.fleet.device import DeviceModel
from tuner.core import (
    Applied,
    Conflict,
    InvalidInput,
    Level,
    LinkError,
    NotFound,
    Now,
    Outcome,
    TrialState,
    TuningError,
)
from tuner.wire import (
    LONGEST_POLL_S,
    ORDER,
    Assignment,
    HoldOrder,
    HoldReport,
    Message,
    Poll,
    Receipt,
    Registered,
    Registration,
    Release,
    Renewal,
    TrialReport,
)

PACE_S = 1.0
"""The least time between two answers that change nothing, in seconds, as in a real agent."""
RECEIPT: TypeAdapter[Receipt] = TypeAdapter(Receipt)
REGISTERED: TypeAdapter[Registered] = TypeAdapter(Registered)


@dataclass
class Traffic:
    """The requests of all agents of a process, and their answers.

    `ordered_at` is the time of each device's first new order since its entry was removed, in seconds of
    the monotonic clock; `receipts` counts the tuner's answers to reports, `trials` the runs by device,
    study and number.
    """

    asked: int = 0
    failed: int = 0
    waiting: int = 0
    trying: int = 0
    holding: int = 0
    ordered_at: dict[str, float] = field(default_factory=dict)
    receipts: Counter[str] = field(default_factory=Counter)
    trials: Counter[tuple[str, str, int]] = field(default_factory=Counter)


@dataclass(kw_only=True)
class VirtualAgent:
    """One device with its loop, as a task of an event loop."""

    device: str
    host: str
    start: str
    model: DeviceModel
    connection: AgentConnection
    traffic: Traffic
    now: Now
    rng: random.Random
    monotonic: Callable[[], float] = time.monotonic
    _hold: HoldOrder | None = None
    _due_s: float = 0.0
    _reported_s: float = -math.inf
    _spool: list[TrialReport | HoldReport] = field(default_factory=list)
    _registered: bool = False
    _backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.rng)

    async def run(self) -> None:
        """Work until the task is cancelled, through all failures of the tuner."""
        try:
            while True:
                try:
                    await self.step()
                    self._backoff.worked()
                except NotFound:
                    self._registered = False
                    await asyncio.sleep(self._backoff.failed())
                except TuningError as error:
                    self.traffic.failed += 1
                    again_s = error.again_s if isinstance(error, LinkError) else 0.0
                    await asyncio.sleep(max(again_s, self._backoff.failed()))
        finally:
            self.connection.close()

    async def register(self) -> None:
        """Register the device. Raises TuningError."""
        path = f"/v1/devices/{quote(self.device, safe='')}"
        described = self.model.described(self.device, self.host, self.now())
        await self._ask("PUT", path, Registration(device=described), REGISTERED)
        self._registered = True

    async def step(self) -> None:
        """Do the next due action; wait for the tuner if there is none."""
        if self._hold is not None and self.monotonic() >= self._due_s:
            await self._observe(self._hold)
        await self._deliver()
        if not self._registered:
            await self.register()
        asked_s = self.monotonic()
        order = await self._next()
        if isinstance(order, Assignment):
            self.traffic.ordered_at.setdefault(self.device, self.monotonic())
            await self._try(order)
            return
        if isinstance(order, HoldOrder) and order != self._hold:
            self.traffic.holding += self._hold is None
            self.traffic.ordered_at.setdefault(self.device, self.monotonic())
            self._hold = order
            self._due_s = self.monotonic() + self.rng.uniform(0.0, order.observe_s)
            return
        if isinstance(order, Release) and self._hold is not None:
            self.traffic.holding -= 1
            self._hold = None
        await asyncio.sleep(asked_s + PACE_S - self.monotonic())

    async def _next(self) -> object:
        hold = self._hold
        wait_s = LONGEST_POLL_S
        if hold is not None:
            wait_s = min(wait_s, max(0.0, self._due_s - self.monotonic()))
        poll = Poll(
            agent=f"{self.host}/{self.start}",
            applied=Applied(
                device=self.device,
                setting=hold.plan.rows[0].setting if hold else self.model.default,
                level=Level.HOLD if hold else Level.ORIGINAL,
                at=self.now(),
                study=hold.study if hold else "",
                revision=hold.revision if hold else 0,
            ),
            holding=hold.study if hold else "",
            revision=hold.revision if hold else 0,
            wait_s=wait_s,
        )
        path = f"/v1/devices/{quote(self.device, safe='')}/next"
        self.traffic.waiting += 1
        try:
            return await self._ask("POST", path, poll, ORDER, wait_s)
        finally:
            self.traffic.waiting -= 1

    async def _try(self, order: Assignment) -> None:
        self.traffic.trying += 1
        try:
            outcome = await self._measured(order)
        finally:
            self.traffic.trying -= 1
        self.traffic.trials[self.device, order.study, order.trial] += 1
        report = TrialReport.of(order, device=self.device, outcome=outcome)
        self._spool.append(report)
        await self._deliver()

    async def _measured(self, order: Assignment) -> Outcome:
        began, until_s = self.now(), self.monotonic() + order.window_s
        renewal = Renewal(device=self.device, token=order.token, nonce=order.nonce)
        while (left_s := until_s - self.monotonic()) > 0.0:
            await asyncio.sleep(min(left_s, order.lease_s / 3.0))
            if self.monotonic() < until_s:
                try:
                    await self._ask("POST", "/v1/trials/renew", renewal, REGISTERED)
                except (NotFound, Conflict) as error:
                    why = f"the tuner ended the lease: {error.message}"
                    return Outcome(state=TrialState.ABORTED, reason=why)
                except TuningError:  # not reached: the trial continues
                    self.traffic.failed += 1
        window = self.model.window(order.setting, began, order.window_s, self.rng)
        return Outcome(state=TrialState.COMPLETED, measurement=window)

    async def _observe(self, hold: HoldOrder) -> None:
        began = self.now()
        await asyncio.sleep(hold.window_s)
        setting = hold.plan.rows[0].setting
        self._due_s = self.monotonic() + hold.observe_s
        if self.monotonic() - self._reported_s < hold.report_s:
            return
        self._reported_s = self.monotonic()
        self._spool.append(
            HoldReport.of(
                hold,
                device=self.device,
                setting=setting,
                measurement=self.model.window(setting, began, hold.window_s, self.rng),
            )
        )

    async def _deliver(self) -> None:
        """Send the stored reports, oldest first; a refused report is dropped, an unanswered one is kept."""
        while self._spool:
            report = self._spool[0]
            kind = "trials" if isinstance(report, TrialReport) else "holds"
            result = "refused"
            with suppress(InvalidInput, NotFound, Conflict):
                receipt = await self._ask("POST", f"/v1/{kind}/report", report, RECEIPT)
                result = receipt.result
            self.traffic.receipts[f"{kind} {result}"] += 1
            self._spool.pop(0)

    async def _ask(
        self,
        method: str,
        path: str,
        message: Message,
        schema: TypeAdapter[Answer],
        wait_s: float = 0.0,
    ) -> Answer:
        self.traffic.asked += 1
        answer = await self.connection.ask(method, path, message.model_dump_json(), wait_s)
        if answer.status >= 300:
            raise refusal_of(answer.status, answer.body, answer.retry_after)
        return schema.validate_json(answer.body)
