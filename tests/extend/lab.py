"""A complete tuner and agent in one process, on time that only the test advances.

They use the real routes, so that an addition is tested as it would run.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from starlette.testclient import TestClient

from agents.agent.loop import DeviceAgent
from agents.agent.surroundings import Surroundings
from agents.holding.journal import Journal
from agents.host.machine import Host
from agents.target.measure import Measurer
from agents.target.target import Target
from agents.target.window import Usage
from agents.tuner_link.client import TunerClient
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Spool
from db import open_store
from policies import load_policy
from tests.builders import Time
from tuner.core import Phase, Policy
from tuner.service.http.api import create_app
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import Poll, StudyDraft, StudyView

TOKEN = "secret"
DEVICE = "target@lab"


class Lab:
    """One target, its agent and the tuner."""

    def __init__(
        self, folder: Path, target: Target, time: Time, client: TestClient, verbs: Operations
    ) -> None:
        self.target, self.time = target, time
        self.verbs = verbs
        self.away = False
        """Whether the tuner does not answer."""
        self._client = client
        (folder / "token").write_text(f"{TOKEN}\n")
        host = Host("lab", "boot-1", 2)
        link = TunerClient(
            httpx2.Client(base_url="http://testserver", transport=httpx2.MockTransport(self._send)),
            Credentials(folder, folder / "token", host.agent),
            Spool(folder / "spool"),
        )
        around = Surroundings(
            link=link,
            journal=Journal(folder / "journal"),
            host=host,
            clock=time,
            now=time.now,
            stop=threading.Event(),
            start="start-1",
        )
        bench = Measurer(
            target=target,
            host_clock=time,
            now=time.now,
            usage=Usage(2, lambda: 0.0),
            seed="0",
        )
        device = target.describe(DEVICE, host.agent, {}, time.now())
        self.agent = DeviceAgent(
            device, bench, folder / "holds", around, {"spec": "lab"}, random.Random(0)
        )
        self.agent.begin()
        self.agent.step()

    def tune(self, draft: StudyDraft, most: int = 200) -> StudyView:
        """Run a study until it holds something."""
        study = self.verbs.create(draft).id
        for _ in range(most):
            self.agent.step()
            view = self.verbs.study(study)
            if view.phase is Phase.HOLDING:
                self.agent.step()  # starts the hold
                return view
            assert view.phase is not Phase.PAUSED, view.phase_why
        raise AssertionError(f"{study} is still {view.phase}: {view.phase_why}")

    def follow(self, seconds: int) -> None:
        """Advance the time while a plan is held, with a read of its signal each second."""
        for _ in range(seconds):
            self.time.sleep(1.0)
            self.agent.runner.tick()

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Forward a request to the tuner; a wait for news advances the lab's time."""
        if self.away:
            raise httpx2.ConnectError("nobody is there")
        content = request.content
        if request.url.path.endswith("/next"):
            poll = Poll.model_validate_json(content)
            self.time.sleep(poll.wait_s)
            content = poll.model_copy(update={"wait_s": 0.0}).model_dump_json().encode()
        headers = {k: v for k, v in request.headers.items() if k not in ("content-length", "host")}
        answer = self._client.request(
            request.method, request.url.path, content=content, headers=headers
        )
        return httpx2.Response(answer.status_code, content=answer.content)


@contextmanager
def lab(
    folder: Path, target: Target, time: Time, policies: Callable[[str], Policy] = load_policy
) -> Iterator[Lab]:
    """Open a lab for a target."""
    verbs = Operations(Loop(open_store("memory://"), policies, time.now, monotonic=time.monotonic))
    app = create_app(verbs, TOKEN, frozenset({"testserver"}), "0")
    with TestClient(app) as client:
        yield Lab(folder, target, time, client, verbs)
