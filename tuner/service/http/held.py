"""What agents tell of holds, taken some at a time: a transaction for each costs more than all the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool

from tuner.core import Busy, Caller, StoreError, TuningError
from tuner.service.access import Access
from tuner.study.loop import Loop
from tuner.wire import HoldReport, Receipt

log = logging.getLogger(__name__)

TOGETHER_S = 0.25
"""What comes within this is stored at once; only the reporting agent waits for the response."""
MOST_TOGETHER = 200
MOST_WAITING = 5 * MOST_TOGETHER
"""How many wait to be stored: after hours without a tuner each of a fleet's agents has hundreds to tell."""

CallerReport = tuple[Caller, HoldReport]


class HeldWindows:
    """Collects reports and passes them to the loop in a worker thread. Of one event loop.

    `busy` makes the refusal for a client that must retry, as too many wait.
    """

    def __init__(self, loop: Loop, access: Access, busy: Callable[[], Busy]) -> None:
        self._loop, self._access, self._busy = loop, access, busy
        self._waiting: list[tuple[CallerReport, asyncio.Future[Receipt]]] = []
        self._taking: asyncio.Task[None] | None = None

    async def report(self, caller: Caller, message: HoldReport) -> Receipt:
        """Return once a message is stored. Raises what it is refused for, Busy among it."""
        if len(self._waiting) >= MOST_WAITING:
            raise self._busy()
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(((caller, message), receipt))
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        return await receipt

    async def _take(self) -> None:
        while self._waiting:
            if len(self._waiting) < MOST_TOGETHER:
                await asyncio.sleep(TOGETHER_S)
            some = self._waiting[:MOST_TOGETHER]
            del self._waiting[:MOST_TOGETHER]
            answers: Sequence[Receipt | Exception]
            try:
                answers = await run_in_threadpool(self._taken, [report for report, _ in some])
            except Exception as error:  # noqa: BLE001  the reporting client gets the error
                answers = [error] * len(some)
            for (_, receipt), answer in zip(some, answers, strict=True):
                if receipt.done():  # the client has disconnected
                    continue
                if isinstance(answer, Exception):
                    receipt.set_exception(answer)
                else:
                    receipt.set_result(answer)

    def _taken(self, reports: Sequence[CallerReport]) -> Sequence[Receipt | Exception]:
        """Take all at once; each by itself where one of them breaks what takes them."""
        try:
            return self._all(reports)
        except StoreError:
            raise
        except Exception as error:  # whose fault it was shows when each is taken alone
            if len(reports) == 1:
                log.exception(
                    "event=hold_not_taken the hold reported by %s was rejected",
                    reports[0][1].device,
                )
                return [error]
            return [self._taken([one])[0] for one in reports]

    def _all(self, reports: Sequence[CallerReport]) -> Sequence[Receipt | TuningError]:
        refused = [self._refusal(caller, message.device) for caller, message in reports]
        own = [message for (_, message), no in zip(reports, refused, strict=True) if no is None]
        receipts = iter(self._loop.hold_reports.observe_all(own))
        return [no or next(receipts) for no in refused]

    def _refusal(self, caller: Caller, device: str) -> TuningError | None:
        try:
            self._access.require_own(caller, device)
        except TuningError as error:
            return error
        return None
