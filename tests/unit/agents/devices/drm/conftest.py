from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.boards.inline import InlineBoard

Host = Callable[[str], InlineBoard]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Yield a function that returns a host with a GPU, whose files answer in this process."""
    with ExitStack() as stack:

        def begin(name: str) -> InlineBoard:
            board = InlineBoard(name, tmp_path / name)
            stack.enter_context(board.at())
            return board

        yield begin
