"""Controls an engine's knobs: by a restart, and the draft length per request or by a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agents.speculation.fallback import SpeculationFallback, StepCounts
from agents.workloads.engine.active import ActivePassive
from agents.workloads.engine.decoding import DecodingLoad
from agents.workloads.engine.figures import Timings
from agents.workloads.engine.launch import Launcher, ServerFlag
from agents.workloads.engine.llama import DRAFT, LENGTH, LlamaCpp, follows_requests, props_of
from agents.workloads.engine.openai import SPECULATIVE_TOKENS
from tuner.core import (
    NO_ANSWER,
    ActuationError,
    Condition,
    Conflict,
    Cost,
    DeviceLost,
    InvalidInput,
    Knob,
    Part,
    Plan,
    Role,
    Setting,
    Space,
    Value,
)

SIGNAL = "decoding_requests"
BY_RESTART = "a new setting of this engine needs a restart, so it follows no plan"


class EngineControl:
    """The knobs of an engine behind the proxy; `drafts` are empty where its knobs are flags only.

    If requests can set their length, the server is started once, at the longest, and each request
    gets the current length. Otherwise a change of the length replaces the server; a change of a flag
    always does.
    """

    def __init__(
        self,
        servers: ActivePassive,
        load: DecodingLoad,
        *,
        longest: int,
        drafts: Sequence[str],
        per_request: bool,
        name: str,
        version: str,
        start_s: float,
        launcher: Launcher,
    ) -> None:
        self.servers = servers
        self.load = load
        self._launcher = launcher
        self.per_request = per_request
        self.name = name
        self.version = version
        self._longest = longest
        self.space = _space(longest, drafts, per_request, start_s, launcher.flags)
        own = {flag.name: flag.default for flag in launcher.flags}
        drafting: dict[str, Value] = {LENGTH: 0, DRAFT: drafts[0]} if drafts else {}
        self._setting: dict[str, Value] = {**drafting, **own}
        self.plan: Plan | None = None
        """The followed plan; None if a setting is in force."""
        self.row: int | None = None
        """The index of the plan's current row."""
        self._fallback = SpeculationFallback()
        self._learned_with: Plan | None = None

    @property
    def setting(self) -> Setting:
        """The current setting; under a plan, that of its current row."""
        return {knob.name: self._setting[knob.name] for knob in self.space.knobs}

    async def apply(self, setting: Setting) -> None:
        """Put a setting in force, which ends a plan; knobs that are not named stay.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space; nothing was changed.
            ActuationError: the server for it does not start, or the length has no effect; nothing
                was changed.
        """
        self.space.check_named(setting)
        requested = {**self._setting, **setting}
        started = {LENGTH: self._longest} if self.per_request else {}
        try:
            await self.servers.change({**requested, **started})
        except DeviceLost as error:
            raise ActuationError(
                f"the engine {NO_ANSWER}: {error.message}", hint=error.hint
            ) from error
        self.plan = self.row = None
        self._setting = requested

    def command(self, setting: Setting) -> list[str]:
        """Return the engine's command line at a setting; knobs that are not named stay.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space.
        """
        self.space.check_named(setting)
        return self._launcher.command_at({**self._setting, **setting})

    def follow(self, plan: Plan) -> None:
        """Follow a plan from now on.

        Raises:
            Conflict: the length changes only by restart, or the plan uses another signal or
                changes the draft or a flag.
            InvalidInput: its settings are not in the space.
        """
        if not self.per_request:
            raise Conflict(BY_RESTART, hint="set it with PUT /knobs when the load changes")
        if plan.by != SIGNAL:
            raise Conflict(f"the proxy follows {SIGNAL}, not {plan.by!r}")
        for row in plan.rows:
            self.space.check(row.setting)
            if any(self._setting[name] != row.setting[name] for name in {*row.setting} - {LENGTH}):
                raise Conflict(
                    "a new draft or flag needs a restart", hint="a plan changes the length only"
                )
        if plan != self._learned_with:  # a plan that is followed again keeps its learned step times
            self._learned_with, self._fallback = plan, SpeculationFallback()
        self.plan, self.row = plan, None
        self._to_row(self.load.decoding)

    def unfollow(self) -> None:
        """End the plan; the length stays at its present value."""
        self.plan = self.row = None

    def request_length(self) -> int | None:
        """Return the length for the next request; None if the server's applies.

        A plan's length is replaced by 0 if recent acceptance does not make up for its cost.
        """
        if not self.per_request:
            return None
        decoding = self.load.decoding + 1
        self._to_row(decoding)
        length = int(self._setting[LENGTH])
        return length if self.plan is None else self._fallback.length(decoding, length)

    def request_showed(self, length: int, timings: Timings) -> None:
        """Record the timings of a request with a length, while the request still counts in the load."""
        if self.plan is None or timings.passes == 0 or timings.generating_s <= 0.0:
            return
        with suppress(InvalidInput):  # the server drafted more than requested
            step = StepCounts(
                requests=max(1, self.load.decoding),
                length=length,
                drafted=timings.drafted,
                accepted=timings.accepted,
                seconds=timings.generating_s / timings.passes,
                sequence_steps=timings.passes,
            )
            self._fallback.count(step)

    def _to_row(self, decoding: int) -> None:
        """Switch to the plan's row at a number of decoding requests."""
        if (plan := self.plan) is None:
            return
        self.row = plan.row({SIGNAL: float(decoding)}, self.row)
        self._setting[LENGTH] = int(plan.rows[self.row].setting[LENGTH])


async def launched(
    launcher: Launcher, load: DecodingLoad, longest: int, length: int
) -> EngineControl:
    """Start an operator's command, detect how its length is set, and set the first length.

    Raises:
        InvalidInput: the draft has another vocabulary, or a length is not from 0 to the longest.
        ActuationError, DeviceLost: it does not start.
    """
    engine = launcher.engine
    servers = ActivePassive(launcher, beside=engine.beside)
    drafts = list(engine.drafts) if isinstance(engine, LlamaCpp) else []
    name, version, per_request = Path(launcher.command[0]).name, "", False
    try:
        first: dict[str, Value] = {flag.name: flag.default for flag in launcher.flags}
        await servers.change({LENGTH: longest, DRAFT: drafts[0], **first} if drafts else first)
        active = await servers.acquire(0.0)
        if isinstance(engine, LlamaCpp):
            props = await props_of(active)
            # A method that drafts only repeated text gives no answer that proves the length in use.
            always = engine.drafts[drafts[0]].always
            per_request = always and await follows_requests(active, longest)
            load.slots = props.total_slots
            name = "llama_cpp"
            file = props.model_path.rpartition("/")[2]
            version = ", ".join(filter(None, (file, props.build_info, engine.dialect.length)))
        control = EngineControl(
            servers,
            load,
            longest=longest,
            drafts=drafts,
            per_request=per_request,
            name=name,
            version=version,
            start_s=servers.switch_s,
            launcher=launcher,
        )
        if drafts:
            await control.apply({LENGTH: length})
    except BaseException:
        await servers.close()
        raise
    return control


def _space(
    longest: int,
    drafts: Sequence[str],
    per_request: bool,
    start_s: float,
    flags: Sequence[ServerFlag],
) -> Space:
    """Return the knobs: length and draft if there are any, and flags."""
    restart = Cost(seconds=math.ceil(10.0 * start_s) / 10.0, restart=True)
    cost = Cost() if per_request else restart
    lengths = tuple(range(longest + 1))
    drafted = [Knob(LENGTH, lengths, 0, Part.WORKLOAD, cost, Role.SPECULATION_LENGTH)]
    knobs = drafted if drafts else []
    if len(drafts) > 1:
        names, drafting = tuple(drafts), Condition.parse(f"{LENGTH} > 0")
        method = Knob(DRAFT, names, names[0], Part.WORKLOAD, restart, Role.DRAFT)
        knobs.append(replace(method, condition=drafting))
    for flag in flags:
        role = Role.SPECULATION_LENGTH if flag.name == SPECULATIVE_TOKENS else Role.UNKNOWN
        knobs.append(Knob(flag.name, flag.values, flag.default, Part.WORKLOAD, restart, role))
    return Space(tuple(knobs))
