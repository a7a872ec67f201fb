"""Random sequences of agents' requests, CPU hotplug, driver reloads, suspends and deaths.

In the end every file has its original value; until then the status names the others.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.boards.inline import InlineBoard
from tests.chaos.hotplug import Stage
from tuner.errors import TuningError

LAST = {"amd": [1], "amd-server": [1], "intel": [1], "manual": [1], "zen": [2, 3]}
CHOSEN = st.fixed_dictionaries(
    {},
    optional={
        "cpu.max_mhz": st.integers(0, 9),
        "cpu.governor": st.integers(0, 9),
        "cpu.epp": st.integers(0, 9),
        "cpu.boost": st.integers(0, 9),
    },
).filter(bool)
"""For each knob the index of one of its values."""


class Sequences(RuleBasedStateMachine):
    """An agent, an actuator and a kernel that act in any order."""

    @initialize(name=st.sampled_from(sorted(LAST)), offline=st.booleans())
    def begin(self, name: str, offline: bool) -> None:
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "journal").mkdir()
        board = InlineBoard(name, self.folder / "root")
        self.last, self.open = LAST[name], ExitStack()
        self.open.enter_context(board.at())
        self.stage = Stage(board, self.folder / "journal")
        board.turn(self.last if offline else [], online=False)
        self.stage.start()

    def ask(self, verb: str, *details: object) -> None:
        with suppress(TuningError):  # refused, as to any agent
            self.stage.ask(verb, *details)

    def setting(self, chosen: dict[str, int]) -> dict[str, object]:
        ranges = self.stage.device.ranges()
        return {k: ranges[k][n % len(ranges[k])] for k, n in chosen.items() if k in ranges}

    @rule(chosen=CHOSEN)
    def trial(self, chosen: dict[str, int]) -> None:
        self.ask("acquire", 5.0)
        self.ask("apply", self.setting(chosen))

    @rule(chosen=CHOSEN)
    def hold(self, chosen: dict[str, int]) -> None:
        self.ask("hold", self.setting(chosen), 1000.0)

    @rule(verb=st.sampled_from(["renew", "release", "read"]))
    def say(self, verb: str) -> None:
        self.ask(verb, *([5.0] if verb == "renew" else []))

    @rule(seconds=st.sampled_from([1.0, 10.0, 120.0]))
    def wait(self, seconds: float) -> None:
        self.stage.settle(seconds, 2)

    @rule(online=st.booleans())
    def plug(self, online: bool) -> None:
        self.stage.board.turn(self.last, online=online)

    @rule()
    def load(self) -> None:
        self.stage.reload()

    @rule()
    def suspend(self) -> None:
        self.stage.suspend()

    @rule()
    def die(self) -> None:
        self.stage.start()

    @invariant()
    def nobody_is_blamed(self) -> None:
        if hasattr(self, "stage"):
            self.ask("read")  # it may end a trial that a driver reload has lost
            assert self.stage.ask("read")["paused"] == ""

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        with self.open:
            self.stage.start()
            self.stage.settle()
            waits = self.stage.wrong()
            self.stage.board.turn(self.last, online=True)
            self.stage.settle()
            left = self.stage.wrong(), self.stage.board.board.altered
        shutil.rmtree(self.folder)
        assert (waits, *left) == ("", "", {})


TestSequences = Sequences.TestCase
TestSequences.settings = settings(
    max_examples=60,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
