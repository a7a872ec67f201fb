"""Flags that a running engine changes itself, by the routes that vLLM and SGLang propose.

Open pull requests of September 2026: vLLM 54816 (a lower number of running sequences than the start's) and
SGLang 37661 (limits of its scheduler). A route counts only if it is there and then shows the new values;
otherwise, as for a value above the start's, the engine is restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.workloads.engine.server import EngineServer
from tuner.core import Setting, TuningError


@dataclass(frozen=True, slots=True)
class LiveRoute:
    """One engine's routes: to read values, below `within` of the answer, and to change them.

    `names` are the engine's by flag; `key` is the field of the body that has the values, if any.
    """

    read: str
    within: tuple[str | int, ...]
    method: str
    change: str
    key: str
    names: Mapping[str, str]

    async def values(self, server: EngineServer) -> Mapping[str, Any]:
        """Return the values in force; empty if the engine has no such route."""
        try:
            shown = (await server.ask("GET", self.read)).json()
            for key in self.within:
                shown = shown[key]
        except (TuningError, LookupError, TypeError, ValueError):
            return {}
        return shown if isinstance(shown, dict) else {}


SCHEDULER = (
    *("max_running_requests", "chunked_prefill_size", "max_prefill_tokens"),
    *("schedule_policy", "schedule_conservativeness"),
)
ROUTES = (
    LiveRoute(
        "/v1/runtime_config", (), "PATCH", "/v1/runtime_config", "",
        {"max_num_seqs": "max_num_running_seqs"},
    ),
    LiveRoute(
        "/server_info", ("internal_states", 0), "POST", "/set_internal_state", "server_args",
        {name: name for name in SCHEDULER},
    ),
)  # fmt: skip


async def changed_live(server: EngineServer, setting: Setting) -> bool:
    """Change a running server to a setting; return False if it needs a start for that."""
    new = {name: value for name, value in setting.items() if server.setting.get(name) != value}
    for route in ROUTES:
        if not new.keys() <= route.names.keys():
            continue
        target = {route.names[name]: value for name, value in new.items()}
        if not target.keys() <= (await route.values(server)).keys():
            continue
        try:
            await server.ask(
                route.method, route.change, {route.key: target} if route.key else target
            )
        except TuningError:
            return False
        if target.items() <= (await route.values(server)).items():
            server.setting = dict(setting)
            return True
    return False
