"""The load in a service's file: our requests, or a program's runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.host.processes.program_runs import MeasuredProgram
from agents.host.service_files.printed_table import printed_items, printed_metrics, runs_per_window
from agents.host.service_files.tables import (
    absolute,
    argv,
    checked,
    demand,
    environment,
    http_method,
    inner,
    positive,
    url_path,
)
from agents.load.arrivals import read_arrivals
from agents.load.generator import OPEN_LOOP_CALLERS, LoadShape
from agents.load.streaming import LIMITS
from tuner import toml
from tuner.core import ConfigError, InvalidInput, reraised

LOAD_KEYS: dict[str, Any] = {"callers": int, "rate_per_s": toml.NUMBER, "trace": str}
LOAD_KEYS |= dict.fromkeys(("method", "path", "body", "bodies", "body_file"), str)
LOAD_KEYS |= {"headers": dict, "warm_up_s": toml.NUMBER, "timeout_s": toml.NUMBER}
LOAD_KEYS |= {"stream": bool, "good": dict}
RUN_KEYS: dict[str, Any] = {"run": list, "runs": int, "timeout_s": toml.NUMBER, "folder": str}
RUN_KEYS |= {"env": dict, "items": dict, "metric": list}
ANSWER_S, RUN_S = 10.0, 600.0
OURS = ("host", "content-length", "transfer-encoding", "connection")
"""The headers that only the load generator sets."""


@dataclass(frozen=True, slots=True)
class OurLoad:
    """The requests of our load generator, which sends the bodies in turn.

    With `stream` the answers are streams of an OpenAI API; `good` are the limits of its goodput.
    """

    shape: LoadShape
    method: str
    path: str
    bodies: tuple[bytes, ...]
    headers: Mapping[str, str]
    warm_up_s: float
    timeout_s: float
    stream: bool = False
    good: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunLoad:
    """A program that puts the service under load, with the number of complete runs per window."""

    program: MeasuredProgram
    runs: int


def load_of(where: str, table: Mapping[str, Any], trace: Path | None) -> OurLoad | RunLoad | None:
    """Parse `[load]`; None if nothing is sent; `trace` replaces its shape.

    Raises:
        ConfigError: it is not valid.
    """
    if "load" not in table:
        if trace is not None:
            raise ConfigError(
                f"{where} sends no load, so it cannot use a trace",
                hint="add a table [load] with a path",
            )
        return None
    if "run" in table["load"]:
        if trace is not None:
            raise ConfigError(f"{where}: a program sends the load, so it cannot use a trace")
        return _run_load(where, table)
    return _our_load(where, table, trace)


def _our_load(where: str, table: Mapping[str, Any], trace: Path | None) -> OurLoad:
    """Parse a `[load]` with a path. Raises ConfigError."""
    entry = inner(where, table, "load", LOAD_KEYS, "path")
    if trace is None and "trace" in entry:
        trace = absolute(where, "trace", entry["trace"])
    warm_up_s = positive(where, entry, "warm_up_s", 0.0) if "warm_up_s" in entry else 0.0
    bodies = _bodies(where, entry)
    return OurLoad(
        _shape(where, entry, trace),
        http_method(where, entry.get("method", "POST")),
        _own_path(where, entry["path"]),
        bodies,
        _headers(where, entry.get("headers", {})),
        warm_up_s,
        positive(where, entry, "timeout_s", ANSWER_S),
        _stream(where, entry, bodies),
        _good(where, entry),
    )


def _stream(where: str, entry: Mapping[str, Any], bodies: Sequence[bytes]) -> bool:
    """Return whether answers are streams. Raises ConfigError: a body does not request a stream."""
    if not entry.get("stream", False):
        return False
    for body in bodies:
        try:
            request = json.loads(body)
        except ValueError:
            request = None
        if not isinstance(request, dict) or request.get("stream") is not True:
            raise ConfigError(
                f'{where}: with stream = true each body needs "stream": true',
                hint='write {"prompt": "…", "max_tokens": 64, "stream": true, '
                '"stream_options": {"include_usage": true}}',
            )
    return True


def _good(where: str, entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits of a request that counts into the goodput. Raises ConfigError."""
    table = checked(f"{where}: good", entry.get("good", {}), dict.fromkeys(LIMITS, toml.NUMBER))
    if table and not entry.get("stream", False):
        raise ConfigError(f"{where}: good needs stream = true")
    return {name: positive(f"{where}: good", table, name, 0.0) for name in table}


def _own_path(where: str, path: str) -> str:
    """Return a path of the service itself: the load goes to its url. Raises ConfigError."""
    if not path.startswith("/"):
        raise ConfigError(
            f"{where}: path must begin with /, not {path!r}", hint="it is sent to url"
        )
    return url_path(where, path)


def _shape(where: str, entry: Mapping[str, Any], trace: Path | None) -> LoadShape:
    """Return the arrivals of a `[load]`. Raises ConfigError."""
    given = {k: entry[k] for k in ("callers", "rate_per_s") if k in entry}
    with reraised(ConfigError, InvalidInput, where):
        if trace is not None:
            given.pop("rate_per_s", None)
            return LoadShape(
                given.get("callers", OPEN_LOOP_CALLERS), arrivals_s=read_arrivals(trace)
            )
        if "rate_per_s" in given:
            given.setdefault("callers", OPEN_LOOP_CALLERS)
        return LoadShape(**given)


def _bodies(where: str, entry: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return the bodies of the requests. Raises ConfigError."""
    given = [key for key in ("body", "bodies", "body_file") if key in entry]
    if len(given) > 1:
        raise ConfigError(f"{where} has {' and '.join(given)}", hint="keep one of them")
    if "bodies" in entry:
        return tuple(_lines(where, absolute(where, "bodies", entry["bodies"])))
    if "body_file" in entry:
        file = absolute(where, "body_file", entry["body_file"])
        try:
            return (file.read_bytes(),)
        except OSError as error:
            raise ConfigError(
                f"{where}: cannot read the body {file}: {error.strerror}",
                hint="name a file that the agent can read",
            ) from None
    return (entry.get("body", "").encode(),)


def _lines(where: str, file: Path) -> Sequence[bytes]:
    """Return the lines of a file, each one body in JSON. Raises ConfigError."""
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        for line in lines:
            json.loads(line)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: cannot read the bodies {file}: {error}") from None
    if not lines:
        raise ConfigError(f"{where}: {file} has no body", hint="write one JSON body per line")
    return [line.encode() for line in lines]


def _headers(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of the requests. Raises ConfigError."""
    for name, text in table.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or name.lower() in OURS:
            raise ConfigError(f"{where}: the header {name!r} cannot be sent")
        if not isinstance(text, str) or not re.fullmatch(r"[ -~]*", text):
            raise ConfigError(f"{where}: the header {name} must be a line of text, not {text!r}")
    return {("Content-Type" if n.lower() == "content-type" else n): t for n, t in table.items()}


def _run_load(where: str, table: Mapping[str, Any]) -> RunLoad:
    """Parse a `[load]` table whose program sends the load. Raises ConfigError."""
    entry = inner(where, table, "load", RUN_KEYS)
    demand(where, entry, "items")
    program = MeasuredProgram(
        words=argv(where, entry["run"]),
        environment=environment(where, entry.get("env", {})),
        folder=absolute(where, "folder", entry["folder"]) if "folder" in entry else None,
        timeout_s=positive(where, entry, "timeout_s", RUN_S),
        items=printed_items(f"{where}: items", entry),
        metrics=printed_metrics(where, entry.get("metric", [])),
    )
    return RunLoad(program, runs_per_window(where, entry))
