"""Profile a running server that decodes speculatively, by the windows that the policy requests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from agents.host.machine import HostClock, suspended_s
from agents.target.measure import Measurer
from agents.target.measured import WORKLOAD
from agents.target.observe import Ask
from agents.target.side import FollowsPlans, NothingToSet, Side
from agents.target.target import Target
from agents.target.window import Usage
from policies import load_policy
from policies.speculation.batches import BATCHES, FURTHER
from tuner.core import (
    ActuationError,
    Context,
    Done,
    InvalidInput,
    MeasurementError,
    Outcome,
    Past,
    Phase,
    Role,
    Setting,
    Space,
    Trial,
    Wait,
)
from tuner.profiling.speculation import (
    DRAFT,
    LENGTH,
    RATE,
    SIGNAL,
    measured_trial,
    profiling_study,
)

LONGEST = 4.0
"""A window may last this many times its length until its rate is precise enough."""
LOADS = len((*BATCHES, *FURTHER))
"""The greatest number of loads, in requests at once, that the policy measures."""


class ServerBench:
    """Measures a running server under generated load, at the draft lengths and loads of the policy.

    `target` has the server as its workload; its devices are only measured, never set. `draft` is the one
    draft to profile; empty: all that the server offers. `window_s` is the length of a window in seconds,
    `most_foreign` the largest share of the CPU that other processes may use in one.

    Raises:
        InvalidInput: the server has no knob for the draft length, lacks the draft, or has no prompts to be
            sent.
    """

    def __init__(self, target: Target, draft: str, window_s: float, most_foreign: float) -> None:
        server = target.runs
        self._length, self._space = _offered(server, draft)
        self._actuator = server.actuator
        meters = (replace(d, space=Space(()), actuator=NothingToSet()) for d in target.devices)
        self._measurer = Measurer(
            target=Target(tuple(meters), server),
            host_clock=HostClock(),
            now=lambda: datetime.now(UTC),
            usage=Usage(os.cpu_count() or 1, time.process_time, suspended_s),
            foreign_share=most_foreign,
        )
        self._window_s = window_s

    def profile(self, report: Callable[[str], None]) -> tuple[Done, list[Trial]]:
        """Measure the policy's windows until it has a plan, then restore the former setting.

        Returns the plan with its reason, and all windows, those of the baseline first.

        Raises:
            MeasurementError: the server cannot be measured without drafting, no later window succeeded, or
                the policy waits.
            ActuationError, DeviceLost: the server does not answer, or cannot be restored.
        """
        study = profiling_study(self._space, LOADS * len([*self._space.grid()]))
        policy, trials = load_policy("speculation"), list[Trial]()
        with self._restored() as before:
            for number in (1, 2):
                report(f"without drafting, {number} of 2")
                plain = self._measured(before, self._space.default, {})
                if not plain.state.evidence:
                    raise MeasurementError(
                        plain.reason,
                        hint="check that the server answers and that no other load runs on the host",
                    )
                trials.append(
                    measured_trial(number, self._space.default, {}, plain, Phase.BASELINE)
                )
            while True:
                answer = policy.suggest(Past(study=study, trials=tuple(trials)))
                if isinstance(answer, Done):
                    _refuse_unmeasured(trials)
                    return answer, trials
                if isinstance(answer, Wait):
                    raise MeasurementError(f"the policy waits although nothing runs: {answer.why}")
                report(answer.why)
                shown = self._measured(before, answer.setting, answer.context)
                trials.append(
                    measured_trial(
                        len(trials) + 1, answer.setting, answer.context, shown, Phase.TUNING
                    )
                )

    def _measured(self, before: Setting, setting: Setting, load: Context) -> Outcome:
        """Measure one window at a setting, with all other knobs as before, under a load."""
        ask = Ask(
            metrics=(RATE,),
            window_s=self._window_s,
            max_window_s=LONGEST * self._window_s,
            context=load,
        )
        name = f"{sorted(setting.items())} at {sorted(load.items())}"
        own = {self._length if name == LENGTH else name: v for name, v in setting.items()}
        return self._measurer.trial({**before, **own}, ask, _continue, name)

    @contextmanager
    def _restored(self) -> Iterator[Setting]:
        """Yield the setting in force and restore it, and the plan in force, after the block.

        Raises:
            ActuationError, DeviceLost: the server does not answer, or cannot be restored.
        """
        before, plan = dict(self._actuator.read()), None
        if isinstance(self._actuator, FollowsPlans):
            plan = self._actuator.followed()
        try:
            yield before
        finally:
            failed = self._measurer.target.restore({WORKLOAD: before})
            if plan is not None and isinstance(self._actuator, FollowsPlans):
                self._actuator.follow(plan)
            if failed:
                raise ActuationError("; ".join(failed), hint="set it by hand")


def _refuse_unmeasured(trials: Sequence[Trial]) -> None:
    """Raise MeasurementError if none of the policy's windows was completed."""
    tuning = [t for t in trials if t.phase is Phase.TUNING]
    if tuning and not any(t.state.evidence for t in tuning):
        raise MeasurementError(
            f"no window was completed; reason of the last: {tuning[-1].reason}",
            hint="check that the server answers and that no "
            "other load runs on the host; or raise --most-foreign",
        )


def _continue() -> None:
    """Let a window continue: only the operator's interrupt ends it."""


def _offered(server: Side, draft: str) -> tuple[str, Space]:
    """Return the server's name for the draft length, and the space of lengths and drafts to profile.

    Raises:
        InvalidInput: the server has no such knob, lacks the draft, or has no prompts to be sent.
    """
    roles = {Role.SPECULATION_LENGTH: LENGTH, Role.DRAFT: DRAFT}
    own = {roles[knob.role]: knob for knob in server.space.knobs if knob.role in roles}
    knobs = {name: replace(knob, name=name) for name, knob in own.items()}
    if LENGTH not in knobs:
        raise InvalidInput(
            f"{server.name} has no knob for the draft length, so there is nothing to profile",
            hint="give a server with speculative decoding: --workload llama_cpp:http://127.0.0.1:8090, "
            "the address of `jouletune workload proxy`",
        )
    if not any(live.signal.name == SIGNAL and live.signal.askable for live in server.signals):
        raise InvalidInput(
            f"no prompts to send to {server.name}",
            hint="add a file of your prompts to its address: "
            "#prompts:FILE.json, a JSON list of at least 64 texts",
        )
    drafts = knobs[DRAFT].values if DRAFT in knobs else ()
    if draft and draft not in drafts:
        offered = ", ".join(map(str, drafts)) or "one unnamed draft"
        raise InvalidInput(
            f"no draft {draft!r}: {server.name} offers {offered}",
            hint="leave out --draft, or name one of them",
        )
    if draft:
        knobs[DRAFT] = replace(knobs[DRAFT], values=(draft,), default=draft)
    return own[LENGTH].name, Space(tuple(knobs.values()))
