"""Flags that a running engine changes itself, against stand-ins of vLLM 54816 and SGLang 37661."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from agents.workloads.engine.active import ActivePassive
from agents.workloads.engine.live import changed_live
from agents.workloads.engine.server import EngineServer
from tests.integration.spoken import Spoken
from tuner.core import Setting, Value

STARTED = 16


@dataclass
class LiveEngine:
    """An engine with a limit that is at most the start's; a change below `least` has only that effect.

    With `behind`, one of SGLang's schedulers stays at its start.
    """

    kind: str
    least: int = 1
    behind: bool = False
    values: dict[str, Value] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "max_num_running_seqs" if self.kind == "vllm" else "max_running_requests"

    def __post_init__(self) -> None:
        self.values = {self.name: STARTED}
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def shown(self, path: str) -> dict[str, Any] | None:
        if (self.kind, path) == ("vllm", "/v1/runtime_config"):
            return {**self.values}
        states = [self.values, *([{self.name: STARTED}] if self.behind else [])]
        return {"internal_states": states} if path == "/server_info" else None

    def change(self, values: dict[str, Any]) -> bool:
        """Return whether the values are accepted; SGLang's release ignores unknown ones."""
        if values[self.name] > STARTED:
            return False
        self.values |= {name: max(value, self.least) for name, value in values.items()}
        return True


def handler(engine: LiveEngine) -> type[Spoken]:
    class Handler(Spoken):
        def do_GET(self) -> None:
            shown = engine.shown(self.path)
            self.answer(404 if shown is None else 200, shown or {"detail": "Not Found"})

        def do_PATCH(self) -> None:
            assert (engine.kind, self.path) == ("vllm", "/v1/runtime_config")
            self.answer(200 if engine.change(json.loads(self.body())) else 400, engine.values)

        def do_POST(self) -> None:
            assert (engine.kind, self.path) == ("sglang", "/set_internal_state")
            taken = engine.change(json.loads(self.body())["server_args"])
            self.answer(200 if taken else 400, {"updated": taken})

    return Handler


@pytest.fixture
def started() -> Iterator[Callable[..., LiveEngine]]:
    engines: list[LiveEngine] = []

    def start(kind: str, **ways: Any) -> LiveEngine:  # noqa: ANN401
        engines.append(LiveEngine(kind, **ways))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


FLAGS = {"vllm": "max_num_seqs", "sglang": "max_running_requests"}


@pytest.mark.parametrize("kind", FLAGS)
def test_a_lower_limit_takes_no_start_and_a_higher_one_than_the_start_s_does(
    started: Callable[..., LiveEngine], kind: str
) -> None:
    engine, flag, starts = started(kind), FLAGS[kind], list[Setting]()

    async def start(setting: Setting) -> EngineServer:
        starts.append(setting)
        return EngineServer(engine.url, setting)

    async def change() -> list[int]:
        servers, seen = ActivePassive(start, beside=False), list[int]()
        for value in (STARTED, 4, 8, STARTED + 1):
            await servers.change({flag: value, "block_size": 16})
            assert (await servers.acquire()).setting[flag] == value
            seen.append(len(starts))
        await servers.change({flag: STARTED + 1, "block_size": 32})
        await servers.close()
        return [*seen, len(starts)]

    assert asyncio.run(change()) == [1, 1, 1, 2, 3]
    assert engine.values == {engine.name: 8}


@pytest.mark.parametrize("kind", FLAGS)
@pytest.mark.parametrize("ways", [{"least": STARTED}, {"least": 5}, {"behind": True}], ids=str)
def test_a_change_without_its_whole_effect_is_put_back(
    started: Callable[..., LiveEngine], kind: str, ways: dict[str, Any]
) -> None:
    if (kind, *ways) == ("vllm", "behind"):
        pytest.skip("vLLM shows one scheduler")
    engine, flag = started(kind, **ways), FLAGS[kind]

    async def live() -> tuple[bool, Setting]:
        server = EngineServer(engine.url, {flag: STARTED})
        taken = await changed_live(server, {flag: 4})
        await server.end()
        return taken, server.setting

    assert asyncio.run(live()) == (False, {flag: STARTED})
    assert engine.values == {engine.name: STARTED}
