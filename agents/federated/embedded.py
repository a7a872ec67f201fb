"""The tuner of a federation: one that already runs, or a child process on a database file."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from agents.federated.session import FederationSession
from agents.federated.space import federation_space
from agents.host.machine import Host, HostClock
from agents.tuner_link.client import TunerClient, connect
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Spool
from tuner import files, http_clients
from tuner.core import (
    Better,
    Constraint,
    Device,
    DeviceBusy,
    InvalidInput,
    LinkError,
    Metric,
    Mode,
    Phase,
    Quantity,
    Role,
    Safety,
    Scope,
    Space,
    TuningError,
)
from tuner.wire import MOST_ORDER_BYTES

log = logging.getLogger(__name__)

START_S = 120.0
GRACE_S = 15.0
ASK_S = 30.0
KIND = "federated"
JOULES = Quantity("J", Better.LESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationSpec:
    """A federation: its name, its classes of clients, the number of clients, and its version.

    By default the knobs follow from the classes and the number of `clients`; a given `space` replaces
    them. A changed `version` (of the app, the model or Flower) makes a study measure everything anew.
    """

    name: str
    classes: Sequence[str]
    clients: int = 0
    space: Space | None = None
    version: str = ""

    @property
    def knobs(self) -> Space:
        """The knobs of a round.

        Raises:
            InvalidInput: neither clients nor a space is given.
        """
        if self.space is not None:
            return self.space
        if self.clients < 1:
            raise InvalidInput(
                f"the federation {self.name} has {self.clients} clients",
                hint="pass clients=clients_there(grid), or a space",
            )
        return federation_space(self.classes, self.clients)

    def device(self, agent: str, host: str) -> Device:
        """Return the federation as a device on a host."""
        return Device(
            id=f"{self.name}@{host}",
            kind=KIND,
            board="federation",
            driver=self.version or "unknown",
            agent=agent,
            workload=KIND,
            workload_version=self.version,
            space=self.knobs,
            metrics=round_metrics(self.classes),
            seen_at=datetime.now(UTC),
        )


def round_metrics(classes: Sequence[str]) -> tuple[Metric, ...]:
    """Return the metrics of a round: joules by part and by class, seconds, accuracy, carbon, clients."""
    service = Scope.SERVICE
    parts = ("compute_j", "communication_j", "waiting_j", *(f"energy_{c}_j" for c in classes))
    return (
        Metric("energy_j", scope=service),
        *(Metric(name, scope=service, quantity=JOULES) for name in parts),
        Metric("round_s", scope=service, quantity=Quantity("s", Better.LESS)),
        Metric("accuracy", scope=service, quantity=Quantity("1", Better.MORE)),
        Metric("skew_loss", scope=service, quantity=Quantity("1", Better.LESS, signed=True)),
        Metric("accuracy_gain", scope=service, quantity=Quantity("1", Better.MORE, signed=True)),
        Metric("carbon_g", scope=service, quantity=Quantity("g", Better.LESS)),
        *(
            Metric(f"slowest_{c}_s", scope=service, quantity=Quantity("s", Better.LESS))
            for c in classes
        ),
        *(
            Metric(name, scope=service, quantity=Quantity("1"))
            for name in ("participated", "failed", *(f"participated_{c}" for c in classes))
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWishes:
    """The requested study of a training: its policy, objective, constraints and seed.

    A constraint on the accuracy, like "accuracy >= 0.9", is the goal, which ends the training.
    """

    policy: str = "fedgpo"
    objective: str = "energy_j"
    constraints: tuple[str, ...] = ()
    seed: int = 0


class FederatedTuner(FederationSession):
    """A session with a tuner, together with the tuner's process if it was started here.

    `url` is the tuner's address, `study` the id of the federation's study.
    """

    url = study = ""

    def __init__(self, link: TunerClient, device: Device, folder: Path, held: ExitStack) -> None:
        start = secrets.token_hex(4)
        super().__init__(link, device, folder, HostClock(), lambda: datetime.now(UTC), start)
        self._held = held

    def close(self) -> None:
        """Send the stored reports, and end the tuner if it was started here."""
        super().close()
        self._held.close()


def open_embedded(
    spec: FederationSpec,
    database: Path,
    *,
    policy: str = "fedgpo",
    objective: str = "energy_j",
    constraints: Sequence[str] = (),
    seed: int = 0,
    python: str = sys.executable,
) -> FederatedTuner:
    """Start a tuner as a child process on a SQLite file, and start or continue a study of the federation.

    A constraint on the accuracy, like "accuracy >= 0.9", is the goal: the training ends when it is reached,
    and minimizes the objective (`energy_j`, `round_s` or `carbon_g`) until then. An earlier study
    continues if it has the same policy, objective and constraints and has not reached its goal.
    Otherwise it is stopped, and a new one is created.

    `python` is the interpreter of an environment with jouletune's tuner, because this process never loads
    SQL or torch. The child process ends with this one, even if this one is killed.

    Raises:
        TuningError: the tuner did not start; the message names its log.
        InvalidInput: the study was refused.
    """
    folder = database.resolve().parent / f"{database.name}.federation"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        url, token_file = held.enter_context(_Child(database, folder, python)).address()
        requested = TrainingWishes(
            policy=policy, objective=objective, constraints=tuple(constraints), seed=seed
        )
        return _opened(spec, url, token_file, folder, held, requested)


def open_connected(
    spec: FederationSpec,
    url: str,
    token_file: Path,
    folder: Path,
    *,
    policy: str = "fedgpo",
    objective: str = "energy_j",
    constraints: Sequence[str] = (),
    seed: int = 0,
) -> FederatedTuner:
    """Open a session with a running tuner, and start or continue a study as `open_embedded` does.

    The token file has an operator's token.

    Raises:
        LinkError: the tuner does not answer.
        Unauthorised, InvalidInput: the tuner refuses the token or the study.
    """
    with ExitStack() as held:
        requested = TrainingWishes(
            policy=policy, objective=objective, constraints=tuple(constraints), seed=seed
        )
        return _opened(spec, url, token_file, folder, held, requested)


def _opened(
    spec: FederationSpec,
    url: str,
    token_file: Path,
    folder: Path,
    held: ExitStack,
    requested: TrainingWishes,
) -> FederatedTuner:
    """Register the federation at a tuner, and return the session for its study."""
    host = Host.here()
    agent = f"{spec.name}@{host.name}"
    http = held.enter_context(connect(url))
    link = TunerClient(http, Credentials(folder, token_file, agent), Spool(folder / "spool"))
    device = spec.device(agent, host.name)
    link.register(device)
    study = _study(url, token_file, device, requested)
    tuner = FederatedTuner(link, device, folder, held.pop_all())
    tuner.url, tuner.study = url, study
    return tuner


def _study(url: str, token_file: Path, of: Device, requested: TrainingWishes) -> str:
    """Return the id of the federation's active study; create one unless one fits the request."""
    device = of.id
    token = files.token(token_file)
    headers = {"Authorization": f"Bearer {token}"}
    with http_clients.client(
        MOST_ORDER_BYTES, ASK_S, base_url=f"{url}/v1", headers=headers, timeout=ASK_S
    ) as api:
        former = next(
            (
                study
                for study in _answer(api.get("/studies"))
                if device in study["devices"] and study["phase"] != Phase.STOPPED
            ),
            None,
        )
        if former is not None and not (other := _other(former, requested, of.space)):
            return str(former["id"])
        draft: dict[str, Any] = {
            "devices": [device],
            "objective": requested.objective,
            "constraints": list(requested.constraints),
            "policy": requested.policy,
            "seed": requested.seed,
            "terms": {"mode": Mode.CONTINUOUS, "allow_estimated": True, "safety": Safety.OFF},
            "who": device,
        }
        response = api.post("/studies", json=draft)
        # The tuner checks a draft before its device, so an invalid draft never stops the former study.
        if former is not None and _refused_as(response) == DeviceBusy.code:
            change = {"who": device, "why": f"a new training: {other}"}
            _answer(api.post(f"/studies/{former['id']}/stop", json=change))
            log.warning("event=study_replaced study=%s why=%r", former["id"], other)
            response = api.post("/studies", json=draft)
        return str(_answer(response)["id"])


def _other(study: Mapping[str, Any], requested: TrainingWishes, space: Space) -> str:
    """Return the reason why a study cannot continue; empty if it can.

    Its goal is reached, the request differs, or its baseline's number of participants no longer fits the
    number of clients.
    """
    if study["phase"] == Phase.HOLDING:
        return "the last one has reached its goal"
    usual = study["baseline"]["setting"]
    for knob in space.knobs:
        if knob.role is Role.PARTICIPANTS and usual.get(knob.name) not in knob.values:
            return f"{knob.name} of {list(knob.values)} instead of {usual.get(knob.name)}"
    wishes = {
        "policy": requested.policy,
        "objective": str(requested.objective).rpartition(" ")[2],
        "constraints": sorted(str(Constraint.parse(c)) for c in requested.constraints),
    }
    running = {
        "policy": study["policy"],
        "objective": str(study["objective"]).rpartition(" ")[2],
        "constraints": sorted(str(Constraint.parse(c)) for c in study["constraints"]),
    }
    return "; ".join(
        f"{name} {wish} instead of {running[name]}"
        for name, wish in wishes.items()
        if running[name] != wish
    )


def _refused_as(response: httpx2.Response) -> str:
    """Return the error code of a response; empty on success."""
    return "" if response.is_success else str(response.json().get("code", ""))


def _answer(response: httpx2.Response) -> Any:  # noqa: ANN401  JSON
    """Return the JSON of a response. Raises TuningError: the tuner refused the request."""
    if not response.is_success:
        detail = response.text[:300]
        raise TuningError(f"the tuner refused {response.request.url.path}: {detail}")
    return response.json()


class _Child:
    """The tuner's process, which ends with this one."""

    def __init__(self, database: Path, folder: Path, python: str) -> None:
        self._database, self._folder, self._python = database, folder, python
        self._log = folder / "tuner.log"

    def __enter__(self) -> _Child:
        self._port = self._folder / "port"
        self._port.unlink(missing_ok=True)
        self._token = self._folder / "token"
        options = ["--host", "127.0.0.1", "--port", "0", "--port-file", str(self._port)]
        options += ["--token-file", str(self._token)]
        environ: Mapping[str, str] = {
            **os.environ,
            "JOULETUNE_DB": f"sqlite:///{self._database.resolve()}",
        }
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._python, "-m", "tuner.cli.tied", "tuner", "serve", *options],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environ,
                start_new_session=True,
            )
        return self

    def address(self) -> tuple[str, Path]:
        """Wait until the tuner serves; return its URL and token file. Raises LinkError: not started."""
        deadline = time.monotonic() + START_S
        while not self._port.is_file():
            if self._process.poll() is not None or time.monotonic() > deadline:
                lines = self._log.read_text("utf-8", "replace").strip().splitlines()
                raise LinkError(
                    f"the tuner did not start: {(lines or ['it printed nothing'])[-1]}",
                    hint=f"see its log {self._log}; check that "
                    f"jouletune's tuner is installed for {self._python}",
                )
            time.sleep(0.1)
        return f"http://127.0.0.1:{self._port.read_text().strip()}", self._token

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
