"""Replacements that the tests, written for 3.11, need on Python 3.10: `pytest -p tests.python310.plugin`.

The product needs none of it: `make test-python310` imports its modules without this, and checks them
with the types of 3.10.
"""

from __future__ import annotations

import asyncio
import datetime
import sys
import typing
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import tomli
import typing_extensions


@asynccontextmanager
async def unlimited(seconds: float) -> AsyncIterator[None]:
    """Replace asyncio.timeout, which only bounds hangs in tests; pytest's timeout bounds them, too."""
    yield


class Tasks:
    """Stand in for asyncio.TaskGroup."""

    async def __aenter__(self) -> Tasks:
        self._tasks: list[asyncio.Task[Any]] = []
        return self

    def create_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self._tasks.append(asyncio.create_task(work))
        return self._tasks[-1]

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*self._tasks)


class Runner:
    """Stand in for asyncio.Runner."""

    def __enter__(self) -> Runner:
        self._loop = asyncio.new_event_loop()
        return self

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
        return self._loop.run_until_complete(work)

    def __exit__(self, *error: object) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task]))
        self._loop.close()


if sys.version_info < (3, 11):  # noqa: UP036 - run on 3.10 alone
    datetime.UTC = datetime.timezone.utc  # noqa: UP017
    sys.modules["tomllib"] = tomli
    asyncio.timeout, asyncio.TaskGroup, asyncio.Runner = unlimited, Tasks, Runner
    for name in ("Self", "Unpack", "assert_never"):
        setattr(typing, name, getattr(typing_extensions, name))
