"""What the tests themselves, written for 3.11, need on Python 3.10: `pytest -p tests.python310.plugin`.

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

import typing_extensions


@asynccontextmanager
async def unlimited(seconds: float) -> AsyncIterator[None]:
    """Stand in for asyncio.timeout, which only bounds hangs in tests; pytest's own bounds them, too."""
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


if sys.version_info < (3, 11):
    datetime.UTC = datetime.timezone.utc
    asyncio.timeout, asyncio.TaskGroup = unlimited, Tasks
    for name in ("Self", "Unpack", "assert_never"):
        setattr(typing, name, getattr(typing_extensions, name))
