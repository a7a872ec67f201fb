"""Every disk and driver call of the actuator fails, once or permanently; nothing stays altered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.driver import Value
from agents.actuator.journal import RestoreJournal
from agents.devices.fake import knobs as fake
from tests.actuation import DirectHand
from tests.chaos.fault_scenes import Count, FaultScene, Requests, failed_everywhere, told
from tests.chaos.faults import Faults, full
from tests.chaos.theatre import (
    CAP,
    CEILING_HELD,
    CEILING_TRIED,
    GPU,
    HELD,
    TRIED,
    TRIED_NEXT,
    Theatre,
)
from tuner.errors import ActuationError, DeviceLost


class FaultyDisk(RestoreJournal):
    """A journal's disk that is full from the chosen point on: it can be read, but not written."""

    def __init__(self, faults: Faults, folder: Path) -> None:
        super().__init__(folder)
        self._faults = faults

    def _strike(self, call: str, path: Path) -> None:
        if self._faults.strikes("disk", f"{call} {path.name}"):
            raise full(path)

    def write(self, path: Path, content: bytes) -> None:
        self._strike("write", path)
        super().write(path, content)

    def sync(self, path: Path) -> None:
        self._strike("sync", path)
        super().sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self._strike("rename", new)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._strike("remove", path)
        super().remove(path)


Do = Callable[..., Awaitable[Any]]
Wrong = Callable[[str, Do], Awaitable[Any]]
"""The behaviour of a faulty driver, called with the request as text and a function that carries it out."""


async def refused(verb: str, do: Do) -> Any:  # noqa: ANN401 - JSON
    raise ActuationError(f"the driver refuses to {verb}")


async def lost(verb: str, do: Do) -> Any:  # noqa: ANN401
    raise DeviceLost(f"it fell off the bus ({verb})")


async def done_but_unheard(verb: str, do: Do) -> Any:  # noqa: ANN401
    await do()
    raise DeviceLost(f"the driver did not answer within 1 s ({verb})")


async def seemingly_done(verb: str, do: Do) -> Any:  # noqa: ANN401
    """Skip the write of a power limit, which can be read back; carry out all other requests."""
    return None if "gpu.power_limit_w" in verb else await do()


async def landing_elsewhere(verb: str, do: Do) -> Any:  # noqa: ANN401
    """A power limit that the driver clamps, when it is set or restored."""
    limit = "gpu.power_limit_w"
    return await do(limit, 170) if verb.startswith(f"write {limit}") else await do()


async def knob_missing(verb: str, do: Do) -> Any:  # noqa: ANN401
    answer = await do()
    if verb == "read":
        answer[0] = {k: v for k, v in answer[0].items() if k != "gpu.power_limit_w"}
    return answer


async def another_value(verb: str, do: Do) -> Any:  # noqa: ANN401
    answer = await do()
    if verb == "read":
        answer[0] = {**answer[0], "gpu.power_limit_w": 123}
    return answer


async def nonsense(verb: str, do: Do) -> Any:  # noqa: ANN401
    await do()
    return "what?" if verb == "read" else None


async def error_of_ours(verb: str, do: Do) -> Any:  # noqa: ANN401
    raise KeyError(verb)


LASTING = (
    refused,
    lost,
    done_but_unheard,
    seemingly_done,
    landing_elsewhere,
    knob_missing,
    nonsense,
    error_of_ours,
)
FAULTS: tuple[tuple[Wrong | None, bool], ...] = (
    *((wrong, lasting) for wrong in (None, *LASTING) for lasting in (False, True)),
    # A driver that keeps reporting another value looks like another program.
    (another_value, False),
)


class FaultyHand(DirectHand):
    """A driver with the fault `wrong` at the chosen point, and none elsewhere."""

    def __init__(self, hardware: Path, faults: Faults, wrong: Wrong | None) -> None:
        super().__init__(hardware)
        self._faults = faults
        self._wrong = wrong

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        async def do(*instead: Value) -> Any:  # noqa: ANN401
            return await DirectHand.ask(self, verb, uuid, *(instead or details))

        what = " ".join(map(str, (verb, *details)))
        if self._wrong is None or verb == "describe" or not self._faults.strikes("driver", what):
            return await do()
        return await self._wrong(what, do)


class Stage(FaultScene):
    """Two trials around a hold, then the release."""

    uuid, tried = GPU, TRIED
    requests: Requests = (
        ("acquire", (5.0,)),
        ("apply", (TRIED,)),
        ("renew", (5.0,)),
        ("hold", (HELD, 1000.0)),
        ("acquire", (5.0,)),
        ("apply", (TRIED_NEXT,)),
        ("hold", (HELD, 1000.0)),
        ("release", ()),
    )

    def hand(self) -> FaultyHand:
        return FaultyHand(self.theatre.hardware, self.faults, self.kind)

    def journal(self) -> RestoreJournal:
        folder = self.theatre.journal
        return RestoreJournal(folder) if self.kind else FaultyDisk(self.faults, folder)


@pytest.mark.promise(
    "a full disk, or a driver that refuses, hangs or answers nonsense, transient or permanent",
    "the device reverts to the held setting, else to its original; after the fault it"
    " is at its original, and no report is lost",
)
@pytest.mark.parametrize(("wrong", "lasting"), FAULTS, ids=told)
def test_a_fault_anywhere_in_the_actuator_leaves_nothing_altered_once_it_is_over(
    wrong: Wrong | None, lasting: bool, tmp_path: Path, count: Count
) -> None:
    theatre = Theatre(tmp_path / "t")
    struck, problems = failed_everywhere(Stage, theatre, wrong, lasting=lasting)
    count(f"fault: actuator, {told(wrong)}, {told(lasting)}", struck, len(problems))
    assert struck > 20
    assert not problems


class CappedStage(Stage):
    """A trial and a hold of a ceiling, under a kernel cap that falls, rises, and ends."""

    requests = (
        ("hold", (CEILING_HELD, 1000.0)),
        ("cap", (CAP,)),
        ("renew", (5.0,)),
        ("acquire", (5.0,)),
        ("apply", (CEILING_TRIED,)),
        ("cap", (CAP - 500,)),
        ("renew", (5.0,)),
        ("hold", (CEILING_HELD, 1000.0)),
        ("release", ()),
    )

    def ask(self, verb: str, *details: Any) -> None:  # noqa: ANN401
        if verb == "cap":
            self.theatre.happens(*details)
        else:
            super().ask(verb, *details)

    def cool(self) -> None:
        self.theatre.happens()


@pytest.mark.parametrize("lasting", [False, True], ids=told)
@pytest.mark.parametrize("wrong", [None, refused, lost, done_but_unheard, nonsense], ids=told)
def test_a_fault_anywhere_under_a_cap_leaves_nothing_altered_once_it_is_over(
    wrong: Wrong | None, lasting: bool, tmp_path: Path, count: Count
) -> None:
    theatre = Theatre(tmp_path / "t", knobs=fake.ALL)
    struck, problems = failed_everywhere(CappedStage, theatre, wrong, lasting=lasting)
    count(f"fault: capped actuator, {told(wrong)}, {told(lasting)}", struck, len(problems))
    assert struck > 20
    assert not problems
