"""Each file call, device call and tuner answer of an agent fails, once or permanently; nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from agents.agent.loop import DeviceAgent
from agents.holding.journal import Journal
from agents.tuner_link.spool import Spool
from tests.chaos.faults import Faults, failing_files
from tests.chaos.patient_tuner import FOUND, ORDERS, PatientTuner
from tests.fakes import FakeActuator, Rig, refusal
from tuner.core import ActuationError, DeviceLost, Setting, TuningError
from tuner.wire import Assignment

Count = Callable[[str, int, int], None]

STEPS = 30
"""More steps than the orders take, with any fault of one call."""


Answering = Callable[[httpx2.Request, Callable[[], httpx2.Response]], httpx2.Response]


def page(status: int) -> Answering:
    """Return a proxy's answer."""
    return lambda request, do: httpx2.Response(status, html=f"<h1>{status}</h1>")


def problem(status: int, code: str) -> Answering:
    """Return the refusal of a tuner that did not read the message."""
    return lambda request, do: refusal(status, code)


def unreached(request: httpx2.Request, do: Callable[[], httpx2.Response]) -> httpx2.Response:
    raise httpx2.ConnectError("connection refused", request=request)


def heard_unanswered(request: httpx2.Request, do: Callable[[], httpx2.Response]) -> httpx2.Response:
    do()
    raise httpx2.ReadTimeout("timed out", request=request)


def nonsense(request: httpx2.Request, do: Callable[[], httpx2.Response]) -> httpx2.Response:
    return httpx2.Response(200, text="{}")


ANSWERS: Mapping[str, Answering] = {
    "connection refused": unreached,
    "heard, but unanswered": heard_unanswered,
    "a proxy's 400": page(400),
    "a proxy's 404": page(404),
    "a proxy's 409": page(409),
    "a proxy's 422": page(422),
    "a proxy's 200": nonsense,
    "a wrong Host": problem(400, "host"),
    "the database is away": problem(503, "store"),
}


SEEMS = "said done, but not"
SIDES = ("refused", "lost", "done, but unheard", SEEMS)


@dataclass
class FaultyTuner(PatientTuner):
    """Answers with the fault `wrong` at the chosen point."""

    faults: Faults = field(default_factory=Faults)
    wrong: Answering | None = None

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.wrong is None or not self.faults.strikes("tuner", request.url.path):
            return super().answer(request)
        return self.wrong(request, lambda: PatientTuner.answer(self, request))


@dataclass
class FaultyActuator(FakeActuator):
    """A side whose calls fail at the chosen point, before or after they are carried out, or seem to work.

    Its readings are true, because the agent has no means to detect false ones.
    """

    faults: Faults = field(default_factory=Faults)
    wrong: str = ""

    def read(self) -> Setting:
        if self.wrong and self.faults.strikes(self.label, "read") and self.wrong != SEEMS:
            raise self._error("read")
        return super().read()

    def apply(self, setting: Setting) -> None:
        if self.wrong and self.faults.strikes(self.label, "apply"):
            if self.wrong == "done, but unheard":
                super().apply(setting)
            if self.wrong != SEEMS:
                raise self._error("apply")
            return
        super().apply(setting)

    def _error(self, verb: str) -> TuningError:
        kind = DeviceLost if self.wrong == "lost" else ActuationError
        return kind(f"the {self.label} says no to {verb}")


class Scene:
    """An agent, its two sides and its tuner, of which one kind of call can fail."""

    def __init__(self, folder: Path, faults: Faults, wrong: str) -> None:
        self.faults = faults
        self.rig = Rig(folder)
        self.tuner = FaultyTuner(self.rig.time, faults=faults, wrong=ANSWERS.get(wrong))
        self.rig.tuner = self.tuner
        side = wrong if wrong in SIDES else ""
        for name in ("device", "work"):
            plain: FakeActuator = getattr(self.rig, name)
            faulty = FaultyActuator(plain.label, plain.space, plain.log, faults=faults, wrong=side)
            setattr(self.rig, name, faulty)
        self.agent = self.begun()

    def begun(self) -> DeviceAgent:
        """Return the agent of a new process."""
        self.rig.spool = Spool(self.rig.folder / "spool")
        self.rig.journal = Journal(self.rig.folder / "journal")
        agent = self.rig.agent()
        agent.begin()
        return agent

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.agent.step()
            if self.tuner.given == len(ORDERS):
                break

    def altered(self) -> str:
        """Return what is not restored; empty if all is."""
        if self.rig.setting != FOUND:
            return f"left at {self.rig.setting}"
        return "a journal is left" if self.rig.journal.devices() else ""

    def lost(self) -> str:
        """Return what was not reported to the tuner, or wrongly; empty if nothing."""
        missing = {o.trial for o in ORDERS if isinstance(o, Assignment)} - self.tuner.reported
        if missing:
            return f"trials {missing} were never reported"
        if self.rig.spool.waiting():
            return f"{len(self.rig.spool.waiting())} reports wait for ever"
        refused = list((self.rig.folder / "spool" / "refused").glob("*"))
        if refused:
            return f"{len(refused)} reports were given up"
        return "the tuner believes in a hold that is not" if self.tuner.believed else ""


def point(folder: Path, faults: Faults, wrong: str, *, restarted: bool) -> str:
    """Play the orders with a fault, end the fault, and return what is wrong then; empty if nothing is."""
    scene = Scene(folder, faults, wrong)
    scene.run(STEPS)
    if wrong == "disk full" and scene.tuner.released and scene.rig.setting != FOUND:
        return f"released while the disk is full, and left at {scene.rig.setting}"
    if restarted:
        scene.agent = scene.begun()
    scene.faults.mended = True
    if restarted:
        scene.agent = scene.begun()
    scene.run(STEPS)
    for _ in range(3):
        scene.agent.step()
    return scene.altered() or scene.lost()


@pytest.mark.promise(
    "a full disk, or a driver that refuses, hangs or answers nonsense, transient or permanent"
)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("wrong", ["disk full", *SIDES, *ANSWERS])
def test_a_fault_anywhere_in_the_agent_leaves_nothing_altered_and_everything_reported(
    wrong: str, lasting: bool, tmp_path: Path, count: Count
) -> None:
    def played(folder: Path, faults: Faults, *, restarted: bool) -> str:
        folder.mkdir()
        for name, token in (("token", "admin"), ("agent-token", "agent@host secret")):
            (folder / name).write_text(f"{token}\n")
        if wrong != "disk full":
            return point(folder, faults, wrong, restarted=restarted)
        with failing_files(faults, folder):
            return point(folder, faults, wrong, restarted=restarted)

    dry = Faults()
    assert played(tmp_path / "dry", dry, restarted=False) == ""
    problems: list[str] = []
    struck = 0
    for at, label in enumerate(dry.labels, 1):
        faults = Faults(at, lasting=lasting)
        problem = played(tmp_path / str(at), faults, restarted=at % 2 == 0)
        struck += faults.struck
        if problem:
            problems.append(f"{at} ({label}): {problem}")
    count(f"fault: agent, {wrong}, {'for good' if lasting else 'once'}", struck, len(problems))
    assert struck > 8
    assert not problems
