"""Find out which engine answers at an address, and its knobs behind our proxy; every request only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from agents.host.http.knob_messages import KnobsReply
from agents.host.http.local_http import LocalHttp, local_url
from agents.workloads.http.llm.engines import ENGINES, LlmEngine
from tuner.core import ActuationError, DeviceLost, InvalidInput, Knob

PROBE_S = 5.0
KNOBS = "/knobs"
"""The route of `jouletune speculation proxy` for the knobs of the llama-server behind it."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A server that answers: its engine, version, model, its Prometheus text, and its knobs if any."""

    engine: LlmEngine
    url: str
    version: str
    model: str
    text: str
    knobs: tuple[Knob, ...] = ()
    shows_unload: bool = False


def find_server(url: str) -> ServedModel:
    """Return what answers at a URL of this machine.

    Raises:
        InvalidInput: the URL is not one, no engine is recognised, or it serves no model.
        DeviceLost: nothing answers.
    """
    parts = local_url(url, "write http://127.0.0.1:8000")
    if parts.path.rstrip("/") not in ("", "/v1"):
        raise InvalidInput(f"--llm {url} has a path", hint="write http://127.0.0.1:8000")
    address = f"{parts.scheme}://{parts.netloc}"
    http = LocalHttp(address, "the model server", "start it, or correct the port", PROBE_S)
    try:
        engine, about = _recognised(http)
        return ServedModel(
            engine,
            address,
            str(about.get(engine.version_key) or "unknown"),
            _model(http, engine, about),
            _text(http, engine.metrics) if engine.metrics else "",
            _knobs(http) if engine.proxied else (),
            bool(engine.unloaded[0]) and engine.unloaded[1] in _object(http, engine.unloaded[0]),
        )
    finally:
        http.close()


def _recognised(http: LocalHttp) -> tuple[LlmEngine, Mapping[str, Any]]:
    for engine in ENGINES:
        for probe in engine.probes:
            about = _object(http, probe)
            if engine.keys <= about.keys() and engine.owner in ("", _first(http).get("owned_by")):
                return engine, about
    names = ", ".join(engine.title for engine in ENGINES)
    raise InvalidInput(
        f"{http.url} answers, but as none of {names}",
        hint="describe it in a file: --workload service:/PATH/FILE.toml",
    )


def _model(http: LocalHttp, engine: LlmEngine, about: Mapping[str, Any]) -> str:
    """Return the first model that is served; empty for an engine without such a list."""
    model = str(_first(http).get("id") or about.get("model_id") or "")
    if engine.completions and not model:
        raise InvalidInput(
            f"{http.url} ({engine.title}) lists no model at /v1/models",
            hint="load one, or give access to that path without a key",
        )
    return model


def _knobs(http: LocalHttp) -> tuple[Knob, ...]:
    """Return the knobs that our proxy offers; none where the engine itself answers."""
    try:
        return KnobsReply.model_validate(_object(http, KNOBS)).space().knobs
    except ValidationError:
        return ()


def _first(http: LocalHttp) -> Mapping[str, Any]:
    """Return the first model that is listed; empty for none."""
    listed = _object(http, "/v1/models").get("data")
    return listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}


def _object(http: LocalHttp, path: str) -> Mapping[str, Any]:
    """Return a JSON object; empty where the path has none. Raises DeviceLost."""
    try:
        value = http.call("GET", path).json()
    except DeviceLost:
        raise
    except (ActuationError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(http: LocalHttp, path: str) -> str:
    """Return the Prometheus text; empty where there is none."""
    try:
        return http.call("GET", path).text
    except ActuationError:  # also where the port of the metrics is closed
        return ""
