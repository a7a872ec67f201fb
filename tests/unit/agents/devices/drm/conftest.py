from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.device import Peer
from agents.actuator.grants import Granted
from agents.devices.drm.card import CLOCK, LIMIT, Card
from agents.devices.drm.knobs import discover
from tests.actuation import all_granted, replayed
from tests.boards.inline import InlineBoard
from tests.chaos.points import InlineDriver

Host = Callable[[str], InlineBoard]
ME, UUID = Peer(1, 1, 7), "drm:0000:03:00.0"


def card_of(board: InlineBoard) -> Card:
    (card,) = discover(str(board.root))
    assert isinstance(card, Card)
    return card


@dataclass
class Stand:
    """A host, an actuator over it that grants everything, and a clock to turn."""

    board: InlineBoard
    folder: Path
    now: list[float] = field(default_factory=lambda: [0.0])
    grant: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, granted: Granted | None = None) -> None:
        """Start the actuator, as after a kill."""
        self.grant = self.grant or all_granted(card_of(self.board).ranges()).grant
        granted = granted or Granted(match="drm:*", grant=self.grant)
        found = lambda: discover(str(self.board.root))  # noqa: E731
        hand = lambda: InlineDriver(found, lambda _: None)  # noqa: E731
        self.actuator = replayed(granted, hand, self.folder, now=lambda: self.now[0])

    @property
    def gpu(self) -> Any:  # noqa: ANN401 - a card's state
        return self.board.board.gpus[0]

    def hold(self, **setting: Any) -> None:  # noqa: ANN401
        knobs = {"watts": LIMIT, "mhz": CLOCK}
        self.actuator.hold(ME, UUID, {knobs[k]: v for k, v in setting.items()}, 1000.0)

    def told(self) -> dict[str, Any]:
        return self.actuator.read(ME, UUID)

    def is_back(self) -> bool:
        self.actuator.release(ME, UUID)
        return self.board.altered == {} and self.told()["paused"] == ""


Stands = Callable[[str], Stand]


@pytest.fixture
def stand(host: Host, tmp_path: Path) -> Stands:
    (tmp_path / "journal").mkdir()
    return lambda name: Stand(host(name), tmp_path / "journal")


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
