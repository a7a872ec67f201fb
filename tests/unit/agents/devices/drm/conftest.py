from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.boards.inline import InlineBoard

Host = Callable[[str], InlineBoard]


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Yield a function that returns a host with a GPU, whose files answer in this process."""
    top = tmp_path_factory.mktemp("h")  # short: a socket's path has at most 107 bytes
    with ExitStack() as stack:

        def begin(name: str) -> InlineBoard:
            board = InlineBoard(name, top / name)
            stack.enter_context(board.at())
            return board

        yield begin
