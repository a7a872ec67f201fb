"""The agent as a separate process, against a stub tuner over real HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.builders import Time
from tests.fakes import StubTuner
from tests.integration.spoken import Spoken
from tests.integration.stage import Stage, batch_size
from tests.orders import assignment, hold_order
from tuner.core import Plan, Setting
from tuner.wire import Assignment, HoldOrder, Idle, Release

HELD: Setting = {"gpu.clock_mhz": 1050, "gpu.power_limit_w": 200, "batch_size": 8}
SLOW: Setting = {"gpu.clock_mhz": 510, "gpu.power_limit_w": 100, "batch_size": 32}
ORIGINAL: Setting = {"gpu.clock_mhz": 1410, "gpu.power_limit_w": 400, "batch_size": 16}


class WaitingTuner(StubTuner):
    """A stub whose long polls wait until there is an order, like a real tuner's."""

    def await_orders(self, wait_s: float) -> None:
        until = time.monotonic() + wait_s
        while not self.orders and time.monotonic() < until:
            time.sleep(0.02)


class Site:
    """A stub tuner on a port, and agents started against it."""

    def __init__(self, folder: Path) -> None:
        self.tuner = WaitingTuner(Time())
        self.folder = folder
        (folder / "token").write_text("secret")
        self.agents: list[subprocess.Popen[bytes]] = []
        self.server = self._serve(0)
        self.port = self.server.server_address[1]

    def start(self, device: str = "simulated:a100") -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-c", "from tuner.cli.app import main; main()", "agent", "serve"),
            *("--tuner", f"http://127.0.0.1:{self.port}", "--device", device),
            *("--token-file", str(self.folder / "token"), "--state-dir", str(self.folder / "s")),
        ]
        with (self.folder / "agent.log").open("ab") as log:
            agent = subprocess.Popen(command, stdout=log, stderr=log)
        self.agents.append(agent)
        return agent

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def setting(self) -> Setting:
        """The setting of the simulated device, from its file."""
        files = list((self.folder / "s" / "devices").glob("*/*.json"))
        return dict(json.loads(files[0].read_text())) if files else {}

    def told(self, end: str) -> list[dict[str, Any]]:
        return self.tuner.told(end)

    def wait(self, until: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def lose_tuner(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def find_tuner(self) -> None:
        self.server = self._serve(self.port)

    def close(self) -> None:
        for agent in self.agents:
            agent.kill()
            agent.wait()
        self.lose_tuner()

    def _serve(self, port: int) -> ThreadingHTTPServer:
        tuner = self.tuner

        class Handler(Spoken):
            def pass_on(self) -> None:
                url = f"http://tuner{self.path}"
                answer = tuner.answer(httpx2.Request(self.command, url, content=self.body()))
                self.send(answer.status_code, answer.content, "application/json")

            do_POST = do_PUT = pass_on

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def hold(valid_for_s: float = 3600.0) -> HoldOrder:
    return hold_order(
        Plan.single(HELD), ORIGINAL, metrics=("energy_j", "latency_p99_ms"), valid_for_s=valid_for_s
    )


def trial(window_s: float = 10.0) -> Assignment:
    return assignment(
        SLOW,
        ORIGINAL,
        metrics=("energy_j", "latency_p99_ms"),
        window_s=window_s,
        max_window_s=max(60.0, window_s),
    )


def hold_of_toy() -> HoldOrder:
    setting: Setting = {"batch_size": 4}
    order = hold().model_copy(update={"plan": Plan.single(setting), "baseline": {"batch_size": 1}})
    return order.model_copy(update={"metrics": ("latency_mean_ms",), "observe_s": 600.0})


def test_a_killed_agent_keeps_its_hold_without_the_tuner(site: Site) -> None:
    site.tuner.orders = [hold()]
    agent = site.start()
    site.wait(lambda: site.setting() == HELD and site.told("/holds/report"))
    site.lose_tuner()
    agent.kill()
    agent.wait()
    again = site.start()
    site.wait(lambda: (site.folder / "agent.log").read_text().count("event=link"))
    assert site.setting() == HELD
    again.send_signal(signal.SIGTERM)
    assert again.wait(timeout=10.0) == 0
    assert site.setting() == HELD
    kept = len(list((site.folder / "s" / "spool").glob("*.json")))
    site.find_tuner()
    site.tuner.orders = [hold(), Release(why="enough")]
    site.start()
    site.wait(lambda: any(m["ended"] == "enough" for m in site.told("/holds/report")))
    assert len(site.told("/holds/report")) >= 1 + kept
    assert site.setting() == ORIGINAL


def test_an_agent_killed_in_a_trial_puts_the_device_back_at_its_next_start(site: Site) -> None:
    site.tuner.orders = [trial(window_s=200_000.0)]
    agent = site.start()
    site.wait(lambda: site.setting() == SLOW)
    agent.kill()
    agent.wait()
    assert site.setting() == SLOW
    site.lose_tuner()
    site.start()
    site.wait(lambda: site.setting() == ORIGINAL)


def test_a_stop_in_a_trial_is_quick_and_leaves_the_device_as_found(site: Site) -> None:
    site.tuner.orders = [trial(window_s=200_000.0)]
    agent = site.start()
    site.wait(lambda: site.setting() == SLOW)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(timeout=10.0) == 0
    assert site.setting() == ORIGINAL
    (report,) = site.told("/trials/report")
    assert report["outcome"]["state"] == "aborted"


def revert(site: Site, option: str) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, "-c", "from tuner.cli.app import main; import sys; sys.exit(main())"),
        *("agent", "revert", "--state-dir", str(site.folder / "s"), option),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=90.0)


@pytest.mark.promise("an operator stops everything")
@pytest.mark.parametrize("order", [hold(), trial(window_s=1e8)])
@pytest.mark.slow
def test_an_emergency_stop_reaches_a_running_agent_and_stays(
    site: Site, order: HoldOrder | Assignment
) -> None:
    wanted = HELD if isinstance(order, HoldOrder) else SLOW
    site.tuner.orders = [order]
    agent = site.start()
    site.wait(lambda: site.setting() == wanted)
    stayed = revert(site, "--stay")
    assert stayed.returncode == 0, stayed.stderr
    assert "is at its original setting" in stayed.stdout
    assert "lift it with `jouletune agent revert --lift`" in stayed.stdout
    assert site.setting() == ORIGINAL
    agent.kill()
    agent.wait()
    site.tuner.heard.clear()
    site.tuner.orders = [hold(), trial(), *(hold() for _ in range(1000))]
    site.start()
    site.wait(lambda: len(site.told("/next")) > 3)
    assert all("revert --lift" in poll["unable"] for poll in site.told("/next"))
    assert site.setting() == ORIGINAL
    assert revert(site, "--lift").returncode == 0
    site.wait(lambda: site.setting() == HELD)


@pytest.mark.promise(
    "a full disk, or a driver that refuses, hangs or answers nonsense, transient or permanent"
)
@pytest.mark.slow
def test_a_full_disk_leaves_no_device_at_its_hold_and_loses_no_message(
    site: Site, played: Stage
) -> None:
    """The agent's process can no longer write to any file."""
    toy = played.start_toy()
    site.tuner.orders = [hold_of_toy()]
    agent = psutil.Process(site.start(f"cpu=http://127.0.0.1:{toy}").pid)
    site.wait(lambda: batch_size(toy) == 4)
    room = agent.rlimit(psutil.RLIMIT_FSIZE)
    agent.rlimit(psutil.RLIMIT_FSIZE, (0, room[1]))
    site.tuner.orders = [Release(why="enough")]
    site.wait(lambda: batch_size(toy) == 1)
    site.wait(lambda: [m for m in site.told("/holds/report") if m["ended"] == "enough"])
    assert list((site.folder / "s" / "journal").glob("*.journal")) == []
    agent.rlimit(psutil.RLIMIT_FSIZE, room)
    site.tuner.orders = [Idle(why="nothing to do")]  # a poll ends, and the agent continues its loop
    (kept,) = (site.folder / "s" / "holds").glob("*.json")
    site.wait(lambda: json.loads(kept.read_text())["ended"] == "enough")


@pytest.mark.promise("the workload dies, or starts later than its agent")
def test_a_workload_that_answers_later_than_its_agent_gets_its_hold(
    site: Site, played: Stage
) -> None:
    toy = played.start_toy()
    device = f"cpu=http://127.0.0.1:{toy}"
    site.tuner.orders = [hold_of_toy()]
    agent = site.start(device)
    site.wait(lambda: batch_size(toy) == 4)
    agent.kill()
    agent.wait()
    site.lose_tuner()
    played.kill("toy")
    site.start(device)
    site.wait(lambda: "event=not_opened" in site.log())
    played.start_toy(toy)
    site.wait(lambda: batch_size(toy) == 4)
    site.find_tuner()
