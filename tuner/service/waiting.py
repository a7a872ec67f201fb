"""Requests that are answered once there is something new: who waits costs nothing until then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from fastapi import Request

from tuner.study.news import News

LEAVING_S = 0.25
"""How late who waits sees that the server is about to end."""


class Waiting:
    """Wakes requests that wait for a device's news, and all of them when the server is about to end."""

    def __init__(self, news: News, leaving: Callable[[], bool]) -> None:
        self._news, self._leaving = news, leaving
        self.over = False
        self.at_end: list[Callable[[], None]] = [news.tell_all]

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Look for the server's end in the background, as long as the context lasts."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        while not self._leaving():
            await asyncio.sleep(LEAVING_S)
        self.over = True
        for tell in self.at_end:
            tell()

    async def for_news(self, request: Request, device: str, mark: int, seconds: float) -> bool:
        """Wait for news of a device after a mark; return whether its caller still waits.

        Returns after so many seconds without any, too, or when the server is about to end.
        """
        running = asyncio.get_running_loop()
        woken: asyncio.Future[None] = running.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        def wake_from_any_thread() -> None:
            running.call_soon_threadsafe(wake)

        hung_up = running.create_task(_hung_up(request))
        hung_up.add_done_callback(lambda _: wake())
        timer = running.call_later(seconds, wake)
        end = self._news.wait(device, mark, wake_from_any_thread)
        try:
            await woken
        finally:
            end()
            timer.cancel()
            hung_up.cancel()
        return not hung_up.done() or hung_up.cancelled()


async def _hung_up(request: Request) -> None:
    """Return once the caller has let go of its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
