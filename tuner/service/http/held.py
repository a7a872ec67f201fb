"""Reports of holds, stored in batches: a transaction for each report would dominate the tuner's work."""

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
"""Reports within this many seconds are stored together; only the reporting agent waits."""
MOST_TOGETHER = 200
MOST_WAITING = 5 * MOST_TOGETHER
"""The most reports that wait for storage.

After some hours without a tuner each agent of a fleet has hundreds to send.
"""

CallerReport = tuple[Caller, HoldReport]


class HeldWindows:
    """Collects reports and passes them to the loop in a worker thread. For use in one event loop.

    `busy` returns the refusal for a client that must retry because too many reports wait.
    """

    def __init__(self, loop: Loop, access: Access, busy: Callable[[], Busy]) -> None:
        self._loop, self._access, self._busy = loop, access, busy
        self._waiting: list[tuple[CallerReport, asyncio.Future[Receipt]]] = []
        self._taking: asyncio.Task[None] | None = None

    async def report(self, caller: Caller, message: HoldReport) -> Receipt:
        """Return the receipt of a report once it is stored. Raises Busy, and the error of its refusal."""
        if len(self._waiting) >= MOST_WAITING:
            raise self._busy()
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(((caller, message), receipt))
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        return await receipt

    async def _take(self) -> None:
        """Store the waiting reports, batch after batch, and answer their clients."""
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
        """Store a batch; if a report makes it fail, store each report by itself. Raises StoreError."""
        try:
            return self._all(reports)
        except StoreError:
            raise
        except Exception as error:  # storing each report alone shows which one fails
            if len(reports) == 1:
                log.exception(
                    "event=hold_not_taken the hold reported by %s was rejected",
                    reports[0][1].device,
                )
                return [error]
            return [self._taken([one])[0] for one in reports]

    def _all(self, reports: Sequence[CallerReport]) -> Sequence[Receipt | TuningError]:
        """Store the reports of a batch whose callers own their devices, in one call."""
        refused = [self._refusal(caller, message.device) for caller, message in reports]
        own = [message for (_, message), no in zip(reports, refused, strict=True) if no is None]
        of_studies, observed = ([m for m in own if bool(m.study) is has] for has in (True, False))
        held = iter(self._loop.hold_reports.observe_all(of_studies) if of_studies else ())
        alone = iter(self._loop.observed_reports.observe_all(observed) if observed else ())
        return [
            no or next(held if message.study else alone)
            for (_, message), no in zip(reports, refused, strict=True)
        ]

    def _refusal(self, caller: Caller, device: str) -> TuningError | None:
        """Return the refusal of a caller that does not own the device, else None."""
        try:
            self._access.require_own(caller, device)
        except TuningError as error:
            return error
        return None
