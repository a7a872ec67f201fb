from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from xdist.workermanage import WorkerController

from tests.chaos.points import inherit_orphans, reap_all
from tests.chaos.theatre import Theatre

TALLY = pytest.StashKey[dict[str, tuple[int, int]]]()


@pytest.fixture(autouse=True, scope="session")
def _orphans() -> None:
    inherit_orphans()


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Callable[[str, int, int], None]:
    """Record at how many points a scenario failed, and after how many a device was left altered."""
    tally = request.config.stash.setdefault(TALLY, {})

    def told(scenario: str, points: int, altered: int) -> None:
        tally[scenario] = (points, altered)

    return told


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    """Return a theatre whose actuator serves."""
    theatre = Theatre(tmp_path / "t")
    actuator = theatre.start(theatre.clock, deadly=False)
    yield theatre
    os.kill(actuator, signal.SIGKILL)
    reap_all()


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tally"] = session.config.stash.get(TALLY, {})


class _Tallies:
    """Add the counts of xdist's workers."""

    def pytest_testnodedown(self, node: WorkerController) -> None:
        tally = node.config.stash.setdefault(TALLY, {})
        counted = (getattr(node, "workeroutput", None) or {}).get("tally", {})
        tally.update(
            {scenario: (points, altered) for scenario, (points, altered) in counted.items()}
        )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Tallies())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tally = config.stash.get(TALLY, {})
    if not tally:
        return
    for scenario, (points, altered) in tally.items():
        terminalreporter.write_line(f"{points:5d} points, {altered} altered: {scenario}")
    kinds = {"fault": 0, "power cut": 0, "": 0}
    for scenario, (points, _) in tally.items():
        kinds[next(kind for kind in kinds if scenario.startswith(kind))] += points
    altered = sum(altered for _, altered in tally.values())
    terminalreporter.write_line(
        f"{kinds['']:5d} kill points, {kinds['power cut']} power cuts and {kinds['fault']} fault "
        f"points; {altered} left a device altered or something lost"
    )
