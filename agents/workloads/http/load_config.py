"""The load in a service's file: our requests, or a program's runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from agents.host.processes.program_runs import MeasuredProgram, Runs
from agents.host.service_files import (
    AbsolutePath,
    Argv,
    Environment,
    HttpMethod,
    LongText,
    Positive,
    PrintedItems,
    PrintedMetric,
    url_path,
)
from agents.load.arrivals import read_arrivals
from agents.load.generator import CLOSED_LOOP_CALLERS, OPEN_LOOP_CALLERS, LoadShape
from agents.load.streaming import LIMITS
from tuner.core import ConfigError
from tuner.foreign_bodies import lines
from tuner.typed_toml import Table

ANSWER_S, RUN_S = 10.0, 600.0
OURS = ("host", "content-length", "transfer-encoding", "connection")
"""The headers that only the load generator sets."""
OF_RUNS = ("run", "runs", "folder", "env", "items", "metric")


def _own_path(path: str) -> str:
    """Return a path of the service itself: the load goes to its url. Raises ConfigError."""
    if not path.startswith("/"):
        raise ConfigError(f"path must begin with /, not {path!r}", hint="it is sent to url")
    return url_path(path)


def _headers(table: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the requests. Raises ConfigError."""
    for name, text in table.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or name.lower() in OURS:
            raise ConfigError(f"the header {name!r} cannot be sent", hint="leave it out")
        if not re.fullmatch(r"[ -~]*", text):
            raise ConfigError(f"the header {name} must be a line of text, not {text!r}")
    return {("Content-Type" if n.lower() == "content-type" else n): t for n, t in table.items()}


def _good(limits: Mapping[str, float]) -> Mapping[str, float]:
    """Return the limits of a good request, by metric. Raises ConfigError."""
    for name in limits:
        if name not in LIMITS:
            raise ConfigError(f"unknown key {name!r}", hint=f"known keys: {', '.join(LIMITS)}")
    return limits


@dataclass(frozen=True, kw_only=True)
class LoadConfig(Table):
    """The requests of our load generator, to `path`, or the runs of a program, `run`.

    The generator sends the bodies in turn. With `stream` the answers are streams of an OpenAI API; `good`
    are the limits of its goodput. `runs` is the number of complete runs per window.

    Raises:
        InvalidInput: it has neither or both, a key that goes with the other one, or no such load.
    """

    path: Annotated[str, AfterValidator(_own_path)] = ""
    callers: int | None = None
    rate_per_s: float | None = None
    trace: AbsolutePath | None = None
    method: HttpMethod | None = None
    body: LongText | None = None
    bodies: AbsolutePath | None = None
    body_file: AbsolutePath | None = None
    headers: Annotated[dict[str, LongText], AfterValidator(_headers)] = field(default_factory=dict)
    warm_up_s: Positive | None = None
    timeout_s: Positive | None = None
    stream: bool = False
    good: Annotated[dict[str, Positive], AfterValidator(_good)] = field(default_factory=dict)
    run: Argv = ()
    runs: Runs | None = None
    folder: AbsolutePath | None = None
    env: Environment = field(default_factory=dict)
    items: PrintedItems | None = None
    metric: tuple[PrintedMetric, ...] = ()

    def __post_init__(self) -> None:
        of_requests = [f.name for f in fields(self) if f.name not in (*OF_RUNS, "timeout_s")]
        others, kind = (of_requests, "path") if self.run else (OF_RUNS, "run")
        wrong = [key for key in others if getattr(self, key) not in (None, (), "", {}, False)]
        if wrong:
            raise ConfigError(f"{wrong[0]} goes with a {kind}", hint=f"leave it out, or add {kind}")
        if not self.run:
            self._demand_requests()
        elif self.items is None:
            raise ConfigError(" has no items", hint="add items = …")

    def _demand_requests(self) -> None:
        """Raise InvalidInput if the requests cannot be sent."""
        if not self.path:
            raise ConfigError(" has no path", hint="add path = …")
        bodies = self.sent
        if self.trace is None:
            _ = self.shape
        if self.good and not self.stream:
            raise ConfigError("good needs stream = true", hint="add it, or leave out good")
        for body in bodies if self.stream else ():
            _demand_stream(body)

    @property
    def program(self) -> MeasuredProgram | None:
        """The program that sends the load; None for our requests."""
        if self.items is None:
            return None
        return MeasuredProgram(
            words=self.run,
            environment=self.env,
            folder=self.folder,
            timeout_s=self.timeout_s or RUN_S,
            items=self.items,
            metrics=self.metric,
        )

    @cached_property
    def shape(self) -> LoadShape:
        """The arrivals of our requests. Raises InvalidInput."""
        arrivals_s = () if self.trace is None else read_arrivals(self.trace)
        rate = None if arrivals_s else self.rate_per_s
        callers = self.callers
        if callers is None:
            callers = OPEN_LOOP_CALLERS if rate or arrivals_s else CLOSED_LOOP_CALLERS
        return LoadShape(callers, rate, arrivals_s)

    @cached_property
    def sent(self) -> tuple[bytes, ...]:
        """The bodies of our requests. Raises ConfigError."""
        given = [k for k in ("body", "bodies", "body_file") if getattr(self, k) is not None]
        if len(given) > 1:
            raise ConfigError(f" has {' and '.join(given)}", hint="keep one of them")
        if self.bodies is not None:
            return tuple(_lines(self.bodies))
        if self.body_file is None:
            return ((self.body or "").encode(),)
        try:
            return (self.body_file.read_bytes(),)
        except OSError as error:
            raise ConfigError(
                f"cannot read the body {self.body_file}: {error.strerror}",
                hint="name a file that the agent can read",
            ) from None


def _demand_stream(body: bytes) -> None:
    """Raise ConfigError if a body does not request a stream."""
    try:
        request = json.loads(body)
    except ValueError:
        request = None
    if not isinstance(request, dict) or request.get("stream") is not True:
        raise ConfigError(
            'with stream = true each body needs "stream": true',
            hint='write {"prompt": "…", "max_tokens": 64, "stream": true, '
            '"stream_options": {"include_usage": true}}',
        )


def _lines(file: Path) -> Sequence[bytes]:
    """Return the lines of a file, each one body in JSON. Raises ConfigError."""
    try:
        bodies = [line for line in lines(file.read_text("utf-8-sig")) if line.strip()]
        for body in bodies:
            json.loads(body)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the bodies {file}: {error}") from None
    if not bodies:
        raise ConfigError(f"{file} has no body", hint="write one JSON body per line")
    return [body.encode() for body in bodies]
