"""Real tuner, agents and actuators over a fake NVML each: seconds to comply, and watt-seconds above.

The caps are read from the state of the fake drivers. The hosts have the curves of measured GPUs if
these are available.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from tests.bench.budgets.measured import give_curves
from tests.bench.budgets.worth import measured_curves
from tests.integration.stage import JOULETUNE, Stage
from tests.nvml.fake import FakeNvml
from tuner.core import LATE_S

FLOOR_W, MOST_W, SHARE_W = 120, 400, 250
STEADY_LOOKS = 20
"""A group is settled after this many reads, at four per second: some caps fall before others rise."""
LOOK_S = 0.2
START_S = 300.0
ROOT = Path(__file__).parents[3]
TERMS = (
    f'[device.grant]\n"gpu.power_limit_w" = {{ min = 100, max = {MOST_W} }}\n'
    f'[device.budget]\nfloor = {{ "gpu.power_limit_w" = {FLOOR_W} }}\n'
)


@dataclass(frozen=True)
class Scene:
    """An event, its seconds of notice, and the process that is killed just after it was sent."""

    name: str
    share: float
    ahead_s: float = 0.0
    kills: tuple[str, ...] = ()


SCENES = (
    Scene("-25 %", 0.75),
    Scene("-35 %", 0.65),
    Scene("-35 %, known 15 s ahead, tuner killed", 0.65, 15.0, ("tuner",)),
    Scene("-25 %, two agents killed", 0.75, 0.0, ("agent0", "agent1")),
    Scene("-25 %, two actuators killed", 0.75, 0.0, ("actuator2", "actuator3")),
    Scene("-35 %, tuner killed", 0.65, 0.0, ("tuner",)),
)
LASTS_S = 30.0


@dataclass(frozen=True)
class SceneOutcome:
    """Seconds from the step until the sum of caps stayed within it, and the excess ten seconds later.

    After a kill of the tuner the time counts from its restart. `unreachable` are the members that it named.
    """

    name: str
    budget_w: float
    before_w: float
    complied_s: float
    above_ws: float
    unreachable: tuple[str, ...]
    missing_w: float


@dataclass
class Racks:
    """Hosts, each with an actuator, an agent and the state of its driver, and one tuner."""

    folder: Path
    library: Path
    count: int
    terms: Mapping[str, str] = field(default_factory=dict)
    """By host name: the text in actuator.toml that grants something other than a power limit."""
    curves: int = 0
    stage: Stage = field(init=False)
    environs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    states: dict[str, Path] = field(default_factory=dict)
    samples: list[tuple[float, float]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _watcher: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.stage = Stage(self.folder, toml='lease_s = 20.0\nsuggest = "here"\n')
        self.nvml: FakeNvml | None = None

    @property
    def names(self) -> Sequence[str]:
        return [str(n) for n in range(self.count)]

    def start(self) -> None:
        """Start all processes."""
        devices = [f"nvidia-0@host{name}" for name in self.names]
        self.curves = give_curves(self.stage.db, devices, measured_curves())
        self.stage.start_tuner()
        for name in self.names:
            folder = self.folder / f"h{name}"
            folder.mkdir()
            self.states[name] = folder / "nvml.state"
            self.nvml = FakeNvml(self.library, self.states[name], manual=False, root_only=0.0)
            socket = folder / "a.sock"
            (folder / "actuator.toml").write_text(
                f'socket = "{socket}"\nstate_dir = "{folder / "actuator"}"\n'
                f'[[device]]\nmatch = "GPU-fa4e0000*"\n{self.terms.get(name, TERMS)}'
            )
            (folder / "agent.toml").write_text(
                f'tuner = "http://127.0.0.1:{self.stage.tuner_port}"\nname = "host{name}"\n'
                f'token_file = "{self.stage.token_file}"\nstate_dir = "{folder / "agent"}"\n'
                '[[device]]\nspec = "nvidia:0"\nworkload = "simulated"\n'
            )
            self.environs[name] = {
                **os.environ,
                **self.nvml.environment(),
                "JOULETUNE_ACTUATOR": str(socket),
                "PYTHONPATH": str(ROOT),
                "FAKENVML_HOST": str(0x1000 + int(name)),
                "OPENBLAS_NUM_THREADS": "1",
            }
            self.spawn(f"actuator{name}")
            until((folder / "a.sock").exists, "the actuator does not listen")
            self.spawn(f"agent{name}")

    def spawn(self, what: str) -> None:
        """Start an agent, an actuator or the tuner."""
        if what == "tuner":
            self.stage.start_tuner()
            return
        kind, name = what.rstrip("0123456789"), what.lstrip("actuorgen")
        folder = self.folder / f"h{name}"
        command = {
            "actuator": [
                sys.executable, "-m", "agents.actuator.main", "serve", str(folder / "actuator.toml")
            ],
            "agent": [*JOULETUNE, "agent", "serve", "--config", str(folder / "agent.toml")],
        }[kind]  # fmt: skip
        with (folder / f"{kind}.log").open("ab") as log:
            self.stage.processes[what] = subprocess.Popen(
                command,
                env=self.environs[name],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self, what: str) -> None:
        """Kill a process, with its children."""
        process = self.stage.processes.pop(what)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def caps(self) -> dict[str, float]:
        """Return the power limit in each driver's state, in watts."""
        return {name: self.shown(name, "limit_w") for name in self.names}

    def shown(self, name: str, figure: str, becomes: float | None = None) -> float:
        """Return a value of a driver's state; set it first if a new one is given."""
        assert self.nvml is not None
        with self._reading:  # the library has a single state for all threads
            self.nvml.binding.fakenvml_use(str(self.states[name]).encode())
            if becomes is not None:
                self.nvml.set(figure, becomes)
            return self.nvml.get(figure)

    def ask(self, method: str, path: str, body: object = None) -> object:
        """Send the tuner a request. Raises httpx2.HTTPError; AssertionError after a refusal."""
        url = f"http://127.0.0.1:{self.stage.tuner_port}{path}"
        token = self.stage.token_file.read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx2.request(method, url, json=body, headers=headers, timeout=30.0)
        assert answer.is_success, answer.text
        return json.loads(answer.text or "null")

    def declare(self) -> None:
        """Declare the group; wait until all have joined and use its watts."""
        body = {"select": {"id": ["*"]}, "watts": SHARE_W * self.count, "reboot_after_s": 120.0,
                "measure": False}  # fmt: skip

        def declared() -> bool:
            with suppress(AssertionError, httpx2.HTTPError):
                devices = self.ask("GET", "/v1/devices")
                if isinstance(devices, list) and len(devices) == self.count:
                    self.ask("PUT", "/v1/budgets/racks", body)
                    return True
            return False

        until(declared, "not every device offers a cap")
        self.settle()
        view = self.ask("GET", "/v1/budgets/racks")
        assert isinstance(view, dict)
        assert sum(bool(m["front"]) for m in view["members"]) == self.curves, view

    def settle(self) -> None:
        """Wait until the group has used its watts, and no more, for `STEADY_LOOKS` reads."""
        total, steady = SHARE_W * self.count, 0

        def settled() -> bool:
            nonlocal steady
            uses = 0.9 * total <= sum(self.caps().values()) <= total
            steady = steady + 1 if uses else 0
            return steady >= STEADY_LOOKS

        until(settled, lambda: f"the caps are {self.caps()}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record the sum of caps repeatedly."""

        def watch() -> None:
            while not self._over.wait(LOOK_S):
                self.samples.append((time.time(), sum(self.caps().values())))

        self._watcher = threading.Thread(target=watch, daemon=True)
        self._watcher.start()
        try:
            yield
        finally:
            self._over.set()
            self._watcher.join()

    def play(self, scene: Scene) -> SceneOutcome:
        """Play one event with its kill, then restart the killed process."""
        before = self.samples[-1][1]
        at = time.time() + scene.ahead_s
        begins = datetime.fromtimestamp(at, UTC)
        body = {
            "share": scene.share,
            "effective_at": begins.isoformat(),
            "expires_at": (begins + timedelta(seconds=LASTS_S + LATE_S)).isoformat(),
            "why": scene.name,
        }
        self.ask("POST", "/v1/events/grid", body)
        from_s = at
        if scene.ahead_s:
            time.sleep(scene.ahead_s / 2.0)
        for what in scene.kills:
            self.kill(what)
        if "tuner" in scene.kills and not scene.ahead_s:
            self.spawn("tuner")
            from_s = time.time()
        time.sleep(max(0.0, at + LATE_S + 5.0 - time.time()))
        if "tuner" in scene.kills and scene.ahead_s:
            time.sleep(max(0.0, at + LASTS_S - time.time()))
            self.spawn("tuner")
        view = self.ask("GET", "/v1/budgets/racks")
        assert isinstance(view, dict)
        away = tuple(m["device"] for m in view["members"] if m["state"] == "unreachable")
        time.sleep(max(0.0, at + LASTS_S - time.time()))
        budget_w = scene.share * SHARE_W * self.count
        seen = [(t, w) for t, w in self.samples if at <= t <= at + LASTS_S]
        assert seen and self._watcher is not None and self._watcher.is_alive(), "caps were not read"
        above = [t for t, w in seen if w > budget_w + 1e-6]
        late = [w - budget_w for t, w in seen if t > from_s + LATE_S and w > budget_w]
        for what in scene.kills:
            if what != "tuner":
                self.spawn(what)
        self.settle()
        return SceneOutcome(
            name=scene.name,
            budget_w=budget_w,
            before_w=before,
            complied_s=round(max(above, default=from_s) - from_s, 2),
            above_ws=round(sum(late) * LOOK_S, 1),
            unreachable=away,
            missing_w=float(view["missing_w"]),
        )

    def close(self) -> None:
        """End every process."""
        for what in list(self.stage.processes):
            self.kill(what)


def until(done: Callable[[], bool], why: str | Callable[[], str]) -> None:
    """Wait until a condition holds. Raises AssertionError with the reason."""
    end = time.monotonic() + START_S
    while not done():
        assert time.monotonic() < end, why if isinstance(why, str) else why()
        time.sleep(0.25)
