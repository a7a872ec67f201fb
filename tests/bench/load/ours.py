"""The product: a study on the first half of a trace, whose plan the agent's runner follows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agents.holding.holder import Holder
from agents.holding.journal import Journal
from agents.holding.plan_runner import PlanRunner
from agents.host.machine import Host
from agents.target.measure import Measurer
from agents.target.observe import Ask
from agents.target.target import Target
from agents.target.window import Usage
from jouletune_bench.llm import Request, ServedRequest, ServesRequests, attach
from jouletune_bench.llm.requests import repeated
from policies import load_policy
from tests.bench.load.servers import Limits, Opener
from tests.orders import hold_order
from tuner.core import (
    Constraint,
    Objective,
    Past,
    Phase,
    Plan,
    Study,
    Terms,
    Trial,
    weigh,
)
from tuner.study.assignments import longest_window_s
from tuner.study.follow import Growth
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move, Rest, needed_metrics
from tuner.wire import HoldOrder

BY = "arrival_rate_per_s"
TUNED_S = 24 * 3600.0
"""The longest study, on the repeated first half of a trace."""
TRIALS = 40
"""One and a half times the number of a server's clocks, for all loads. Our choice."""
WINDOW_S = 60.0
REST_S = 60.0
"""The time between two requests of a study that waits for a load."""
SETTLED_S = 4 * 3600.0
"""A study that has held one plan for this time has met every load of a repeated half hour."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pace:
    """The lengths in s of a study's windows and rests and of the whole study, and its number of trials."""

    window_s: float = WINDOW_S
    max_window_s: float = 0.0
    rest_s: float = REST_S
    tuned_s: float = TUNED_S
    settled_s: float = SETTLED_S
    trials: int = TRIALS


SIMULATED = Pace()


@dataclass(frozen=True, slots=True)
class Tuned:
    """A study's plan with its reason, its trials and their hours."""

    plan: Plan
    trials: int
    hours: float
    phase: str
    reason: str


class Follows:
    """The agent's plan runner over the agent's holder, on the server's own time."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        """Hold a plan, and store each hold in a new folder below the given one."""
        self._plan, self._folder = plan, folder
        self._runner: PlanRunner | None = None

    @property
    def tick_s(self) -> float:
        """The runner's own interval."""
        return 1.0 if self._runner is None else self._runner.tick_s

    def begin(self, server: ServesRequests) -> None:
        """Begin the hold."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        target = Target((attach(server, "server", "simulated"),))
        holder = _holder(target, server, folder)
        holder.take(_order(self._plan, target))
        self._runner = PlanRunner("server", target, holder, server)

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Let the runner read the load once."""
        if self._runner is not None:
            self._runner.tick()


def _holder(target: Target, server: ServesRequests, folder: Path) -> Holder:
    return Holder(
        "server",
        target,
        folder=folder / "holds",
        journal=Journal(folder / "journal"),
        attached={"spec": "server"},
        host=Host("bench", "boot", 1),
        clock=server,
        now=lambda: NOW,
    )


def _order(plan: Plan, target: Target) -> HoldOrder:
    return hold_order(
        plan,
        target.space.default,
        study="load",
        valid_for_s=30 * 86_400.0,
        observe_s=3600.0,
        window_s=WINDOW_S,
    )


def tune(
    open_server: Opener, requests: Sequence[Request], kept: Limits, seed: int, folder: Path
) -> Tuned:
    """Run one study on requests repeated without end, and return its plan.

    It has settled once it has held one plan through all of them.
    """
    server = open_server(list(repeated(requests, _turns(requests))), seed)
    pace = replace(SIMULATED, settled_s=max(SETTLED_S, requests[-1].arrival_s))
    return tune_on(server, kept, seed, folder, pace)


def tune_on(
    server: ServesRequests,
    kept: Limits,
    seed: int,
    folder: Path,
    pace: Pace = SIMULATED,
    by: str = BY,
) -> Tuned:
    """Run one study on a server, and return its last held plan; without `by` it is for any load."""
    target = Target((attach(server, "server", "simulated"),))
    study = _study(target, kept, seed, pace, by)
    bench = Measurer(
        target=target,
        host_clock=server,
        now=lambda: NOW,
        usage=Usage(1, lambda: 0.0),
        seed=str(seed),
    )
    policy, loads, growth = load_policy("polythrottle"), _Loads(server), Growth()
    trials: list[Trial] = []
    changed_s = busy_s = 0.0
    held, follows = study, None
    while server.monotonic() < pace.tuned_s and study.phase is not Phase.PAUSED:
        began_s, now = server.monotonic(), NOW + timedelta(seconds=server.monotonic())
        past = Past(study=study, trials=tuple(trials), context=loads.context)
        step = next_step(past, policy)
        if isinstance(step, Rest) and study.phase is Phase.HOLDING and by:
            held_for = timedelta(seconds=began_s - changed_s)
            why = growth.why(study, loads.context, began_s, held_for)
            step = Move(Phase.CONFIRMING, why, study.plan) if why else step
        if isinstance(step, Move):
            moved = study.moved(step.phase, step.plan)
            study = replace(moved, phase_since=len(trials) + 1, reason=step.why)
            held = study if study.phase is Phase.HOLDING else held
            changed_s, follows = began_s, None
        elif isinstance(step, Assign):
            trials.append(_measured(study, trials, step, bench, now))
            target.apply(study.baseline)
            busy_s += server.monotonic() - began_s
            changed_s = server.monotonic()
        else:
            if follows is None and study.plan is not None:
                follows = Follows(study.plan, folder)
                follows.begin(server)
            _rest(server, follows, pace.rest_s)
        if server.monotonic() - changed_s > pace.settled_s and study.phase is Phase.HOLDING:
            break
        loads.look()
    last = study if study.phase is Phase.PAUSED else held
    plan = last.plan if last.phase is Phase.HOLDING and last.plan else Plan.single(study.baseline)
    return Tuned(plan, len(trials), busy_s / 3600.0, str(last.phase), last.reason)


def _rest(server: ServesRequests, follows: Follows | None, seconds: float) -> None:
    """Follow a hold for some seconds."""
    until = server.monotonic() + seconds
    while (left := until - server.monotonic()) > 1e-9:
        server.sleep(left if follows is None else min(left, follows.tick_s))
        new = server.take()
        if follows is not None:
            follows.tick(server, new)


def _turns(requests: Sequence[Request]) -> int:
    return int(1.5 * TUNED_S / max(1.0, requests[-1].arrival_s)) + 1


def _study(target: Target, kept: Limits, seed: int, pace: Pace, by: str = BY) -> Study:
    return Study(
        id="load",
        devices=(target.name,),
        workload=target.name,
        space=target.space,
        objective=Objective("energy_j"),
        quantities=target.quantities,
        signals=tuple(live.signal for live in target.signals.values()),
        constraints=(
            Constraint.parse(f"time_to_first_token_p99_ms <= {1000.0 * kept.ttft_s:.6g}"),
            Constraint.parse(f"inter_token_p99_ms <= {1000.0 * kept.tpot_s:.6g}"),
        ),
        policy="polythrottle",
        seed=seed,
        terms=Terms(
            trials=pace.trials,
            window_s=pace.window_s,
            max_window_s=pace.max_window_s,
            plan_by=by,
        ),
        created_at=NOW,
    )


class _Loads:
    """The load that the tuner knows: the latest reading."""

    def __init__(self, server: ServesRequests) -> None:
        self._server = server
        self._last = server.counters()
        self._seen: list[float] = []

    def look(self) -> None:
        now, last = self._server.counters(), self._last
        seconds = now.now_s - last.now_s
        if seconds >= 1.0:
            self._seen.append((now.arrived - last.arrived) / seconds)
            self._last = now

    @property
    def context(self) -> dict[str, float]:
        return {BY: self._seen[-1]} if self._seen else {}


def _measured(
    study: Study, trials: Sequence[Trial], step: Assign, bench: Measurer, now: datetime
) -> Trial:
    begun = Trial(
        number=len(trials) + 1,
        setting=step.setting,
        phase=study.phase,
        started_at=now,
        why=step.why,
        context=step.context,
    )
    ask = Ask(
        metrics=needed_metrics(study),
        limits=() if begun.tries(study.baseline) else weigh(study, trials).limits or (),
        window_s=study.terms.window_s,
        max_window_s=longest_window_s(study, trials),
        follows=BY,
        baseline=study.baseline if study.terms.plan_by else {},
    )
    return begun.ended(bench.trial(step.setting, ask, lambda: None, f"trial {begun.number}"), now)
