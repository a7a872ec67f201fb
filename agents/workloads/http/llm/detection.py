"""Detect the engine at an address, and its knobs behind our proxy, with read-only requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from agents.host.http.knob_messages import KnobsReply
from agents.host.http.local_http import HttpRefusal, LocalHttp, local_url
from agents.load.streaming import NO_USAGE, USAGE, next_step, stream_error
from agents.workloads.http.llm.engines import ENGINES, OPENAI, LlmEngine
from tuner.core import ActuationError, DeviceLost, InvalidInput, Knob

PROBE_S, ANSWER_S = 5.0, 300.0
KNOBS = "/knobs"
"""The route of `jouletune workload proxy` for the knobs of the engine behind it."""
MODELS = "/v1/models"
KEY_HINT = (
    "give an address that needs no key, or describe the server in a file with the key in the headers "
    "of [load]: --workload service:/PATH/FILE.toml"
)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A server that answers: its engine, version, models, its Prometheus text, and its knobs if any.

    `silent` is the reason why the text is missing, `closed` why its models are not listed.
    """

    engine: LlmEngine
    url: str
    version: str
    models: tuple[str, ...]
    text: str
    knobs: tuple[Knob, ...] = ()
    shows_unload: bool = False
    silent: str = ""
    closed: str = ""

    @property
    def model(self) -> str:
        """The served models, as text."""
        return ", ".join(self.models)

    @property
    def fresh(self) -> bool:
        """Whether it shows a metric only after a request, and has answered none."""
        engine = self.engine
        names = [name for group in engine.histograms.values() for name in group]
        return engine.lazy and not any(name in self.text for name in (*names, engine.tokens))

    def serving(self, model: str) -> ServedModel:
        """Return the server with only the model for requests; an empty name means its only model.

        Raises:
            InvalidInput: it has several models, does not serve this one, or does not list them.
        """
        if self.closed:
            raise InvalidInput(self.closed, hint=KEY_HINT)
        if model not in self.models and (model or len(self.models) != 1):
            raise InvalidInput(
                f"{self.url} ({self.engine.title}) serves {self.model}"
                + (f", not {model!r}" if model else ""),
                hint=f"name one: --generate-load model={self.models[0]},rate=2",
            )
        return replace(self, models=(model or self.models[0],))


class Probes:
    """The answers of one server to requests that only read; each path is requested once."""

    def __init__(self, http: LocalHttp) -> None:
        self._http, self.url = http, http.url
        self._answers: dict[str, Mapping[str, Any]] = {}
        self.refused: dict[str, HttpRefusal] = {}

    def object(self, path: str) -> Mapping[str, Any]:
        """Return the JSON object at a path; empty if the answer is not an object. Raises DeviceLost."""
        if path not in self._answers:
            self._answers[path] = self._object(path)
        return self._answers[path]

    def text(self, path: str) -> tuple[str, str]:
        """Return the Prometheus text, and the reason if it is missing."""
        try:
            return self._http.call("GET", path).text, ""
        except HttpRefusal as error:
            return "", f"{path} is refused with HTTP {error.status}"
        except DeviceLost:  # Triton has a separate port for its metrics
            return "", f"nothing answers at {path}"
        except ActuationError as error:
            return "", error.message

    def closed(self, path: str) -> str:
        """Return an error text if a path needs a key; else empty."""
        error = self.refused.get(path)
        if error is None or error.status not in (401, 403):
            return ""
        return f"{self.url} needs an API key: it refused {path} with HTTP {error.status}"

    def _object(self, path: str) -> Mapping[str, Any]:
        """Request a path and return its JSON object; empty if refused."""
        try:
            value = self._http.call("GET", path).json()
        except HttpRefusal as error:
            self.refused[path] = error
            return {}
        except DeviceLost:
            raise
        except (ActuationError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}


def find_server(url: str) -> ServedModel:
    """Return the server at a URL of this machine.

    Raises:
        InvalidInput: the URL is not valid, no engine is recognised, or it serves no model.
        DeviceLost: no server answers, or it is not ready.
    """
    parts = local_url(url, "write http://127.0.0.1:8000")
    if parts.path.rstrip("/") not in ("", "/v1"):
        raise InvalidInput(f"--llm {url} has a path", hint="write http://127.0.0.1:8000")
    http = _connected(f"{parts.scheme}://{parts.netloc}")
    try:
        probes = Probes(http)
        engine, about = _recognised(probes)
        text, silent = probes.text(engine.metrics) if engine.metrics else ("", "")
        state, key = engine.unloaded
        return ServedModel(
            engine,
            http.url,
            str(about.get(engine.version_key) or "unknown"),
            _models(probes, engine, about),
            text,
            _knobs(probes),
            bool(state) and key in probes.object(state),
            silent,
            probes.closed(MODELS),
        )
    finally:
        http.close()


def demand_answer(server: ServedModel, body: str) -> None:
    """Return once a server has answered one request of a load, cut to one token.

    Raises:
        ActuationError: it refuses the request, or does not count the tokens.
        DeviceLost: no server answers.
    """
    path, http = server.engine.completions, _connected(server.url)
    try:
        request = {**json.loads(body), "max_tokens": 1}
        answer = http.call("POST", path, request, within_s=ANSWER_S)
    except HttpRefusal as error:
        raise ActuationError(error.message, hint=next_step(f"HTTP {error.status}")) from None
    finally:
        http.close()
    if wrong := stream_error(answer.content):
        raise ActuationError(
            f"{server.engine.title} at {server.url}: {path} answers with {wrong}",
            hint="shorten prompt and output of the load, or check the server's log",
        )
    if not USAGE.search(answer.content):
        raise ActuationError(
            f"{server.engine.title} at {server.url}: {path} gives {NO_USAGE}",
            hint=next_step(NO_USAGE),
        )


def _connected(url: str) -> LocalHttp:
    """Return a client with a short timeout."""
    return LocalHttp(url, "the model server", "start it, or correct the port", PROBE_S)


def _recognised(probes: Probes) -> tuple[LlmEngine, Mapping[str, Any]]:
    """Return the engine and its description, recognised by its routes, else by its metrics' names.

    Its routes may need a key or be hidden by a proxy.
    """
    for engine in ENGINES:
        for probe in engine.probes if engine is not OPENAI else ():
            about = probes.object(probe)
            if engine.keys <= about.keys() and engine.owner in ("", _first(probes).get("owned_by")):
                return engine, about
    text, _ = probes.text("/metrics")
    for engine in ENGINES:
        if engine.tokens and engine.tokens in text:
            return engine, {}
    if OPENAI.keys <= (about := probes.object(MODELS)).keys():
        return OPENAI, about
    raise _unknown(probes)


def _unknown(probes: Probes) -> InvalidInput | DeviceLost:
    """Return the error for an unrecognised server: it needs a key, is not ready, or is another program."""
    for path, error in probes.refused.items():
        if closed := probes.closed(path):
            return InvalidInput(closed, hint=KEY_HINT)
        if error.status in (429, 502, 503, 504):
            return DeviceLost(
                f"{error.message}, so it is not ready",
                hint="run this again once its model is loaded; its log has the reason",
            )
    names = ", ".join(engine.title for engine in ENGINES)
    return InvalidInput(
        f"{probes.url} answers, but as none of {names}",
        hint="give the server's own port if a proxy is in front, or describe it in a file: "
        "--workload service:/PATH/FILE.toml",
    )


def _models(probes: Probes, engine: LlmEngine, about: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the served models; empty if the engine has no list of models, or the list needs a key."""
    listed = [one.get("id") for one in _listed(probes)] or [about.get("model_id")]
    models = [str(name) for name in listed if name]
    if engine.completions and not models and not probes.closed(MODELS):
        raise InvalidInput(
            f"{probes.url} ({engine.title}) lists no model at {MODELS}",
            hint="load one, or give the server's own port if a proxy is in front",
        )
    return tuple(models)


def _knobs(probes: Probes) -> tuple[Knob, ...]:
    """Return the knobs that our proxy offers; empty if the engine itself answers."""
    try:
        return KnobsReply.model_validate(probes.object(KNOBS)).space().knobs
    except ValidationError:
        return ()


def _listed(probes: Probes) -> list[Mapping[str, Any]]:
    """Return the entries of the list of models."""
    listed = probes.object(MODELS).get("data")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _first(probes: Probes) -> Mapping[str, Any]:
    """Return the first listed model; empty if none is listed."""
    return next(iter(_listed(probes)), {})
