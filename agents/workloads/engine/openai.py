"""vLLM, SGLang, llama-server without drafts, and others with OpenAI's API: start words and warm-up."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agents.workloads.engine.dialect import SPEC, Draft
from agents.workloads.engine.server import EngineServer
from tuner.core import ActuationError, InvalidInput, Setting

SPECULATIVE_TOKENS = "speculative_tokens"
CONFIG = "--speculative-config"
NGRAM = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
"""vLLM's drafts without a model, for a command without a speculative configuration of its own."""
SHOWS_METRICS = ("--metrics", "--slots", "--enable-metrics")
RESERVES = ("--gpu-memory-utilization", "--mem-fraction-static")
"""Flags of engines that reserve a share of the device's memory, so no second one fits."""
KNOBS = (
    SPECULATIVE_TOKENS, "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching",
    "async_scheduling", "kv_cache_dtype", "block_size", "max_running_requests",
    "chunked_prefill_size", "schedule_conservativeness", "threads", "ubatch_size", "parallel",
)  # fmt: skip
"""Flags worth a knob: those of vLLM, SGLang and llama.cpp that set batches, caches and threads."""
CALLERS, ROUNDS, TOKENS, WARM_UP_S = 4, 2, 16, 300.0
"""The warm-up of every start: the same requests, which are not measured. Our choice."""


def lists(help_text: str, option: str) -> bool:
    """Return whether a help text names an option."""
    return re.search(rf"{option}(?![\w-])", help_text) is not None


@dataclass(frozen=True, slots=True)
class OpenAiEngine:
    """The start words of a build. `config` is vLLM's speculative configuration as JSON, if it has one."""

    own: tuple[str, ...]
    beside: bool
    knobs: tuple[str, ...] = ()
    config: str = ""

    @classmethod
    def of(
        cls, command: Sequence[str], names: Sequence[str], help_text: str
    ) -> tuple[OpenAiEngine, tuple[str, ...]]:
        """Return the engine of a command, and the command less the words that a knob sets.

        Raises:
            InvalidInput: no knob is named, or the build cannot draft without
                a model.
        """
        vllm, llama = lists(help_text, CONFIG), "ngram-mod" in SPEC.methods_in(help_text)
        if not names:
            there = [n for n in KNOBS if lists(help_text, f"--{n.replace('_', '-')}")]
            there += [SPECULATIVE_TOKENS] if vllm or llama else []
            raise InvalidInput(
                "no flag is a knob",
                hint=f"give --knob NAME=V,V; there are {', '.join(there) or 'none'}",
            )
        own = tuple(w for w in SHOWS_METRICS if lists(help_text, w) and w not in command)
        beside = not any(lists(help_text, word) for word in RESERVES)
        if SPECULATIVE_TOKENS not in names:
            return cls(own, beside), tuple(command)
        if not (vllm or llama):
            raise InvalidInput(
                f"{command[0]} has no drafts without a model, so {SPECULATIVE_TOKENS} cannot be a knob",
                hint="name the engine's own flag: --knob FLAG=V,V",
            )
        at = next((n for n, word in enumerate(command) if word == CONFIG), None) if vllm else None
        config = json.dumps(NGRAM) if vllm else ""
        if at is not None:
            config, command = command[at + 1], [*command[:at], *command[at + 2 :]]
        return cls(own, beside, (SPECULATIVE_TOKENS,), config), tuple(command)

    def words(self, setting: Setting) -> Sequence[str]:
        """Return the words for the number of tokens drafted in a step."""
        if not self.knobs:
            return ()
        length = int(setting[SPECULATIVE_TOKENS])
        if not self.config:
            return SPEC.options(length, Draft("ngram-mod"))
        drafting = {**json.loads(self.config), "num_speculative_tokens": length}
        return (CONFIG, json.dumps(drafting)) if length else ()

    def owned(self, names: Sequence[str]) -> bool:
        """Return whether the proxy sets an option, given all of its names."""
        ours = {"--port", "--host", *self.own, *(f"--{n.replace('_', '-')}" for n in self.knobs)}
        return bool(ours & {*names})

    async def prove(self, server: EngineServer) -> None:
        """Warm a server up. Raises ActuationError: it refuses a request; DeviceLost."""
        listed = (await server.ask("GET", "/v1/models")).json()
        try:
            model = str(listed["data"][0]["id"])
        except (LookupError, TypeError):
            raise ActuationError(f"{server.url}/v1/models lists no model") from None
        body = {"model": model, "prompt": "a b c d", "max_tokens": TOKENS, "temperature": 0}
        for _ in range(ROUNDS):
            sent = (server.ask("POST", "/v1/completions", body, WARM_UP_S) for _ in range(CALLERS))
            await asyncio.gather(*sent)
