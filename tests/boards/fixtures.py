"""Fixtures over mounted boards: each is mounted once, and reset for every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.boards.mounted import MountedBoard, mounted

Mount = Callable[[str], MountedBoard]


@pytest.fixture(scope="session")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """Yield a function that mounts a board, once per session."""
    there: dict[str, MountedBoard] = {}
    with ExitStack() as stack:

        def mount(name: str) -> MountedBoard:
            if name not in there:
                folder = tmp_path_factory.mktemp("boards") / name
                there[name] = stack.enter_context(mounted(name, folder))
            return there[name]

        yield mount


@pytest.fixture
def mount(boards: Mount) -> Iterator[Mount]:
    """Yield a function that returns a reset board."""
    used: list[MountedBoard] = []

    def fresh(name: str) -> MountedBoard:
        used.append(boards(name))
        used[-1].do(reset=True)
        return used[-1]

    yield fresh
    for board in used:
        board.do(reset=True)
