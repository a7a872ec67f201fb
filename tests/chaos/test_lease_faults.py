"""Every answer of a real actuator to its agent fails, once or permanently; the device is restored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agents.actuator_client.line import ActuatorClient
from tests.chaos.faults import Faults
from tests.chaos.patient_tuner import PatientTuner
from tests.chaos.rigs import ORDERS, RemoteRig, open_rig
from tests.chaos.theatre import Theatre
from tuner.wire import Assignment

Count = Callable[[str, int, int], None]
Exchange = Callable[[ActuatorClient, bytes], dict[str, Any]]
STEPS = 20


def refused(line: ActuatorClient, request: bytes, exchange: Exchange) -> dict[str, Any]:
    return {"ok": False, "code": "actuation", "message": "the driver says no", "hint": ""}


def unauthorised(line: ActuatorClient, request: bytes, exchange: Exchange) -> dict[str, Any]:
    return {"ok": False, "code": "unauthorised", "message": "who are you?", "hint": ""}


def of_no_known_kind(line: ActuatorClient, request: bytes, exchange: Exchange) -> dict[str, Any]:
    return {"ok": False, "code": "internal", "message": "it broke", "hint": ""}


def unheard(line: ActuatorClient, request: bytes, exchange: Exchange) -> dict[str, Any]:
    raise ConnectionResetError("the actuator closed the connection")


def heard_unanswered(line: ActuatorClient, request: bytes, exchange: Exchange) -> dict[str, Any]:
    exchange(line, request)
    raise TimeoutError("timed out")


WRONG = (refused, unauthorised, of_no_known_kind, unheard, heard_unanswered)


def point(folder: Path, theatre: Theatre, faults: Faults, wrong: Callable[..., Any]) -> str:
    """Run an agent whose connection to the actuator fails; return what is wrong after the fault."""
    whole: Exchange = ActuatorClient._exchange
    ours = threading.current_thread()

    def exchange(line: ActuatorClient, request: bytes) -> dict[str, Any]:
        # Renewals in the background are no points, because their number varies.
        verb = str(request[:24])
        if threading.current_thread() is not ours or not faults.strikes("actuator", verb):
            return whole(line, request)
        answer: dict[str, Any] = wrong(line, request, whole)
        return answer

    rig: RemoteRig = open_rig(folder, theatre)
    rig.tuner = tuner = PatientTuner(rig.time, script=ORDERS)
    with mock.patch.object(ActuatorClient, "_exchange", exchange):
        agent = rig.agent()
        agent.begin()
        for _ in range(STEPS):
            agent.step()
        faults.mended = True
        for _ in range(STEPS if tuner.given < len(ORDERS) else 3):
            agent.step()
    assert rig.remote is not None
    rig.remote.close()
    missing = {o.trial for o in ORDERS if isinstance(o, Assignment)} - tuner.reported
    if missing:
        return f"trials {missing} were never reported"
    return theatre.check_original() or ("journalled" if rig.journal.devices() else "")


@pytest.mark.promise(
    "a full disk, or a driver that refuses, hangs or answers nonsense, transient or permanent"
)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_an_actuator_that_answers_wrongly_anywhere_leaves_nothing_altered(
    wrong: Callable[..., Any], lasting: bool, theatre: Theatre, tmp_path: Path, count: Count
) -> None:
    dry = Faults()
    assert point(tmp_path / "dry", theatre, dry, wrong) == ""
    problems: Mapping[str, str] = {}
    struck = 0
    for at, label in enumerate(dry.labels, 1):
        faults = Faults(at, lasting=lasting)
        problem = point(tmp_path / str(at), theatre, faults, wrong)
        struck += faults.struck
        if problem:
            problems = {**problems, f"{at} ({label})": problem}
    name = wrong.__name__.replace("_", " ")
    count(f"fault: lease, {name}, {'for good' if lasting else 'once'}", struck, len(problems))
    assert struck > 15
    assert not problems
