"""vLLM, SGLang, llama-server without drafts, and others with OpenAI's API: start words and warm-up."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from agents.speculation.messages import ModelList
from agents.workloads.engine.llama import SPEC, Draft, owned
from agents.workloads.engine.server import EngineServer
from tuner.core import ActuationError, InvalidInput, Setting

SPECULATIVE_TOKENS = "speculative_tokens"
CONFIG, CONFIG_SHORT = "--speculative-config", "-sc"
NGRAM = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
"""vLLM's drafts without a model, for a command without a speculative configuration of its own."""
SHOWS_METRICS = ("--metrics", "--slots", "--enable-metrics")
RESERVES = (
    *("--gpu-memory-utilization", "--mem-fraction-static"),
    *("--free-gpu-memory-fraction", "--kv-cache-free-gpu-memory-fraction"),
)
"""Flags of engines that reserve a share of the device's memory, so no second one fits: vLLM, SGLang,
TensorRT-LLM (both names)."""
KNOBS = (
    SPECULATIVE_TOKENS, "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching",
    "async_scheduling", "kv_cache_dtype", "block_size", "max_running_requests",
    "chunked_prefill_size", "schedule_conservativeness", "max_batch_size", "max_num_tokens",
    "threads", "ubatch_size", "parallel",
)  # fmt: skip
"""Flags worth a knob: those of vLLM, SGLang, TensorRT-LLM and llama.cpp for batches, caches, threads."""
CALLERS, ROUNDS, TOKENS, WARM_UP_S = 4, 2, 16, 300.0
"""The warm-up of every start: the same requests, which are not measured. Our choice."""


def lists(help_text: str, option: str) -> bool:
    """Return whether a help text names an option; TensorRT-LLM writes _ for -."""
    return re.search(rf"{option}(?![\w-])", help_text.replace("_", "-")) is not None


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
            InvalidInput: no knob is named, the build cannot draft without a model, or the command sets
                its drafts in another way.
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
        config, rest = _own_drafts(command)
        config = (config or json.dumps(NGRAM)) if vllm else ""
        return cls(own, beside, (SPECULATIVE_TOKENS,), config), tuple(rest)

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
        ours |= {CONFIG} if self.config else set()
        return bool(ours & {*names})

    async def prove(self, server: EngineServer) -> None:
        """Warm a server up. Raises ActuationError: it refuses a request; DeviceLost."""
        response = await server.ask("GET", "/v1/models")
        try:
            model = ModelList.model_validate_json(response.content).data[0].id
        except ValidationError:
            raise ActuationError(f"{server.url}/v1/models lists no model") from None
        body = {"model": model, "prompt": "a b c d", "max_tokens": TOKENS, "temperature": 0}
        for _ in range(ROUNDS):
            sent = (server.ask("POST", "/v1/completions", body, WARM_UP_S) for _ in range(CALLERS))
            await asyncio.gather(*sent)


def _own_drafts(command: Sequence[str]) -> tuple[str, list[str]]:
    """Return the speculative configuration of a command, empty if it has none, and its other words.

    Raises InvalidInput: it is no JSON object, or other words of the command set its drafts.
    """
    config, rest, words = "", list[str](), iter(command)
    for word in words:
        name, equals, value = word.partition("=")
        option = name.replace("_", "-") if name.startswith("--") else name
        if option in (CONFIG, CONFIG_SHORT):
            config = value if equals else next(words, "")
            if not _is_object(config):
                raise InvalidInput(f"{name} has no JSON object", hint=f"write {json.dumps(NGRAM)}")
        elif option.partition(".")[0] in (CONFIG, CONFIG_SHORT) or (
            owned([option]) and option not in SHOWS_METRICS
        ):
            raise InvalidInput(
                f"{SPECULATIVE_TOKENS} cannot be a knob: {word} is in the command",
                hint=f"leave one out; of vLLM's words only {CONFIG} JSON may stay",
            )
        else:
            rest.append(word)
    return config, rest


def _is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
