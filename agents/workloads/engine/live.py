"""Flags that a running engine changes itself, by the routes that vLLM and SGLang propose.

Open pull requests of September 2026: vLLM 54816 (a lower number of running sequences than the start's) and
SGLang 37661 (limits of its scheduler). A route counts only if it is there and then shows the new values;
otherwise, as for a value above the start's, the engine is restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agents.workloads.engine.server import EngineServer
from tuner.core import Setting, TuningError


@dataclass(frozen=True, slots=True)
class LiveRoute:
    """One engine's routes: to read values, below `within` of the answer, and to change them.

    `names` are the engine's by flag; `key` is the field of the body that has the values, if any. SGLang
    shows the values of each of its schedulers: only those that all share are in force.
    """

    read: str
    within: str
    method: str
    change: str
    key: str
    names: Mapping[str, str]

    async def values(self, server: EngineServer) -> Mapping[str, Any]:
        """Return the values in force; empty if the engine has no such route."""
        try:
            shown = (await server.ask("GET", self.read)).json()
            first, *others = shown[self.within] if self.within else [shown]
            return {k: v for k, v in first.items() if all(one.get(k) == v for one in others)}
        except (TuningError, AttributeError, LookupError, TypeError, ValueError):
            return {}

    async def shows(self, server: EngineServer, values: Mapping[str, Any]) -> bool:
        """Order values; return whether they are in force then."""
        body = {self.key: values} if self.key else values
        with suppress(TuningError):
            await server.ask(self.method, self.change, body)
        return values.items() <= (await self.values(server)).items()


SCHEDULER = (
    *("max_running_requests", "chunked_prefill_size", "max_prefill_tokens"),
    *("schedule_policy", "schedule_conservativeness"),
)
ROUTES = (
    LiveRoute(
        "/v1/runtime_config", "", "PATCH", "/v1/runtime_config", "",
        {"max_num_seqs": "max_num_running_seqs"},
    ),
    LiveRoute(
        "/server_info", "internal_states", "POST", "/set_internal_state", "server_args",
        {name: name for name in SCHEDULER},
    ),
)  # fmt: skip


async def changed_live(server: EngineServer, setting: Setting) -> bool:
    """Change a running server to a setting; return False if it needs a start for that.

    What a refused change has altered is put back: the server goes on if no other one can replace it.
    """
    new = {name: value for name, value in setting.items() if server.setting.get(name) != value}
    for route in (one for one in ROUTES if new.keys() <= one.names.keys()):
        target = {route.names[name]: value for name, value in new.items()}
        before = await route.values(server)
        if not target.keys() <= before.keys():
            continue
        if await route.shows(server, target):
            server.setting = dict(setting)
            return True
        await route.shows(server, {name: before[name] for name in target})
    return False
