"""A watched list is shown again after a change, and ends at an error."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast

import pytest

from tests.builders import START
from tuner.cli import watching
from tuner.cli.watching import looks
from tuner.core import Event, LinkError
from tuner.verbs.table import Verbs
from tuner.wire import StudyView


class Following:
    """An operator's API that reports this many changes and then fails."""

    def __init__(self, changes: int) -> None:
        self._changes = changes

    def follow(self) -> Iterator[Event]:
        for _ in range(self._changes):
            yield Event(at=START, kind="changed", text="", study="s1")
        raise LinkError("the tuner is gone")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PACE_S", 0.0)


def test_without_watching_the_state_is_shown_once() -> None:
    assert len(list(looks(cast("Verbs[StudyView]", Following(5)), False))) == 1


def test_a_lost_tuner_ends_it_with_the_reason() -> None:
    seen = looks(cast("Verbs[StudyView]", Following(2)), True)
    with pytest.raises(LinkError, match="is gone"):
        for _ in islice(seen, 10):
            pass


def test_without_a_change_it_is_shown_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.01)

    class Silent(Following):
        def follow(self) -> Iterator[Event]:
            import threading

            threading.Event().wait(0.5)
            yield from super().follow()

    assert len(list(islice(looks(cast("Verbs[StudyView]", Silent(0)), True), 3))) == 3
